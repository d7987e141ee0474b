//! What a recorder of the crate `metrics` gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};

use super::*;
use crate::metrics::{Kind, Metrics, defined};
use crate::stats::Stats;
use tenure_store::OperationKind;

/// Keeps each series by its name and labels.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Series>>);

#[derive(Default)]
struct Series {
    values: BTreeMap<String, Vec<f64>>,
    described: BTreeMap<String, (Option<Unit>, String)>,
}

struct Cell {
    kept: Kept,
    key: String,
}

impl Kept {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let key = format!("{}{{{}}}", key.name(), labels.join(","));
        self.0.lock().unwrap().values.entry(key.clone()).or_default();
        Arc::new(Cell { kept: self.clone(), key })
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), (unit, about.to_string()));
    }

    fn series(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().values.keys().cloned().collect()
    }

    fn values(&self, key: &str) -> Vec<f64> {
        let series = self.0.lock().unwrap();
        series.values.get(key).unwrap_or_else(|| panic!("no series {key}")).clone()
    }

    /// Of a counter or a gauge: where it stands. Of a histogram: the sum.
    fn sum(&self, key: &str) -> f64 {
        self.values(key).iter().sum()
    }

    /// The metrics, without labels, that have moved.
    fn moved(&self) -> BTreeSet<String> {
        let series = self.0.lock().unwrap();
        let moved = series.values.iter().filter(|(_, values)| !values.is_empty());
        moved.map(|(key, _)| key.split('{').next().unwrap().to_owned()).collect()
    }
}

impl Cell {
    fn push(&self, value: f64) {
        self.kept.0.lock().unwrap().values.get_mut(&self.key).unwrap().push(value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.push(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("several drivers of a process would be in each other's way");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.push(value);
    }

    fn decrement(&self, value: f64) {
        self.push(-value);
    }

    fn set(&self, _: f64) {
        panic!("several drivers of a process would be in each other's way");
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(name, unit, about);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(name, unit, about);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(name, unit, about);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

/// A world whose processes are recorded.
fn recorded(test: impl FnOnce(&World, &Kept)) -> Kept {
    let kept = Kept::default();
    with_local_recorder(&kept, || test(&World::new(), &kept));
    kept
}

#[test]
fn a_lease_that_passes_on_is_counted_and_measured() {
    recorded(|world, kept| {
        let (one, other) = (world.tenure(), world.tenure());
        let lease = world.acquire(&one, "a");
        let waiting = spawn(&world.runtime, other.acquire("a").into_future());
        world.runtime.advance(20 * SECOND);
        assert_eq!(kept.sum("tenure_leases_held{}"), 1.0);
        world.runtime.block_on(lease.release()).unwrap();
        world.settle();
        assert!(waiting.lock().unwrap().is_some());
        assert_eq!(kept.sum("tenure_lease_acquired_total{kind=lease}"), 2.0);
        assert_eq!(kept.sum("tenure_lease_released_total{kind=lease,outcome=released}"), 1.0);
        assert_eq!(kept.values("tenure_lease_wait_seconds{kind=lease}"), [0.0, 20.0]);
        assert_eq!(kept.values("tenure_lease_hold_seconds{kind=lease}"), [20.0]);
        let renewed = one.stats().renewed as f64;
        assert_eq!(kept.sum("tenure_lease_renewed_total{}"), renewed);
        assert_eq!(kept.values("tenure_lease_renewal_seconds{}").len() as f64, renewed);
        assert_eq!(kept.sum("tenure_store_operations_total{operation=renew}"), renewed);
        assert_eq!(kept.values("tenure_store_operation_seconds{operation=renew}").len() as f64, renewed);
    });
}

#[test]
fn losses_failures_and_starvation_are_counted_by_reason() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        let _evicted = world.acquire(&tenure, "evicted");
        world.runtime.block_on(tenure.evict("evicted", tenure_store::Eviction::Delete)).unwrap();
        world.runtime.advance(TTL);
        let _expired = world.acquire(&tenure, "expired");
        world.runtime.block(TTL / 2);
        world.settle();
        assert_eq!(kept.sum("tenure_lease_starved_total{}"), 1.0);
        world.plan.all(Fault::Fail);
        world.runtime.advance(2 * TTL);
        assert_eq!(kept.sum("tenure_lease_lost_total{kind=lease,reason=not_yours}"), 1.0);
        assert_eq!(kept.sum("tenure_lease_lost_total{kind=lease,reason=expired}"), 1.0);
        assert_eq!(kept.values("tenure_lease_hold_seconds{kind=lease}").len(), 2);
        let failures = tenure.stats().failures as f64;
        let failed = |what| kept.sum(&format!("tenure_store_failures_total{{operation={what}}}"));
        assert!(failures > 3.0);
        assert_eq!(["acquire", "renew", "release"].map(failed).iter().sum::<f64>(), failures);
    });
}

#[test]
fn the_time_that_the_store_takes_is_measured() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        world.plan.all(Fault::Slow(SECOND));
        let _lease = world.acquire(&tenure, "a");
        world.runtime.advance(TTL);
        let acquired = kept.values("tenure_store_operation_seconds{operation=acquire}");
        assert_eq!(acquired, [1.0]);
        let renewed = kept.values("tenure_lease_renewal_seconds{}");
        assert!(!renewed.is_empty() && renewed.iter().all(|took| *took == 1.0), "{renewed:?}");
    });
}

#[test]
fn ticks_and_runs_are_counted() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        let _timer = tenure.timer("t", SECOND).start().unwrap();
        let _job = tenure.periodic("p", SECOND, |_| async { Err::<(), _>("no luck") }).start().unwrap();
        let _long = tenure.periodic("l", SECOND, |_| std::future::pending::<()>()).start().unwrap();
        world.runtime.advance(10 * SECOND);
        let stats = tenure.stats();
        assert_eq!(kept.sum("tenure_ticks_delivered_total{}"), stats.ticks as f64);
        assert_eq!(kept.sum("tenure_runs_total{}"), stats.runs as f64);
        assert_eq!(kept.sum("tenure_runs_failed_total{}"), stats.failed_runs as f64);
        assert!(stats.ticks > 5 && stats.failed_runs > 5, "{stats:?}");
        assert_eq!(kept.values("tenure_tick_lateness_seconds{}").len() as u64, stats.ticks + stats.claims);
        let missed = |why| kept.sum(&format!("tenure_ticks_missed_total{{reason={why}}}"));
        assert!(missed("overlap") > 5.0 && missed("unread") > 5.0);
        world.runtime.block(10 * SECOND);
        world.runtime.advance(SECOND);
        assert!(missed("passed") > 5.0);
        let reasons = ["passed", "unread", "too_late", "superseded", "overlap", "refused", "given_back"];
        assert_eq!(reasons.map(missed).iter().sum::<f64>(), tenure.stats().skipped_ticks as f64);
        assert!(kept.sum("tenure_lease_acquired_total{kind=claim}") > 5.0);
        assert!(!kept.values("tenure_lease_hold_seconds{kind=claim}").is_empty());
        world.plan.reports(Fault::Refuse);
        world.runtime.advance(TTL);
        assert!(kept.sum("tenure_reports_lost_total{}") >= 1.0);
    });
}

#[test]
fn moves_of_workloads_and_the_members_are_told() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        let works = sharing::Works::default();
        let _coordinator = sharing::dutiful(&tenure, "a", &works, 3).start().unwrap();
        world.settle();
        assert_eq!(kept.sum("tenure_workloads_assigned_total{}"), 3.0);
        assert_eq!((kept.sum("tenure_members{}"), kept.sum("tenure_workers{}")), (1.0, 3.0));
        world.plan.only("heartbeat", Fault::Fail);
        world.runtime.advance(TTL);
        assert!(kept.sum("tenure_heartbeats_failed_total{}") >= 1.0);
        world.plan.heal();
        world.runtime.block_on(tenure.drain()).unwrap();
        assert_eq!(kept.sum("tenure_workloads_dropped_total{reason=drain}"), 3.0);
        world.runtime.block_on(tenure.shutdown()).unwrap();
        world.settle();
        assert_eq!((kept.sum("tenure_members{}"), kept.sum("tenure_workers{}")), (0.0, 0.0));
    });
}

#[test]
fn gauges_of_a_driver_that_is_dropped_are_taken_back() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        world.runtime.block_on(tenure.join()).unwrap();
        let _lease = world.acquire(&tenure, "a");
        assert_eq!((kept.sum("tenure_leases_held{}"), kept.sum("tenure_members{}")), (1.0, 1.0));
        world.runtime.shut_down();
        for gauge in defined().filter(|definition| definition.kind == Kind::Gauge) {
            assert_eq!(kept.sum(&format!("{}{{}}", gauge.name)), 0.0, "{}", gauge.name);
        }
    });
}

#[test]
fn requests_that_are_given_up_are_counted() {
    recorded(|world, kept| {
        let tenure = world.tenure();
        world.plan.all(Fault::Hang);
        let _waiting = spawn(&world.runtime, tenure.acquire("a").into_future());
        world.runtime.advance(SECOND);
        assert!(kept.sum("tenure_store_in_flight{}") >= 1.0);
        world.runtime.advance(60 * SECOND);
        assert!(kept.sum("tenure_store_abandoned_total{}") >= 1.0);
        assert_eq!(kept.sum("tenure_store_batches_total{}"), tenure.stats().batches as f64);
    });
}

/// Each by the count that it stands for: some hardly ever move.
#[test]
fn every_count_is_passed_on_once() {
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        let mut metrics = Metrics::new();
        let stats = Stats {
            stale_replies: 3,
            clock_backwards: 4,
            renewed: 5,
            starved: 6,
            ticks: 7,
            runs: 8,
            failed_runs: 9,
            lost_reports: 10,
            assigned: 11,
            failed_heartbeats: 12,
            batches: 13,
            abandoned_requests: 14,
            regressed: 15,
            ..Stats::default()
        };
        metrics.publish(&stats);
        metrics.publish(&stats);
    });
    for (name, value) in [
        ("replies_stale_total", 3.0),
        ("clock_backwards_total", 4.0),
        ("lease_renewed_total", 5.0),
        ("lease_starved_total", 6.0),
        ("ticks_delivered_total", 7.0),
        ("runs_total", 8.0),
        ("runs_failed_total", 9.0),
        ("reports_lost_total", 10.0),
        ("workloads_assigned_total", 11.0),
        ("heartbeats_failed_total", 12.0),
        ("store_batches_total", 13.0),
        ("store_abandoned_total", 14.0),
        ("store_regressed_total", 15.0),
    ] {
        assert_eq!(kept.values(&format!("tenure_{name}{{}}")), [value], "{name}");
    }
    let counters = defined().filter(|definition| definition.kind == Kind::Counter);
    assert_eq!(counters.filter(|definition| definition.labels.is_empty()).count(), kept.moved().len());
}

#[test]
fn labels_are_of_closed_sets_whatever_the_names_and_each_metric_is_described() {
    let kept = recorded(|world, kept| {
        let tenure = world.tenure();
        let before = kept.series();
        let _leases: Vec<_> = (0..200).map(|n| world.acquire(&tenure, &format!("lease-{n}"))).collect();
        let jobs =
            (0..20).map(|n| tenure.periodic(format!("job-{n}"), SECOND, |_| async {}).start().unwrap());
        let _jobs: Vec<_> = jobs.collect();
        world.runtime.advance(TTL);
        let other = world.builder().instance("another").store(world.faulty()).start().unwrap();
        world.runtime.block_on(other.join()).unwrap();
        world.plan.all(Fault::Fail);
        world.runtime.advance(2 * TTL);
        assert_eq!(kept.series(), before, "a series came of a name");
    });
    let mut expected = BTreeSet::new();
    for definition in defined() {
        let mut labels = vec![String::new()];
        for (label, words) in definition.labels {
            let with = |before: &String| {
                let comma = if before.is_empty() { "" } else { "," };
                words.iter().map(|word| format!("{before}{comma}{label}={word}")).collect::<Vec<_>>()
            };
            labels = labels.iter().flat_map(with).collect();
        }
        expected.extend(labels.iter().map(|labels| format!("{}{{{labels}}}", definition.name)));
    }
    assert_eq!(kept.series(), expected);
    assert!(expected.len() < 150, "{} series", expected.len());
    let described = kept.0.lock().unwrap().described.clone();
    for definition in defined() {
        let (unit, about) = &described[definition.name];
        assert_eq!(
            (about.as_str(), *unit == Some(Unit::Seconds)),
            (definition.about, definition.kind == Kind::Histogram)
        );
        let (kind, name) = (definition.kind, definition.name);
        assert!(name.starts_with("tenure_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_seconds"), kind == Kind::Histogram, "{name}");
    }
}

#[test]
fn every_operation_has_its_label() {
    let kept = Kept::default();
    let operations = [
        OperationKind::Acquire,
        OperationKind::Renew,
        OperationKind::Release,
        OperationKind::ReadTimer,
        OperationKind::ChangeTimer,
        OperationKind::ClaimTick,
        OperationKind::RenewClaim,
        OperationKind::FinishTick,
        OperationKind::Heartbeat,
        OperationKind::Leave,
    ];
    with_local_recorder(&kept, || {
        let metrics = Metrics::new();
        operations.into_iter().for_each(|what| metrics.answered(what, SECOND, true));
    });
    for what in operations {
        assert_eq!(kept.sum(&format!("tenure_store_failures_total{{operation={}}}", what.name())), 1.0);
    }
}
