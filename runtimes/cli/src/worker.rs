//! `tenure worker`: a command for each workload that belongs to this process, of those that the fleet shares out.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use futures::future::join_all;
use rustix::process::Signal;
use tenure::{
    AnyAssigner, Balanced, Coordinator, CoordinatorSetup, Ctx, LeaseName, Primary, Rebalance, Rendezvous,
    RequestError, Tenure,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::args::{self, Assign, OnRebalance, Worker};
use crate::exit;
use crate::failure::Failure;
use crate::run::{FORWARDED, LEASE_VARIABLE, no_signals};
use crate::say;
use crate::service::{Command, Service, Words, drain_timeout};
use crate::signals::Signals;
use crate::store::Place;
use crate::task::{Task, hand_over};
use crate::workloads;

/// The variable in which the command finds its workload's name.
const WORKLOAD_VARIABLE: &str = "TENURE_WORKLOAD";
/// The variable in which the command finds the name of the instance.
const INSTANCE_VARIABLE: &str = "TENURE_INSTANCE";
/// What stands for the workload's name in an argument.
const PLACEHOLDER: &[u8] = b"{workload}";

/// Runs commands for workloads, until a signal asks for the end; returns the exit code.
pub(crate) async fn worker(args: &Worker, place: &Place, verbose: u8) -> Result<u8, Failure> {
    let reloads = args.from.as_deref().is_some_and(workloads::is_file);
    let asks: Vec<Signal> =
        FORWARDED.into_iter().filter(|signal| !(reloads && *signal == Signal::HUP)).collect();
    let mut signals = Signals::listen(&asks).map_err(|error| no_signals(&error))?;
    let hangups = Signals::listen(if reloads { &[Signal::HUP] } else { &[] });
    let hangups = hangups.map_err(|error| no_signals(&error))?;
    // Not to be told of deaths, but so that the dead wait for us: where SIGCHLD is ignored they don't.
    let _deaths = Signals::listen(&[Signal::CHILD]).map_err(|error| no_signals(&error))?;

    let from_file = match &args.from {
        Some(from) => tokio::select! {
            names = workloads::read_apart(from) => names?,
            signal = signals.next() => return Ok(exit::of_signal(signal)),
        },
        None => Vec::new(),
    };
    let names = with_given(args, from_file);
    let tenure = place.start_as(&args.membership)?;
    // The driver bounds the number of runs: one for each workload.
    let (sender, tasks) = unbounded_channel();
    let result = match setup(args, &tenure, &names, sender).start() {
        Ok(coordinator) => {
            if verbose > 0 {
                let (instance, store) = (tenure.identity().instance(), place.name());
                say::line(format_args!(
                    "instance {instance:?} shares {} workload(s) with all processes that have the same ones (store {store})",
                    names.len()
                ));
            }
            tokio::select! {
                result = serve(args, place, &tenure, &coordinator, tasks, &mut signals) => result,
                never = reload(args, &coordinator, hangups) => match never {},
            }
        }
        Err(error) => Err(error.into()),
    };
    // Gives back what is left to give back, within its budget. The heartbeat ends last.
    if let Err(held) = tenure.shutdown().await {
        say::line(format_args!("{held}"));
    }
    result.map_err(|failure| failure.at(place.name()))
}

/// All workloads: those of the file, and those of the command line.
fn with_given(args: &Worker, mut names: Vec<LeaseName>) -> Vec<LeaseName> {
    names.extend(args.workload.iter().cloned());
    names.sort();
    names.dedup();
    names
}

fn setup(
    args: &Worker,
    tenure: &Tenure,
    names: &[LeaseName],
    tasks: UnboundedSender<Task>,
) -> CoordinatorSetup {
    let assigner: AnyAssigner = match args.assign {
        Assign::Rendezvous => Rendezvous::new().into(),
        Assign::RendezvousUnbounded => Rendezvous::unbounded().into(),
        Assign::Balanced => Balanced.into(),
        Assign::Primary => Primary.into(),
    };
    tenure
        .coordinate(names.iter().map(LeaseName::as_str), move |ctx| hand_over(ctx, &tasks))
        .assign(assigner)
        .hold_down(args.hold_down)
        .on_rebalance(match args.on_rebalance {
            OnRebalance::Stop => Rebalance::Stop,
            OnRebalance::Drain => Rebalance::Drain,
        })
        .restart(match args.restart {
            args::Restart::Always => tenure::Restart::Always,
            args::Restart::OnFailure => tenure::Restart::OnFailure,
            args::Restart::Never => tenure::Restart::Never,
        })
        .ttl(args.ttl)
        .drain_timeout(drain_timeout(args.grace))
}

/// Sees to the runs, until a signal asks for the end and nothing runs any more.
async fn serve(
    args: &Worker,
    place: &Place,
    tenure: &Tenure,
    coordinator: &Coordinator,
    tasks: UnboundedReceiver<Task>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let words =
        Words { ceases: "no workload is taken".to_owned(), resumes: "workloads are taken again".to_owned() };
    let command = |ctx: &Ctx| command(args, tenure, ctx);
    let service = Service::new(place, tenure, args.grace, words, &command);
    let ended = async {
        // Without a place among the members nothing is ever run.
        match tenure.join().await {
            Err(RequestError::Store(error)) => error.into(),
            Ok(()) | Err(_) => {
                coordinator.ended().await;
                Failure::new(exit::INTERNAL, "what drives the workloads has ended")
            }
        }
    };
    service.serve(tasks, signals, ended).await
}

/// Reads the file again at each SIGHUP.
async fn reload(args: &Worker, coordinator: &Coordinator, mut hangups: Signals) -> Infallible {
    let Some(from) = &args.from else { return pending().await };
    loop {
        let _hangup = hangups.next().await;
        let names = match workloads::read_apart(from).await {
            Ok(names) => with_given(args, names),
            Err(failure) => {
                say::line(format_args!("SIGHUP: the workloads stay as they are: {}", failure.message));
                continue;
            }
        };
        match change(coordinator, &names).await {
            Ok((0, 0)) => say::line(format_args!("SIGHUP: no workload has changed, of {}", names.len())),
            Ok((added, removed)) => say::line(format_args!(
                "SIGHUP: {} workload(s): {added} added, {removed} removed",
                names.len()
            )),
            // Whoever waits for the end is told.
            Err(_closed) => return pending().await,
        }
    }
}

/// Has these workloads shared out from now on, in place of those before. Tells how many were added and removed.
async fn change(coordinator: &Coordinator, names: &[LeaseName]) -> Result<(usize, usize), RequestError> {
    let before: BTreeSet<LeaseName> = coordinator.workloads().into_iter().collect();
    let after: BTreeSet<LeaseName> = names.iter().cloned().collect();
    // All are asked for before any is waited for, so that they are one change for the others.
    let (added, removed) = tokio::join!(
        join_all(after.difference(&before).map(|name| coordinator.add(name.as_str()))),
        join_all(before.difference(&after).map(|name| coordinator.remove(name.as_str()))),
    );
    let count =
        |changed: Vec<Result<bool, RequestError>>| changed.into_iter().map(|one| one.map(usize::from)).sum();
    let (added, removed): (Result<usize, _>, Result<usize, _>) = (count(added), count(removed));
    Ok((added?, removed?))
}

/// What is run for a workload.
fn command(args: &Worker, tenure: &Tenure, ctx: &Ctx) -> Command {
    let name = ctx.name();
    Command {
        line: args.command.iter().map(|argument| with_name(argument, name)).collect(),
        variables: vec![
            (WORKLOAD_VARIABLE, name.to_owned()),
            (LEASE_VARIABLE, name.to_owned()),
            (INSTANCE_VARIABLE, tenure.identity().instance().to_owned()),
        ],
    }
}

/// An argument with the name in each of its places.
fn with_name(argument: &OsStr, name: &str) -> OsString {
    let mut rest = argument.as_bytes();
    let mut whole = Vec::with_capacity(rest.len());
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(PLACEHOLDER) {
            whole.extend_from_slice(name.as_bytes());
            rest = after;
        } else {
            whole.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_takes_each_of_its_places_in_an_argument() {
        let with = |argument: &[u8]| with_name(OsStr::from_bytes(argument), "a/{workload}").into_vec();
        assert_eq!(with(b"--of={workload},{workload}!"), b"--of=a/{workload},a/{workload}!");
        for argument in [&b""[..], b"{work}", b"{workload", b"$WORKLOAD", b"\xff{{workloaD}"] {
            assert_eq!(with(argument), argument);
        }
    }
}
