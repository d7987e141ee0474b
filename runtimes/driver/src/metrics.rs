//! Counts and durations for the recorder that the program installs with the crate `metrics`.
//!
//! Labels are words of closed sets, never names of leases or instances: what a recorder keeps for each set of labels
//! stays bounded, whatever the program does. The handles are made once, when a [`Tenure`](crate::Tenure) starts, by the
//! recorder that there is then. What has no label of its own is counted in [`Stats`] anyway, and passed on once per turn
//! of the driver: only what has changed.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, Unit};
use tenure_store::OperationKind;

use crate::stats::Stats;

/// What the guide and the recorder are told of a metric.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The label, and all that it may be.
    pub(crate) labels: &'static [(&'static str, &'static [&'static str])],
    pub(crate) about: &'static str,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// Of seconds.
    Histogram,
}

impl Definition {
    const fn counter(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Kind::Counter, labels: &[], about }
    }

    const fn gauge(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, labels: &[], about }
    }

    const fn seconds(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, labels: &[], about }
    }

    const fn by(mut self, labels: &'static [(&'static str, &'static [&'static str])]) -> Self {
        self.labels = labels;
        self
    }
}

type Words = &'static [&'static str];

/// A lease, or the claim of a tick.
const KINDS: Words = &["lease", "claim"];
const LOSSES: Words = &["expired", "not_yours", "abandoned", "other"];
const OUTCOMES: Words = &["released", "not_held", "expired", "other"];
const MISSES: Words =
    &["passed", "unread", "too_late", "superseded", "overlap", "refused", "given_back", "draining", "other"];
const DROPS: Words = &["rebalance", "drain", "removed", "ended", "other"];
const OPERATIONS: Words = &[
    "acquire",
    "renew",
    "release",
    "read_timer",
    "change_timer",
    "claim_tick",
    "renew_claim",
    "finish_tick",
    "heartbeat",
    "leave",
];

const ACQUIRED: Definition =
    Definition::counter("tenure_lease_acquired_total", "Leases and claims of ticks that were acquired.")
        .by(&[("kind", KINDS)]);
const LOST: Definition = Definition::counter("tenure_lease_lost_total", "Leases and claims that were lost.")
    .by(&[("kind", KINDS), ("reason", LOSSES)]);
const RELEASED: Definition =
    Definition::counter("tenure_lease_released_total", "Leases and claims that were given back.")
        .by(&[("kind", KINDS), ("outcome", OUTCOMES)]);
const WAIT: Definition =
    Definition::seconds("tenure_lease_wait_seconds", "From a candidacy to its grant.").by(&[("kind", KINDS)]);
const HOLD: Definition =
    Definition::seconds("tenure_lease_hold_seconds", "From a grant to its release or loss.")
        .by(&[("kind", KINDS)]);
const RENEWAL: Definition = Definition::seconds(
    "tenure_lease_renewal_seconds",
    "From a renewal that was due to its acknowledgement, with all that was tried in between.",
);
const LATENESS: Definition = Definition::seconds(
    "tenure_tick_lateness_seconds",
    "How late ticks were when they were delivered, or their runs began.",
);
const MISSED: Definition =
    Definition::counter("tenure_ticks_missed_total", "Ticks that were not delivered or run here.")
        .by(&[("reason", MISSES)]);
const DROPPED: Definition = Definition::counter(
    "tenure_workloads_dropped_total",
    "Workloads that ceased to belong to this instance.",
)
.by(&[("reason", DROPS)]);
const OPERATED: Definition = Definition::counter(
    "tenure_store_operations_total",
    "Operations of the store that are over, failed ones included.",
)
.by(&[("operation", OPERATIONS)]);
const FAILED: Definition = Definition::counter(
    "tenure_store_failures_total",
    "Operations of the store that failed, or were not answered.",
)
.by(&[("operation", OPERATIONS)]);
const LATENCY: Definition = Definition::seconds(
    "tenure_store_operation_seconds",
    "How long operations of the store took, queueing here and failures included.",
)
.by(&[("operation", OPERATIONS)]);

/// A counter, and where it is counted.
type Counted = (Definition, fn(&Stats) -> u64);

const COUNTED: &[Counted] = &[
    (Definition::counter("tenure_lease_renewed_total", "Renewals that were acknowledged."), |stats| {
        stats.renewed
    }),
    (
        Definition::counter(
            "tenure_lease_starved_total",
            "Renewals sent too late: the driver was kept from running.",
        ),
        |stats| stats.starved,
    ),
    (Definition::counter("tenure_ticks_delivered_total", "Ticks delivered to streams."), |stats| stats.ticks),
    (
        Definition::counter("tenure_runs_total", "Runs of workers and periodic jobs that were started."),
        |stats| stats.runs,
    ),
    (Definition::counter("tenure_runs_failed_total", "Runs that ended with an error or a panic."), |stats| {
        stats.failed_runs
    }),
    (Definition::counter("tenure_reports_lost_total", "Reports about runs that were given up."), |stats| {
        stats.lost_reports
    }),
    (
        Definition::counter(
            "tenure_workloads_assigned_total",
            "Workloads that came to belong to this instance.",
        ),
        |stats| stats.assigned,
    ),
    (
        Definition::counter(
            "tenure_store_regressed_total",
            "Grants given back because the store has lost its memory.",
        ),
        |stats| stats.regressed,
    ),
    (
        Definition::counter(
            "tenure_heartbeats_failed_total",
            "Heartbeats that failed, or were not answered.",
        ),
        |stats| stats.failed_heartbeats,
    ),
    (
        Definition::counter(
            "tenure_store_batches_total",
            "Requests that carried the operations of the store.",
        ),
        |stats| stats.batches,
    ),
    (
        Definition::counter(
            "tenure_store_abandoned_total",
            "Requests dropped long after everybody had given up on them.",
        ),
        |stats| stats.abandoned_requests,
    ),
    (
        Definition::counter("tenure_replies_stale_total", "Replies that came too late to matter, or twice."),
        |stats| stats.stale_replies,
    ),
    (
        Definition::counter(
            "tenure_clock_backwards_total",
            "Times that the clock was seen to run backwards.",
        ),
        |stats| stats.clock_backwards,
    ),
];

/// A gauge, and where it is read.
type Read = (Definition, fn(&Stats) -> usize);

const READ: &[Read] = &[
    (Definition::gauge("tenure_leases_held", "Leases and claims that are held now."), |stats| stats.held),
    (
        Definition::gauge("tenure_members", "Members of the fleet as last heard, this instance included."),
        |stats| stats.members,
    ),
    (
        Definition::gauge("tenure_workers", "Workers that have not ended, those of workloads included."),
        |stats| stats.workers,
    ),
    (Definition::gauge("tenure_store_in_flight", "Requests to the store on their way or queued."), |stats| {
        stats.in_flight
    }),
];

const LABELLED: &[Definition] =
    &[ACQUIRED, LOST, RELEASED, WAIT, HOLD, RENEWAL, LATENESS, MISSED, DROPPED, OPERATED, FAILED, LATENCY];

/// All metrics, in the order of the guide.
pub(crate) fn defined() -> impl Iterator<Item = &'static Definition> {
    let counted = COUNTED.iter().map(|(definition, _)| definition);
    LABELLED.iter().chain(counted).chain(READ.iter().map(|(definition, _)| definition))
}

/// A handle for each word of a label, or for each pair of two.
struct By<H>(Vec<(Words2, H)>);

type Words2 = (&'static str, &'static str);

impl<H> By<H> {
    fn new(definition: &Definition, register: impl Fn(&'static str, Vec<Label>) -> H) -> Self {
        let [first, rest @ ..] = definition.labels else {
            return Self(vec![(("", ""), register(definition.name, Vec::new()))]);
        };
        let mut handles = Vec::new();
        for word in first.1 {
            let label = Label::from_static_parts(first.0, word);
            match rest {
                [] => handles.push(((*word, ""), register(definition.name, vec![label]))),
                [second, ..] => handles.extend(second.1.iter().map(|other| {
                    let labels = vec![label.clone(), Label::from_static_parts(second.0, other)];
                    ((*word, *other), register(definition.name, labels))
                })),
            }
        }
        Self(handles)
    }

    /// There are a dozen at most: no map is faster.
    fn of(&self, first: &str, second: &str) -> Option<&H> {
        let found = self.0.iter().find(|((one, other), _)| *one == first && *other == second);
        debug_assert!(found.is_some(), "{first} {second} is no word of this label");
        found.map(|(_, handle)| handle)
    }
}

impl By<Counter> {
    fn counters(definition: &Definition) -> Self {
        Self::new(definition, |name, labels| metrics::counter!(name, labels))
    }

    fn add(&self, first: &str, second: &str, count: u64) {
        if count > 0
            && let Some(counter) = self.of(first, second)
        {
            counter.increment(count);
        }
    }
}

impl By<Histogram> {
    fn histograms(definition: &Definition) -> Self {
        Self::new(definition, |name, labels| metrics::histogram!(name, labels))
    }

    fn record(&self, word: &str, duration: Duration) {
        if let Some(histogram) = self.of(word, "") {
            histogram.record(duration);
        }
    }
}

/// The handles of one driver.
pub(crate) struct Metrics {
    acquired: By<Counter>,
    lost: By<Counter>,
    released: By<Counter>,
    wait: By<Histogram>,
    hold: By<Histogram>,
    renewal: By<Histogram>,
    lateness: By<Histogram>,
    missed: By<Counter>,
    dropped: By<Counter>,
    operated: By<Counter>,
    failed: By<Counter>,
    latency: By<Histogram>,
    counted: Vec<Counter>,
    read: Vec<Gauge>,
    /// What was passed on.
    published: Stats,
}

const fn kind(is_lease: bool) -> &'static str {
    if is_lease { "lease" } else { "claim" }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        for Definition { name, kind, about, .. } in defined() {
            match kind {
                Kind::Counter => metrics::describe_counter!(*name, *about),
                Kind::Gauge => metrics::describe_gauge!(*name, *about),
                Kind::Histogram => metrics::describe_histogram!(*name, Unit::Seconds, *about),
            }
        }
        Self {
            acquired: By::counters(&ACQUIRED),
            lost: By::counters(&LOST),
            released: By::counters(&RELEASED),
            wait: By::histograms(&WAIT),
            hold: By::histograms(&HOLD),
            renewal: By::histograms(&RENEWAL),
            lateness: By::histograms(&LATENESS),
            missed: By::counters(&MISSED),
            dropped: By::counters(&DROPPED),
            operated: By::counters(&OPERATED),
            failed: By::counters(&FAILED),
            latency: By::histograms(&LATENCY),
            counted: COUNTED.iter().map(|(definition, _)| metrics::counter!(definition.name)).collect(),
            read: READ.iter().map(|(definition, _)| metrics::gauge!(definition.name)).collect(),
            published: Stats::default(),
        }
    }

    pub(crate) fn acquired(&self, is_lease: bool, waited: Duration) {
        self.acquired.add(kind(is_lease), "", 1);
        self.wait.record(kind(is_lease), waited);
    }

    pub(crate) fn renewed(&self, took: Duration) {
        self.renewal.record("", took);
    }

    pub(crate) fn released(&self, is_lease: bool, outcome: &str, held: Duration) {
        self.released.add(kind(is_lease), outcome, 1);
        self.hold.record(kind(is_lease), held);
    }

    pub(crate) fn lost(&self, is_lease: bool, reason: &str, held: Duration) {
        self.lost.add(kind(is_lease), reason, 1);
        self.hold.record(kind(is_lease), held);
    }

    pub(crate) fn ticked(&self, late: Duration) {
        self.lateness.record("", late);
    }

    pub(crate) fn missed(&self, reason: &str, count: u64) {
        self.missed.add(reason, "", count);
    }

    pub(crate) fn dropped(&self, reason: &str) {
        self.dropped.add(reason, "", 1);
    }

    pub(crate) fn answered(&self, kind: OperationKind, took: Duration, failed: bool) {
        self.operated.add(kind.name(), "", 1);
        self.failed.add(kind.name(), "", failed.into());
        self.latency.record(kind.name(), took);
    }

    /// Passes on what has changed. Gauges are changed by what was added or taken away, since several drivers of one
    /// process share them.
    pub(crate) fn publish(&mut self, stats: &Stats) {
        let before = std::mem::replace(&mut self.published, *stats);
        for ((_, count), counter) in COUNTED.iter().zip(&self.counted) {
            let more = count(stats).saturating_sub(count(&before));
            if more > 0 {
                counter.increment(more);
            }
        }
        for ((_, read), gauge) in READ.iter().zip(&self.read) {
            let (was, is) = (read(&before), read(stats));
            if is > was {
                gauge.increment((is - was) as f64);
            } else if was > is {
                gauge.decrement((was - is) as f64);
            }
        }
    }

    /// The driver ends: what it had is not there any more.
    pub(crate) fn end(&mut self) {
        let mut stats = self.published;
        (stats.held, stats.members, stats.workers, stats.in_flight) = (0, 0, 0, 0);
        self.publish(&stats);
    }
}
