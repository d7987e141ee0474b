//! Commands for the runs that the driver starts, until a signal asks for the end: what `tenure every` and `tenure
//! worker` have in common.
//!
//! | what happens | what is done |
//! |---|---|
//! | the driver starts a run | a command is started for it |
//! | a signal asks for the end | it is passed on to all commands, and the instance drains; nothing is started any more |
//! | a second one | all commands are killed |
//! | an operator wants the instance to drain | all commands get SIGTERM; the program stays |
//! | that is taken back | runs are started again |

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use rustix::process::Signal;
use tenure::{Ctx, DrainReason, Tenure};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::args::OnLost;
use crate::exit;
use crate::failure::Failure;
use crate::guarded::Surroundings;
use crate::hold::Hold;
use crate::protocol::Ending;
use crate::run::no_guardian;
use crate::say;
use crate::signals::{self, Signals};
use crate::store::Place;
use crate::supervisor::{End, Setup, Supervisor, Terms};
use crate::task::Task;

/// The driver gives a run up that has not ended so long after the grace. By then it was killed.
const BEYOND_GRACE: Duration = Duration::from_secs(2);
/// The most signals that are on their way to a command: more say nothing more.
const MOST_SIGNALS: usize = 16;

/// How long the driver is to wait for the end of a run with this grace.
pub(crate) fn drain_timeout(grace: Duration) -> Duration {
    grace.saturating_add(BEYOND_GRACE)
}

/// What is run, and how it ends.
pub(crate) struct Service<'a> {
    place: &'a Place,
    tenure: &'a Tenure,
    grace: Duration,
    words: Words,
    command: &'a dyn Fn(&Ctx) -> Command,
    /// A signal has asked for the end.
    told: Cell<bool>,
}

/// What is run for one run.
pub(crate) struct Command {
    /// The program and its arguments.
    pub(crate) line: Vec<OsString>,
    /// Variables for its environment, besides the token and the owner.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// What is said of a program that drains.
#[derive(Debug)]
pub(crate) struct Words {
    /// What it does not do any more.
    pub(crate) ceases: String,
    /// What it does again when the drain was taken back.
    pub(crate) resumes: String,
}

impl<'a> Service<'a> {
    pub(crate) fn new(
        place: &'a Place,
        tenure: &'a Tenure,
        grace: Duration,
        words: Words,
        command: &'a dyn Fn(&Ctx) -> Command,
    ) -> Self {
        Self { place, tenure, grace, words, command, told: Cell::new(false) }
    }

    /// Sees to the runs that come, until a signal asks for the end and nothing runs any more; returns the exit code.
    /// `ended` waits until there will be no runs any more for another reason.
    pub(crate) async fn serve(
        &self,
        mut tasks: UnboundedReceiver<Task>,
        signals: &mut Signals,
        ended: impl Future<Output = Failure>,
    ) -> Result<u8, Failure> {
        let mut running = FuturesUnordered::new();
        let (relay, _) = broadcast::channel(MOST_SIGNALS);
        let (mut asked, mut over) = (None, None);
        let (mut ended, mut announcements) = (pin!(ended), pin!(self.announce()));
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    // Without a command nobody hears it.
                    let _heard = if asked.is_none() {
                        asked = Some(signal);
                        self.told.set(true);
                        self.drain(signal, running.len());
                        relay.send(signal)
                    } else {
                        relay.send(Signal::KILL)
                    };
                }
                Some(()) = running.next() => {}
                Some(task) = tasks.recv() => {
                    // What comes after the signal is not begun: dropped, it says so.
                    if asked.is_none() {
                        running.push(self.see_to(task, relay.subscribe()));
                    }
                }
                failure = &mut ended, if over.is_none() => over = Some(failure),
                never = &mut announcements => match never {},
            }
            if running.is_empty() {
                match (asked, over.take()) {
                    (Some(signal), _) => return Ok(exit::of_signal(signal)),
                    (None, Some(failure)) => return Err(failure),
                    (None, None) => {}
                }
            }
        }
    }

    /// From now on nothing is started, and the driver tells those that run.
    fn drain(&self, signal: Signal, running: usize) {
        let (signal, ceases) = (signals::name(signal), &self.words.ceases);
        match running {
            0 => say::line(format_args!("{signal}: {ceases} any more")),
            _ => say::line(format_args!(
                "{signal}: {ceases} any more; {running} command(s) may end by themselves within {}",
                humantime::format_duration(self.grace)
            )),
        }
        let tenure = self.tenure.clone();
        tokio::spawn(async move {
            if let Err(error) = tenure.drain().await {
                say::line(format_args!("{error}"));
            }
        });
    }

    /// Says what an operator wants, and what comes of it.
    async fn announce(&self) -> Infallible {
        loop {
            if self.tenure.draining().await != DrainReason::Operator {
                // The program does, and it is for good.
                return pending().await;
            }
            say::line(format_args!(
                "an operator wants this instance, {:?}, to drain: {} until that is taken back; commands that run may \
                 end by themselves within {}",
                self.tenure.identity().instance(),
                self.words.ceases,
                humantime::format_duration(self.grace)
            ));
            let mut resumed = pin!(self.tenure.resumed());
            tokio::select! {
                () = self.tenure.drained() => {
                    if !self.told.get() {
                        say::line(format_args!("drained: nothing runs here any more"));
                    }
                    resumed.await;
                }
                () = &mut resumed => {}
            }
            say::line(format_args!("the drain was taken back: {}", self.words.resumes));
        }
    }

    /// Runs the command for one run, and tells the driver what came of it once nothing of it lives.
    async fn see_to(&self, task: Task, mut relay: broadcast::Receiver<Signal>) {
        let Task { ctx, outcome, mut abandoned, over } = task;
        let result = self.run(&ctx, &mut relay, &mut abandoned).await;
        drop(over);
        // The driver may have given it up.
        let _unheard = outcome.send(result);
    }

    async fn run<T>(
        &self,
        ctx: &Ctx,
        relay: &mut broadcast::Receiver<Signal>,
        abandoned: &mut oneshot::Receiver<T>,
    ) -> Result<(), String> {
        let liveness = tokio::select! {
            liveness = self.place.liveness() => liveness.map_err(|failure| failure.message)?,
            // Nobody hears what is returned.
            _ = &mut *abandoned => return Ok(()),
        };
        if ctx.is_draining() {
            ctx.leave_unbegun();
            return Ok(());
        }
        let Command { line, variables } = (self.command)(ctx);
        let setup = Setup {
            hold: Hold::of(ctx),
            command: &line,
            variables,
            surroundings: Surroundings::Apart,
            liveness,
            terms: Terms { on_lost: OnLost::Term, grace: self.grace, max_hold: None },
            told: Some(&self.told),
        };
        let mut supervisor = Supervisor::start(setup).map_err(|error| no_guardian(&error).message)?;
        tokio::select! {
            biased;
            () = supervisor.watch(async || relayed(relay).await, pending) => {}
            _ = abandoned => {
                supervisor.kill_because("its time to end by itself is over");
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
                // It is not over, but the guardian took it for that: the command did not come to its end.
                ctx.cut_short();
                Err("the command was stopped, as this program was kept from telling it of a renewal"
                    .to_owned())
            }
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
