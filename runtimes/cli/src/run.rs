//! `tenure run`: a lease, a command under it, and their ends.

use std::io;

use rustix::process::Signal;
use tenure::{Lease, Tenure};

use crate::args::Run;
use crate::exit;
use crate::failure::Failure;
use crate::say;
use crate::signals::{self, Signals};
use crate::store::Place;
use crate::supervisor::Supervisor;
use crate::wait;

/// The variable in which the command finds its lease's name.
pub(crate) const LEASE_VARIABLE: &str = "TENURE_LEASE";
/// The variable in which the command finds its fencing token, a decimal number.
pub(crate) const TOKEN_VARIABLE: &str = "TENURE_TOKEN";
/// The variable in which the command finds the owner, as it stands in the store.
pub(crate) const OWNER_VARIABLE: &str = "TENURE_OWNER";

/// Signals that are meant for the command.
const FORWARDED: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];

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
    let suspensions = Signals::listen(&[Signal::TSTP]).map_err(|error| no_signals(&error))?;
    // Not to be told of deaths, but so that the dead wait for us: where SIGCHLD is ignored they don't.
    let _deaths = Signals::listen(&[Signal::CHILD]).map_err(|error| no_signals(&error))?;
    let liveness = tokio::select! {
        liveness = place.liveness() => liveness?,
        signal = signals.next() => {
            say::line(format_args!("{}: nothing was started", signals::name(signal)));
            return Ok(exit::of_signal(signal));
        }
    };
    let mut supervisor = Supervisor::start(args, lease, liveness).map_err(|error| {
        Failure::new(exit::INTERNAL, format!("the command's guardian could not be started: {error}"))
    })?;
    supervisor.watch(signals, suspensions).await;
    supervisor.finish().await
}

fn no_signals(error: &io::Error) -> Failure {
    Failure::new(exit::INTERNAL, format!("signals can't be received: {error}"))
}
