//! `tenure run`: a lease, a command under it, and their ends.

use std::io;

use rustix::process::Signal;
use tenure::{Lease, Tenure};

use crate::args::Run;
use crate::exit;
use crate::failure::Failure;
use crate::guarded::Surroundings;
use crate::hold::Hold;
use crate::say;
use crate::signals::{self, Signals};
use crate::store::Place;
use crate::supervisor::{End, Setup, Supervisor, Terms};
use crate::wait;

/// The variable in which the command finds its lease's name.
pub(crate) const LEASE_VARIABLE: &str = "TENURE_LEASE";
/// Signals that are meant for the command.
pub(crate) const FORWARDED: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];

/// Runs a command under a lease; returns the exit code.
pub(crate) async fn run(args: &Run, place: &Place) -> Result<u8, Failure> {
    let mut signals = Signals::listen(&FORWARDED).map_err(|error| no_signals(&error))?;
    let tenure = place.start()?;
    let result = candidacy(args, place, &tenure, &mut signals).await;
    // Gives back what is left to give back, within its budget.
    if tenure.shutdown().await.is_err() {
        say::line(format_args!(
            "lease {:?} was not given back, as the store does not answer: others have to wait for its TTL ({})",
            args.lease,
            humantime::format_duration(args.ttl)
        ));
    }
    result.map_err(|failure| failure.at(place.name()))
}

async fn candidacy(args: &Run, place: &Place, tenure: &Tenure, signals: &mut Signals) -> Result<u8, Failure> {
    let lease = tokio::select! {
        lease = wait::acquire(args, place, tenure) => lease?,
        signal = signals.next() => {
            let name = signals::name(signal);
            say::line(format_args!("{name}: no longer waiting for lease {:?}", args.lease));
            return Ok(exit::of_signal(signal));
        }
    };
    hold(args, place, &lease, signals).await
    // Here the lease is dropped and so given back: nothing of the command lives any more.
}

async fn hold(args: &Run, place: &Place, lease: &Lease, signals: &mut Signals) -> Result<u8, Failure> {
    // Before the command can be stopped from the keyboard, and we with it.
    let mut suspensions = Signals::listen(&[Signal::TSTP]).map_err(|error| no_signals(&error))?;
    // Not to be told of deaths, but so that the dead wait for us: where SIGCHLD is ignored they don't.
    let _deaths = Signals::listen(&[Signal::CHILD]).map_err(|error| no_signals(&error))?;
    let liveness = tokio::select! {
        liveness = place.liveness() => liveness?,
        signal = signals.next() => {
            say::line(format_args!("{}: nothing was started", signals::name(signal)));
            return Ok(exit::of_signal(signal));
        }
    };
    let setup = Setup {
        hold: Hold::Lease(lease),
        command: &args.command,
        variables: vec![(LEASE_VARIABLE, args.lease.clone())],
        surroundings: Surroundings::Ours,
        liveness,
        terms: Terms { on_lost: args.on_lost, grace: args.grace, max_hold: args.max_hold },
        told: None,
    };
    let mut supervisor = Supervisor::start(setup).map_err(|error| no_guardian(&error))?;
    supervisor.watch(async || signals.next().await, async || suspensions.next().await).await;
    Ok(match supervisor.finish().await? {
        End::Lost => exit::LOST,
        End::HeldTooLong => exit::MAX_HOLD,
        End::Ended(ending) => ending.code(),
    })
}

/// Why there was no command.
pub(crate) fn no_guardian(error: &io::Error) -> Failure {
    Failure::new(exit::INTERNAL, format!("the command's guardian could not be started: {error}"))
}

pub(crate) fn no_signals(error: &io::Error) -> Failure {
    Failure::new(exit::INTERNAL, format!("signals can't be received: {error}"))
}
