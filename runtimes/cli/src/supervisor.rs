//! A command under a lease or a claim: when it is asked to end, when it is killed, and what came of it.
//!
//! | what happens | what is done |
//! |---|---|
//! | a renewal | the guardian has new limits |
//! | the fence passes | the guardian asks the command to end (`--on-lost kill`: kills it) |
//! | `kill_at` passes | the guardian kills it, and so do we, should the guardian be stopped |
//! | the store says that the lease is not ours | it is killed at once |
//! | SIGTERM, SIGINT | passed on; after the grace, or at a second one, it is killed; the lease is renewed |
//! | SIGQUIT, SIGHUP | passed on |
//! | the job is drained, the workload belongs elsewhere | SIGTERM, unless it has a signal of this program's; it is killed after the grace, or once the driver says so; the lease is renewed |
//! | `--max-hold` is over | it is asked to end, and killed after the grace; the lease is renewed |
//! | the command is stopped from the keyboard | it goes on |
//! | the guardian dies | all is killed |
//! | the command ends and leaves processes behind | the guardian asks them to end, and kills them after the grace |

use std::cell::Cell;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use rustix::process::{Signal, getpid};
use rustix::termios::isatty;
use tenure::{Deadlines, Instant, LostReason, StopReason};

use crate::args::OnLost;
use crate::failure::Failure;
use crate::guarded::{Guarded, Job, News, Surroundings};
use crate::hold::Hold;
use crate::protocol::{Ending, Limits, Report};
use crate::terminal::Terminal;
use crate::{clock, exit, say, signals};

/// While the command waits for the terminal, and we for the foreground, we look this often.
const LOOK_FOR_FOREGROUND: Duration = Duration::from_millis(250);

/// That the command can't be suspended is not said more often than this.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(1);

/// What is to be run, under what, and how it is stopped.
pub(crate) struct Setup<'a> {
    pub(crate) hold: Hold<'a>,
    pub(crate) command: &'a [OsString],
    /// Variables for the command's environment, besides the token and the owner.
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) surroundings: Surroundings,
    /// The lock that proves this process alive, if the store has one.
    pub(crate) liveness: Option<OwnedFd>,
    pub(crate) terms: Terms,
    /// Whether a signal has asked the whole program to end, and so the command as well. `None` where nothing else does.
    pub(crate) told: Option<&'a Cell<bool>>,
}

/// How a command is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) on_lost: OnLost,
    /// How long it may take to end by itself.
    pub(crate) grace: Duration,
    /// The longest time that it is to be held for, for the message.
    pub(crate) max_hold: Option<Duration>,
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lease or the claim was lost while something of the command lived. That was said.
    Lost,
    /// It was stopped because of `--max-hold`. That was said.
    HeldTooLong,
    /// It has ended.
    Ended(Ending),
}

/// The variable in which the command finds its fencing token, a decimal number.
pub(crate) const TOKEN_VARIABLE: &str = "TENURE_TOKEN";
/// The variable in which the command finds the owner, as it stands in the store.
pub(crate) const OWNER_VARIABLE: &str = "TENURE_OWNER";

/// A lease or a claim, the command under it, and how far they have come.
pub(crate) struct Supervisor<'a> {
    hold: Hold<'a>,
    terms: Terms,
    told: Option<&'a Cell<bool>>,
    guarded: Guarded,
    terminal: Option<Terminal>,
    /// The lease was lost while something of the command lived.
    lost: bool,
    /// The command was stopped because of `--max-hold`.
    held_too_long: bool,
    /// It was told, or made, to end before it had.
    asked: bool,
    /// Stops that the user asked for by a signal.
    stops: u32,
    /// When the command is killed because it was asked to end by choice.
    kill_at: Option<Instant>,
    killed: bool,
    /// When it was last said that the command can't be suspended.
    refused_at: Option<Instant>,
    /// The command wants the terminal, and we don't have it to give.
    wants_terminal: bool,
    /// How the command ended.
    ending: Option<Ending>,
    /// Why there was no command.
    unstarted: Option<io::Error>,
    /// Why it was stopped, as far as that could not be said while it had the terminal.
    unsaid: Vec<String>,
}

impl<'a> Supervisor<'a> {
    /// Starts the guardian. To be called on the thread that lives as long as the program.
    pub(crate) fn start(setup: Setup<'a>) -> io::Result<Self> {
        let Setup { hold, command, mut variables, surroundings, liveness, terms, told } = setup;
        variables.push((TOKEN_VARIABLE, hold.token().to_string()));
        variables.push((OWNER_VARIABLE, hold.owner()));
        let guarded = Guarded::start(Job {
            command,
            held: hold.to_string(),
            variables,
            surroundings,
            liveness,
            limits: limits(terms.on_lost, hold.deadlines()),
            grace: terms.grace,
        })?;
        Ok(Self {
            hold,
            terms,
            told,
            guarded,
            terminal: match surroundings {
                Surroundings::Ours => Terminal::of_session(getpid()),
                Surroundings::Apart => None,
            },
            lost: false,
            held_too_long: false,
            asked: false,
            stops: 0,
            kill_at: None,
            killed: false,
            refused_at: None,
            wants_terminal: false,
            ending: None,
            unstarted: None,
            unsaid: Vec::new(),
        })
    }

    /// Watches over the command until nothing of it lives, or its guardian is dead. May be dropped, and begun again.
    ///
    /// `signals` waits for the next signal that is meant for the command, `suspensions` for the next that is to stop
    /// this process. Dropping what they return must not lose any.
    pub(crate) async fn watch(
        &mut self,
        mut signals: impl AsyncFnMut() -> Signal,
        mut suspensions: impl AsyncFnMut() -> Signal,
    ) {
        let mut renewals = Some(self.hold.renewals());
        // One that came since the guardian was started.
        self.guarded.limit(limits(self.terms.on_lost, self.hold.deadlines()));
        let (mut lost, mut is_lost) = (pin!(self.hold.lost()), false);
        let (mut stopping, mut is_stopping) = (pin!(self.hold.stopping()), false);
        loop {
            let last_moment = if self.killed { None } else { Some(self.hold.deadlines().kill_at) };
            let kill_at = if self.killed { None } else { self.kill_at };
            tokio::select! {
                biased;
                news = self.guarded.news() => match news {
                    News::Report(Report::Ended) | News::Unguarded => return,
                    News::Report(report) => self.hear(report),
                },
                deadlines = next(&mut renewals) => match deadlines {
                    Some(deadlines) => self.guarded.limit(limits(self.terms.on_lost, deadlines)),
                    None => renewals = None,
                },
                why = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.lose(why);
                }
                why = &mut stopping, if !is_stopping => {
                    is_stopping = true;
                    self.stop(why);
                }
                signal = signals() => self.pass_on(signal),
                _ = suspensions() => self.refuse_suspension(),
                () = at(kill_at) => self.kill_because("it did not end within the grace"),
                () = at(last_moment) => self.kill_because(self.hold.ends()),
                () = tokio::time::sleep(LOOK_FOR_FOREGROUND), if self.wants_terminal => self.lend_terminal(),
            }
        }
    }

    /// Whether the command had reason to end before its time.
    pub(crate) const fn was_asked(&self) -> bool {
        self.asked
    }

    /// Sees to it that nothing lives, takes the terminal back, and tells what came of the command.
    pub(crate) async fn finish(self) -> Result<End, Failure> {
        let Self { guarded, terminal, .. } = self;
        let guardian = guarded.guardian();
        let group = guarded.group();
        let was_guarded = guarded
            .bury(|| {
                if let (Some(terminal), Some(group)) = (terminal, group) {
                    terminal.take_back(group, guardian);
                }
            })
            .await;

        if let Some(error) = self.unstarted {
            let message = format!("the command could not be started: {error}");
            return Err(Failure::new(exit::INTERNAL, message));
        }
        self.unsaid.iter().for_each(|text| say::line(format_args!("{text}")));
        // Of these two it was said when it happened, or just now.
        if self.lost {
            return Ok(End::Lost);
        }
        if self.held_too_long {
            return Ok(End::HeldTooLong);
        }
        match self.ending {
            Some(ending) => Ok(End::Ended(ending)),
            None if was_guarded => Err(Failure::new(exit::INTERNAL, "the command's end was not seen")),
            None => Err(Failure::new(
                exit::INTERNAL,
                "the command's guardian was killed, and the command with it",
            )),
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Started { group } => {
                if let Some(terminal) = &mut self.terminal
                    && isatty(io::stdin())
                    && isatty(io::stdout())
                {
                    terminal.give_to(group);
                }
                self.guarded.go();
            }
            Report::Unstarted { errno } => self.unstarted = Some(io::Error::from_raw_os_error(errno)),
            Report::Stopped(Signal::TSTP) => self.refuse_suspension(),
            Report::Stopped(Signal::TTIN | Signal::TTOU) => {
                self.wants_terminal = true;
                self.lend_terminal();
                if self.wants_terminal {
                    say::line(format_args!(
                        "the command wants the terminal, and waits until this job is in the foreground; it \
                         keeps {} meanwhile",
                        self.hold
                    ));
                }
            }
            Report::Stopped(signal) => say::line(format_args!(
                "{} was stopped by {}; it keeps {}",
                self.hold.command(),
                signals::name(signal),
                self.hold
            )),
            // We come to know by our own clock as well, but may have been kept from looking at it.
            Report::Asked => self.note_loss(LostReason::Expired, "is asked to end"),
            Report::Killed => self.note_loss(LostReason::Expired, "is killed"),
            Report::Exited(ending) => self.ending = Some(ending),
            Report::Leftovers { count } => say::line(format_args!(
                "{} has ended, but left {count} process(es) running; they are asked to end, and killed in {}",
                self.hold.command(),
                humantime::format_duration(self.terms.grace)
            )),
            Report::Ended => {}
        }
    }

    fn lose(&mut self, why: LostReason) {
        match (why, self.terms.on_lost) {
            // The guardian does it, by the limits that it has.
            (LostReason::Expired, OnLost::Term) => self.note_loss(why, "is asked to end"),
            (LostReason::Expired, OnLost::Kill) => self.note_loss(why, "is killed"),
            (LostReason::NotYours, _) => {
                self.note_loss(why, "is killed");
                self.kill();
            }
            // The maximum hold, or the drain, and its grace are over; the lease still is ours.
            (LostReason::Stopped(_), _) => self.kill_because("it did not end within the grace"),
            // It is not renewed any more: the guardian's limits stay as they are, and come.
            _ => self.note_loss(why, "is stopped in time"),
        }
    }

    /// Says once that the lease is lost, and what becomes of the command. The first reason stays.
    fn note_loss(&mut self, why: LostReason, then: &str) {
        self.ask();
        if !std::mem::replace(&mut self.lost, true) {
            let (hold, token) = (&self.hold, self.hold.token());
            let text = format!("{hold} (token {token}) is lost: {why}; the command {then}");
            self.tell(text);
        }
    }

    /// Notes that it is to end. What it comes to after its end is no answer to that.
    const fn ask(&mut self) {
        self.asked |= self.ending.is_none();
    }

    fn stop(&mut self, why: StopReason) {
        self.ask();
        match why {
            StopReason::MaxHold => {
                self.held_too_long = true;
                self.tell(format!(
                    "{} was held for {}, which is --max-hold; the command is asked to end, and killed in {}",
                    self.hold,
                    humantime::format_duration(self.terms.max_hold.unwrap_or_default()),
                    humantime::format_duration(self.terms.grace)
                ));
                self.guarded.signal(Signal::TERM);
                self.kill_within_grace();
            }
            StopReason::Drain => {
                // A signal to this process that leads to it is passed on by itself.
                if self.told.is_some_and(|told| !told.get()) {
                    self.guarded.signal(Signal::TERM);
                }
                self.kill_within_grace();
            }
            // Of a loss we hear apart.
            _ => {}
        }
    }

    fn tell(&mut self, text: String) {
        if !say::could_say(&text) {
            self.unsaid.push(text);
        }
    }

    /// Passes a signal on to the command.
    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::KILL {
            self.kill_because("a second signal asked for it");
            return;
        }
        if signal == Signal::TERM || signal == Signal::INT {
            self.stops += 1;
            if self.stops > 1 {
                self.kill_because("a second signal asked for it");
                return;
            }
            self.kill_within_grace();
        }
        self.ask();
        tracing::info!(
            event = "command.signalled",
            signal = signals::name(signal),
            "passed on to the command"
        );
        self.guarded.signal(signal);
    }

    fn kill_within_grace(&mut self) {
        let at = clock::now() + self.terms.grace;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Kills the command, and says why.
    pub(crate) fn kill_because(&mut self, why: &str) {
        if !self.killed {
            say::line(format_args!("{} is killed: {why}", self.hold.command()));
        }
        self.kill();
    }

    fn kill(&mut self) {
        self.ask();
        self.killed = true;
        self.guarded.kill();
    }

    fn refuse_suspension(&mut self) {
        // A command that keeps stopping itself would fill the screen.
        let now = clock::now();
        if self.refused_at.is_some_and(|at| now.saturating_since(at) < BETWEEN_REFUSALS) {
            return;
        }
        self.refused_at = Some(now);
        say::line(format_args!(
            "{} can't be suspended while it holds {}: it goes on",
            self.hold.command(),
            self.hold
        ));
    }

    /// Gives the terminal to the command if we have it; it may be waiting for that.
    fn lend_terminal(&mut self) {
        if let (Some(terminal), Some(group)) = (&mut self.terminal, self.guarded.group())
            && terminal.give_to(group)
        {
            self.wants_terminal = false;
            self.guarded.signal(Signal::CONT);
        }
    }
}

fn limits(on_lost: OnLost, deadlines: Deadlines) -> Limits {
    let kill_at = match on_lost {
        OnLost::Term => deadlines.kill_at,
        OnLost::Kill => deadlines.fence_at,
    };
    Limits { ask_at: deadlines.fence_at, kill_at }
}

/// The next deadlines of a stream that may be over.
async fn next(renewals: &mut Option<tenure::Renewals>) -> Option<Deadlines> {
    match renewals {
        Some(renewals) => renewals.next().await,
        None => pending().await,
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => clock::until(instant).await,
        None => pending().await,
    }
}
