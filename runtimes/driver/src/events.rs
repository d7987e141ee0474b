//! What is told in the log: every line, in one table.
//!
//! The name of an event travels in the field `event`, since fields are what every subscriber shows; the name in the
//! metadata of a line is shown by neither the layer of lines nor that of JSON. Trouble, which is told through
//! [`Trouble`](crate::trouble::Trouble), has its names there. Nothing else of this crate writes to the log.

use std::fmt;

use tenure_core::{DueTick, TimerName};

use crate::hold::Hold;
use crate::subject::Subject;

/// What users filter by. Names and fields of events are stable under it, texts are not.
pub(crate) const TARGET: &str = "tenure";
/// The target of `lease.lost` alone, for programs that tell of it by themselves.
pub(crate) const LOST_TARGET: &str = "tenure::lost";

/// What the guide says of an event.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) level: tracing::Level,
    pub(crate) target: &'static str,
    pub(crate) fields: Vec<&'static str>,
    pub(crate) about: String,
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $level:ident $function:ident = $name:literal
            $([$subject:ident])? { $($field:ident: $type:ty),* } $(($text:ident))? $($fixed:literal)?;
    )+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) fn $function(
                $($subject: &Subject,)? $($field: $type,)* $($text: impl fmt::Display)?
            ) {
                tracing::$level!(
                    target: TARGET,
                    event = $name,
                    $(lease = $subject.lease(), timer = $subject.timer(), tick = $subject.tick(),)?
                    $($field,)*
                    "{}", $($text)? $($fixed)?
                );
            }
        )+

        /// The table above.
        #[cfg(test)]
        pub(crate) fn defined() -> Vec<Definition> {
            vec![$({
                let about = !stringify!($($subject)?).is_empty();
                let mut fields = if about { vec!["lease", "timer", "tick"] } else { Vec::new() };
                fields.extend::<[&str; _]>([$(stringify!($field)),*]);
                let level = stringify!($level).parse().expect("it is a level");
                Definition { name: $name, level, target: TARGET, fields, about: concat!($($doc),+).trim().into() }
            }),+]
        }
    };
}

// Of `lease`, `timer` and `tick` a line has those that there are.
events! {
    /// A lease was acquired.
    info lease_acquired = "lease.acquired" { lease: &str, token: u64 } "lease acquired";
    /// A candidate waits: somebody else has the lease or the tick, `token` is theirs.
    debug lease_waiting = "lease.waiting" [subject] { token: Option<u64> } "waiting: it is held";
    /// A candidate gives up, and was told why.
    debug lease_not_acquired = "lease.not_acquired" { lease: &str } (text);
    /// A renewal is sent.
    trace lease_renewing = "lease.renewing" [subject] { token: u64 } "renewing";
    /// A renewal was acknowledged.
    debug lease_renewed = "lease.renewed" [subject] { token: u64 } "renewed";
    /// The work is asked to end (`how` is `ask`), or has to (`hard`).
    debug lease_stopping = "lease.stopping" [subject] { token: u64, how: &str, reason: &str } "stopping";
    /// A lease was given back; `outcome` is `released`, `not_held`, or `expired`: the store never answered.
    info lease_released = "lease.released" { lease: &str, outcome: &str } "lease released";

    /// A tick was claimed.
    debug claim_granted = "claim.granted" [subject] { token: u64 } "claimed";
    /// A tick was not claimed: another instance has it, or it is not to be run.
    debug claim_refused = "claim.refused" [subject] {} (text);
    /// The claim of a tick was ended.
    debug claim_ended = "claim.ended" [subject] { outcome: &str } "claim ended";

    /// The work of a worker is to start.
    info work_started = "work.started" { lease: Option<&str>, token: u64 } "work is to start";
    /// It has ended without an error; `outcome` is `completed`, `failed`, `stopped` or `not_started`.
    info work_ended = "work.ended" { lease: Option<&str>, outcome: &str } "work has ended";
    /// A worker rests before it campaigns again.
    debug work_resting = "work.resting" { lease: Option<&str>, failures: u32 } (text);
    /// A run of a periodic job is to start.
    debug run_started = "run.started" [subject] { token: u64 } "a run is to start";
    /// It has ended without an error; `outcome` as with `work.ended`.
    info run_ended = "run.ended" [subject] { outcome: &str } (text);
    /// The record of a run could not be written yet.
    debug record_retried = "record.retried" { job: Option<&str> } (text);

    /// A tick is due, and given to its stream.
    trace tick_delivered = "tick.delivered" [subject] {} "tick";
    /// A tick is not run here because this instance drains.
    debug tick_passed = "tick.passed" [subject] {} (text);
    /// Another instance has changed the schedule, and this one follows.
    info schedule_changed = "timer.schedule_changed" { timer: Option<&str> } (text);

    /// This instance is listed among the members of the fleet.
    info instance_joined = "instance.joined" { instance: &str } "joined the fleet";
    /// The members have changed; `members` is their number.
    info members_changed = "instance.members_changed" { members: usize } "the members have changed";
    /// A heartbeat is sent.
    trace heartbeat = "instance.heartbeat" { sequence: u64, draining: bool } "heartbeat";
    /// This instance has left the fleet.
    info instance_left = "instance.left" {} "left the fleet";
    /// The process was asked to end by a signal.
    info asked_to_end = "instance.interrupted" {} (text);
    /// It was asked again, and work is stopped hard.
    warn asked_again = "instance.interrupted_again" {} "asked to end again: work is stopped";
    /// Signals can't be listened for: they end the process at once.
    warn no_signals = "instance.no_signals" {} (text);
    /// This instance drains; `reason` is `program` or `operator`.
    info instance_draining = "instance.draining" { reason: &str } (text);
    /// It drains because the program shuts down.
    debug instance_ending = "instance.ending" {} (text);
    /// The drain was taken back.
    info instance_resumed = "instance.resumed" {} "the drain was taken back: work is taken again";
    /// The drain is over: nothing is held any more.
    info instance_drained = "instance.drained" {} "drained: nothing is held any more";
    /// The drain is over, and work was stopped that does not end.
    warn instance_stuck = "instance.stuck" {} (text);
    /// The shutdown is over, and something is still held.
    warn instance_still_held = "instance.still_held" {} (text);
    /// The runtime ended before everything was given back.
    warn instance_not_released = "instance.not_released" {} (text);
    /// Everything is given back, and the store is closed.
    debug instance_closed = "instance.closed" {} "everything is given back and closed";

    /// A workload belongs to this instance from now on.
    info workload_assigned = "workload.assigned" { lease: &str } "a workload belongs to this instance";
    /// A workload does not belong to it any more; `reason` is `rebalance`, `drain`, `removed` or `ended`.
    info workload_dropped = "workload.dropped" { lease: Option<&str>, reason: &str } (text);

    /// A worker, job, timer or coordinator was set up, and dropped before it was started.
    warn not_started = "setup.not_started" { what: &str } (text);

    /// A request to the store failed, and others tell whoever has to know.
    debug request_failed = "store.request_failed" [subject] { operation: &str } (text);
    /// The store gives no hints about a lease: candidates wait by its TTL.
    debug no_hints = "store.no_hints" { lease: &str } (text);
    /// A handle asked for what is not there any more.
    debug request_refused = "driver.refused" {} (text);
    /// The core says what this version does not know.
    debug unknown = "driver.unknown" {} (text);
}

/// The span of one run of work: what the work writes to the log carries it. Its level lets it pass every filter that
/// lets anything of this crate pass; it tells of no error.
pub(crate) fn run_span(hold: &Hold, run: Option<(&TimerName, &DueTick)>) -> tracing::Span {
    let subject = &hold.subject;
    let (timer, tick) = match run {
        Some((timer, due)) => (Some(timer.as_str()), Some(due.tick.n)),
        None => (subject.timer(), subject.tick()),
    };
    tracing::error_span!(
        target: TARGET,
        "tenure.run",
        lease = subject.lease(),
        timer,
        tick,
        token = hold.token.get(),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_else_writes_to_the_log() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![source];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    // Tests have work that writes to the log.
                    folders.extend(Some(path).filter(|path| !path.ends_with("tests")));
                    continue;
                }
                seen += 1;
                if ["events.rs", "trouble.rs"].contains(&path.file_name().unwrap().to_str().unwrap()) {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for level in ["error", "warn", "info", "debug", "trace", "event"] {
                    assert!(!text.contains(&format!("tracing::{level}!(")), "{path:?}: {level}");
                }
            }
        }
        assert!(seen > 40, "{seen} files");
    }
}
