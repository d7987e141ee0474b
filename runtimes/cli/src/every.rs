//! `tenure every`: a command at each tick of a timer, on one process of all that have it.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use rustix::process::Signal;
use tenure::{Ctx, Overlap, Periodic, PeriodicSetup, Tenure};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::args::{self, Every, OnLost};
use crate::exit;
use crate::failure::Failure;
use crate::guarded::Surroundings;
use crate::hold::Hold;
use crate::holder::exact_time;
use crate::list::system_time;
use crate::protocol::Ending;
use crate::run::{FORWARDED, no_guardian, no_signals};
use crate::say;
use crate::signals::{self, Signals};
use crate::store::Place;
use crate::supervisor::{End, Setup, Supervisor, Terms};
use crate::task::{Task, hand_over};

/// The variable in which the command finds the timer's name.
pub(crate) const TIMER_VARIABLE: &str = "TENURE_TIMER";
/// The variable in which the command finds the number of its tick, a decimal number.
pub(crate) const TICK_VARIABLE: &str = "TENURE_TICK";
/// The variable in which the command finds when its tick was due, as RFC 3339 in UTC.
const TICK_TIME_VARIABLE: &str = "TENURE_TICK_TIME";
/// The variable in which the command finds how many ticks before its own were missed.
const MISSED_VARIABLE: &str = "TENURE_MISSED";

/// The driver gives a run up that has not ended so long after the grace. By then it was killed.
const BEYOND_GRACE: Duration = Duration::from_secs(2);
/// The most signals that are on their way to a command: more say nothing more.
const MOST_SIGNALS: usize = 16;

/// Runs a command at each tick, until a signal asks for the end; returns the exit code.
pub(crate) async fn every(args: &Every, place: &Place, verbose: u8) -> Result<u8, Failure> {
    let mut signals = Signals::listen(&FORWARDED).map_err(|error| no_signals(&error))?;
    // Not to be told of deaths, but so that the dead wait for us: where SIGCHLD is ignored they don't.
    let _deaths = Signals::listen(&[Signal::CHILD]).map_err(|error| no_signals(&error))?;
    let tenure = place.start()?;
    // The driver bounds the number of runs.
    let (sender, tasks) = unbounded_channel();
    let result = match setup(args, &tenure, sender).start() {
        Ok(job) => {
            if verbose > 0 {
                let period = humantime::format_duration(args.period);
                let (name, store) = (&args.name, place.name());
                say::line(format_args!(
                    "timer {name:?}: a tick every {period}, of all processes (store {store})"
                ));
            }
            serve(args, place, &job, tasks, &mut signals).await
        }
        Err(error) => Err(error.into()),
    };
    // Gives back what is left to give back, within its budget.
    if let Err(held) = tenure.shutdown().await {
        say::line(format_args!("{held}"));
    }
    result.map_err(|failure| failure.at(place.name()))
}

fn setup(args: &Every, tenure: &Tenure, tasks: UnboundedSender<Task>) -> PeriodicSetup {
    let setup = tenure
        .periodic(&args.name, args.period, move |ctx| hand_over(ctx, &tasks))
        .missed(args.missed)
        .overlap(match args.overlap {
            args::Overlap::Skip => Overlap::Skip,
            args::Overlap::Queue => Overlap::Queue,
            args::Overlap::Allow => Overlap::Allow,
        })
        .attempts(if args.retry { 2 } else { 1 })
        .ttl(args.ttl)
        .drain_timeout(args.grace.saturating_add(BEYOND_GRACE));
    match args.late_limit {
        Some(limit) => setup.late_limit(limit),
        None => setup,
    }
}

/// Sees to the runs that come, until the job ends and nothing runs any more.
async fn serve(
    args: &Every,
    place: &Place,
    job: &Periodic,
    mut tasks: UnboundedReceiver<Task>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut running = FuturesUnordered::new();
    let (relay, _) = broadcast::channel(MOST_SIGNALS);
    let (mut asked, mut over) = (None, None);
    let mut ended = pin!(job.ended());
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                // Without a command nobody hears it.
                let _heard = if asked.is_none() {
                    asked = Some(signal);
                    drain(args, job, signal, running.len());
                    relay.send(signal)
                } else {
                    relay.send(Signal::KILL)
                };
            }
            Some(()) = running.next() => {}
            Some(task) = tasks.recv() => {
                // What comes after the signal is not begun: dropped, it says so.
                if asked.is_none() {
                    running.push(see_to(args, place, task, relay.subscribe()));
                }
            }
            result = &mut ended, if over.is_none() => over = Some(result),
        }
        match (asked, &over) {
            _ if !running.is_empty() => {}
            (Some(signal), _) => return Ok(exit::of_signal(signal)),
            (None, Some(Err(error))) => return Err(error.clone().into()),
            (None, Some(Ok(()))) => {
                return Err(Failure::new(exit::INTERNAL, "what drives the timer has ended"));
            }
            (None, None) => {}
        }
    }
}

/// From now on nothing is started, and the driver tells those that run.
fn drain(args: &Every, job: &Periodic, signal: Signal, running: usize) {
    let signal = signals::name(signal);
    match running {
        0 => say::line(format_args!("{signal}: timer {:?} is not followed any more", args.name)),
        _ => say::line(format_args!(
            "{signal}: timer {:?} is not followed any more; {running} command(s) may end by themselves within {}",
            args.name,
            humantime::format_duration(args.grace)
        )),
    }
    let job = job.clone();
    tokio::spawn(async move {
        if let Err(error) = job.drain().await {
            say::line(format_args!("{error}"));
        }
    });
}

/// Runs the command for one tick, and tells the driver what came of it once nothing of it lives.
async fn see_to(args: &Every, place: &Place, task: Task, mut relay: broadcast::Receiver<Signal>) {
    let Task { ctx, outcome, mut abandoned, over } = task;
    let result = run(args, place, &ctx, &mut relay, &mut abandoned).await;
    drop(over);
    // The driver may have given it up.
    let _unheard = outcome.send(result);
}

async fn run<T>(
    args: &Every,
    place: &Place,
    ctx: &Ctx,
    relay: &mut broadcast::Receiver<Signal>,
    abandoned: &mut oneshot::Receiver<T>,
) -> Result<(), String> {
    let liveness = tokio::select! {
        liveness = place.liveness() => liveness.map_err(|failure| failure.message)?,
        // Nobody hears what is returned.
        _ = &mut *abandoned => return Ok(()),
    };
    if ctx.is_draining() {
        ctx.leave_unbegun();
        return Ok(());
    }
    let setup = Setup {
        hold: Hold::Run(ctx),
        command: &args.command,
        variables: variables(ctx),
        surroundings: Surroundings::Apart,
        liveness,
        terms: Terms { on_lost: OnLost::Term, grace: args.grace, max_hold: None },
    };
    let mut supervisor = Supervisor::start(setup).map_err(|error| no_guardian(&error).message)?;
    tokio::select! {
        biased;
        () = supervisor.watch(async || relayed(relay).await, pending) => {}
        _ = abandoned => {
            supervisor.kill_because("its claim is over");
            supervisor.watch(async || relayed(relay).await, pending).await;
        }
    }
    let was_asked = supervisor.was_asked();
    match supervisor.finish().await {
        Err(failure) => Err(failure.message),
        // Whatever it came to: the driver takes it as stopped, since we have heard of that.
        Ok(_) if was_asked && ctx.is_draining() => Ok(()),
        Ok(End::Ended(Ending::Code(0))) => Ok(()),
        Ok(End::Ended(Ending::Code(code))) => Err(format!("the command ended with code {code}")),
        Ok(End::Ended(Ending::Signal(signal))) => Err(match Signal::from_named_raw(signal) {
            Some(signal) => format!("the command was ended by {}", signals::name(signal)),
            None => format!("the command was ended by signal {signal}"),
        }),
        Ok(End::Lost | End::HeldTooLong) => {
            // The claim is not over, but the guardian took it for that: the command did not come to its end.
            ctx.cut_short();
            Err("the command was stopped, as this program was kept from telling it of a renewal".to_owned())
        }
    }
}

/// Waits for a signal that is passed on to the commands.
async fn relayed(relay: &mut broadcast::Receiver<Signal>) -> Signal {
    loop {
        match relay.recv().await {
            Ok(signal) => return signal,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => pending().await,
        }
    }
}

fn variables(ctx: &Ctx) -> Vec<(&'static str, String)> {
    let mut variables = vec![(TIMER_VARIABLE, ctx.name().to_owned())];
    if let Some(due) = ctx.tick() {
        variables.push((TICK_VARIABLE, due.tick.n.to_string()));
        let at = system_time(due.tick.at);
        // To the nanosecond: it tells ticks apart as well as their numbers do.
        variables.push((TICK_TIME_VARIABLE, exact_time(at)));
        variables.push((MISSED_VARIABLE, due.missed.to_string()));
    }
    variables
}
