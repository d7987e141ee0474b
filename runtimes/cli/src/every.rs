//! `tenure every`: a command at each tick of a timer, on one process of all that have it.

use rustix::process::Signal;
use tenure::{Ctx, Overlap, Periodic, PeriodicSetup, RequestError, Tenure};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::args::{self, Every};
use crate::exit;
use crate::failure::Failure;
use crate::holder::exact_time;
use crate::list::system_time;
use crate::run::{FORWARDED, no_signals};
use crate::say;
use crate::service::{Command, Service, Words, drain_timeout};
use crate::signals::Signals;
use crate::store::Place;
use crate::task::{Task, hand_over};

/// The variable in which the command finds the timer's name.
const TIMER_VARIABLE: &str = "TENURE_TIMER";
/// The variable in which the command finds the number of its tick, a decimal number.
const TICK_VARIABLE: &str = "TENURE_TICK";
/// The variable in which the command finds when its tick was due, as RFC 3339 in UTC.
const TICK_TIME_VARIABLE: &str = "TENURE_TICK_TIME";
/// The variable in which the command finds how many ticks before its own were missed.
const MISSED_VARIABLE: &str = "TENURE_MISSED";

/// Runs a command at each tick, until a signal asks for the end; returns the exit code.
pub(crate) async fn every(args: &Every, place: &Place, verbose: u8) -> Result<u8, Failure> {
    let mut signals = Signals::listen(&FORWARDED).map_err(|error| no_signals(&error))?;
    // Not to be told of deaths, but so that the dead wait for us: where SIGCHLD is ignored they don't.
    let _deaths = Signals::listen(&[Signal::CHILD]).map_err(|error| no_signals(&error))?;
    let tenure = place.start_as(&args.membership)?;
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
            serve(args, place, &tenure, &job, tasks, &mut signals).await
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
        .drain_timeout(drain_timeout(args.grace));
    match args.late_limit {
        Some(limit) => setup.late_limit(limit),
        None => setup,
    }
}

/// Sees to the runs, until a signal asks for the end and nothing runs any more.
async fn serve(
    args: &Every,
    place: &Place,
    tenure: &Tenure,
    job: &Periodic,
    tasks: UnboundedReceiver<Task>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let words = Words {
        ceases: format!("timer {:?} is not followed", args.name),
        resumes: format!("timer {:?} is followed again", args.name),
    };
    let command = |ctx: &Ctx| Command { line: args.command.clone(), variables: variables(ctx) };
    let service = Service::new(place, tenure, args.grace, words, &command);
    let ended = async {
        match job.ended().await {
            Err(error) => error.into(),
            Ok(()) => Failure::new(exit::INTERNAL, "what drives the timer has ended"),
        }
    };
    // It works all the same, but nobody sees it there.
    let joining = tenure.clone();
    tokio::spawn(async move {
        if let Err(RequestError::Store(error)) = joining.join().await {
            say::line(format_args!(
                "this process can't be listed as an instance, nor drained as one: {error}"
            ));
        }
    });
    service.serve(tasks, signals, ended).await
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
