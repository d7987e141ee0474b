//! What a program can see of itself: the guide's tables, the counts, and the span of each run.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::pending;
use std::sync::{LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::events::Definition;
use crate::{Losses, Releases};

const GUIDE: &str = "../../src/guide/observing.md";

/// All events, by name.
pub(super) fn events() -> &'static [Definition] {
    static EVENTS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
        let mut events = crate::events::defined();
        events.extend(crate::trouble::defined());
        events.sort_by_key(|definition| definition.name);
        events
    });
    &EVENTS
}

/// Whether the guide has this table, line by line.
pub(super) fn assert_in_guide(head: &str, table: &[String]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDE);
    let guide = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = guide.lines().skip_while(|line| *line != head).skip(2).collect();
    let lines: Vec<_> = lines.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert!(lines == table, "the table below {head:?} of {GUIDE} is to be:\n{}\n", table.join("\n"));
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a &'static str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[test]
fn the_guide_lists_every_event_with_its_level_and_fields() {
    let events = events();
    assert!(events.windows(2).all(|pair| pair[0].name != pair[1].name), "a name stands for two events");
    let row = |definition: &Definition| {
        let Definition { name, level, fields, about, .. } = definition;
        format!("| `{name}` | {} | {} | {about} |", level.to_string().to_lowercase(), quoted(fields))
    };
    let table: Vec<_> = events.iter().map(row).collect();
    assert_in_guide("| event | level | fields | when |", &table);
}

/// Few enough for no table in the code.
#[test]
fn the_guide_lists_the_events_of_the_stores() {
    for (adapter, least) in [("sqlite", 5), ("redis", 6), ("nats", 8)] {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guide = std::fs::read_to_string(root.join("src/guide/observing.md")).unwrap();
        let mut names = Vec::new();
        let sources = root.join("adapters").join(adapter).join("src");
        for file in std::fs::read_dir(sources).unwrap().map(Result::unwrap) {
            let Ok(source) = std::fs::read_to_string(file.path()) else { continue };
            for line in source.split("tracing::").skip(1).filter(|line| !line.starts_with(char::is_uppercase))
            {
                let level = line.split('!').next().unwrap();
                let name = line.split("event = \"").nth(1).and_then(|rest| rest.split('"').next());
                let name =
                    name.unwrap_or_else(|| panic!("{:?} has a line without a name: {line}", file.path()));
                let row = format!("| `{name}` | {level} |");
                assert!(guide.contains(&row), "the guide lacks {row}");
                names.push(name.to_owned());
            }
        }
        let own = names.iter().all(|name| name.starts_with(&format!("{adapter}.")));
        assert!(names.len() >= least && own, "{names:?}");
    }
}

#[cfg(feature = "metrics")]
#[test]
fn the_guide_lists_every_metric_with_its_labels() {
    use crate::metrics::{Kind, defined};

    let row = |definition: &crate::metrics::Definition| {
        let kind = match definition.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels = definition.labels.iter().map(|(label, words)| format!("`{label}`: {}", quoted(*words)));
        let labels = labels.collect::<Vec<_>>().join("; ");
        format!("| `{}` | {kind} | {labels} | {} |", definition.name, definition.about)
    };
    let table: Vec<_> = defined().map(row).collect();
    assert_in_guide("| metric | kind | labels | what |", &table);
}

#[test]
fn waits_holds_and_renewals_are_measured() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let waiting = spawn(&world.runtime, other.acquire("a").into_future());
    world.runtime.advance(20 * SECOND);
    assert_eq!(one.stats().holds.count, 0, "what is held is not over");
    world.runtime.block_on(lease.release()).unwrap();
    world.settle();
    assert!(waiting.lock().unwrap().is_some());
    let (one, other) = (one.stats(), other.stats());
    assert_eq!((one.waits.count, one.waits.longest), (1, Duration::ZERO));
    assert_eq!((one.holds.count, one.holds.total, one.holds.mean()), (1, 20 * SECOND, Some(20 * SECOND)));
    assert_eq!((other.waits.count, other.waits.total), (1, 20 * SECOND));
    assert_eq!(one.releases, Releases { confirmed: 1, ..Releases::default() });
    assert!(one.renewed >= 4 && one.renewals.count == one.renewed, "{one:?}");
    assert_eq!(one.renewals.longest, Duration::ZERO, "this store answers at once");
}

#[test]
fn a_renewal_that_is_tried_again_takes_from_the_first_attempt_to_the_acknowledgement() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.only("renew", Fault::Fail);
    // The first is due after 4.2 s.
    world.runtime.advance(7 * SECOND);
    world.plan.heal();
    world.runtime.advance(3 * SECOND);
    let stats = tenure.stats();
    assert!(lease.is_valid() && stats.failures >= 2, "{stats:?}");
    assert!(stats.renewals.longest >= 2 * SECOND && stats.renewals.longest < 6 * SECOND, "{stats:?}");
}

#[test]
fn losses_are_told_apart() {
    let world = World::new();
    let tenure = world.tenure();
    let _evicted = world.acquire(&tenure, "evicted");
    world.runtime.block_on(tenure.evict("evicted", tenure_store::Eviction::Delete)).unwrap();
    world.runtime.advance(TTL);
    assert_eq!(tenure.stats().losses, Losses { not_yours: 1, ..Losses::default() });
    let expired = world.acquire(&tenure, "expired");
    world.plan.all(Fault::Fail);
    world.runtime.block_on(expired.lost());
    world.runtime.advance(TTL);
    let stats = tenure.stats();
    assert_eq!(stats.losses, Losses { not_yours: 1, expired: 1, ..Losses::default() });
    assert_eq!((stats.lost, stats.holds.count), (2, 2));
    assert!(stats.holds.longest > 10 * SECOND && stats.holds.longest <= TTL, "{stats:?}");
}

#[test]
fn work_that_is_cut_short_at_the_fence_counts_as_a_loss_and_as_nothing_else() {
    // The store is away until what was lost is over, or comes back while there is something to give back.
    for away in [2 * TTL, TTL - 2 * SECOND] {
        for form in ["guard", "asked", "stopped", "run"] {
            logging::logged(|world, lines| {
                let tenure = world.tenure();
                let own = tenure.clone();
                let guarded = async move {
                    let lease = own.acquire("a").await.unwrap();
                    lease.run(pending::<()>()).await.unwrap_err();
                };
                let asked = |ctx: crate::Ctx| async move {
                    ctx.draining().await;
                };
                let _handle: Box<dyn Any> = match form {
                    "guard" => Box::new(spawn(&world.runtime, guarded)),
                    "asked" => Box::new(tenure.worker("a", asked).start().unwrap()),
                    "stopped" => Box::new(tenure.worker("a", |_| pending::<()>()).start().unwrap()),
                    _ => Box::new(tenure.periodic("a", SECOND, |_| pending::<()>()).start().unwrap()),
                };
                world.runtime.advance(2 * SECOND);
                assert_eq!(tenure.stats().held, 1, "{form}");
                world.plan.all(Fault::Fail);
                world.runtime.advance(away);
                let stats = tenure.stats();
                let losses = Losses { expired: 1, ..Losses::default() };
                assert_eq!((stats.lost, stats.losses, stats.released), (1, losses, 0), "{form}, {away:?}");
                // Of claims only losses are counted here.
                let leases = u64::from(form != "run");
                assert_eq!((stats.acquired, stats.holds.count), (leases, leases), "{form}, {away:?}");
                let warnings = lines.at(tracing::Level::WARN);
                let told = warnings
                    .iter()
                    .filter(|line| line.contains("is lost: no renewal was acknowledged in time"));
                assert_eq!(told.count(), 1, "{form}, {away:?}: {warnings:#?}");
                world.plan.heal();
                world.runtime.advance(5 * SECOND);
                let stats = tenure.stats();
                assert_eq!((stats.lost, stats.released), (1, 0), "{form}, {away:?}");
            });
        }
    }
}

#[test]
fn a_lease_that_is_found_lost_after_a_pause_is_not_counted_as_given_back_too() {
    let world = World::new();
    let tenure = world.tenure();
    let _worker = tenure.worker("a", |_| pending::<()>()).start().unwrap();
    world.settle();
    world.runtime.block(2 * TTL);
    world.runtime.advance(TTL);
    let stats = tenure.stats();
    assert_eq!((stats.acquired, stats.held, stats.lost, stats.released), (2, 1, 1, 0), "{stats:?}");
}

#[test]
fn a_store_that_lost_its_memory_is_told_and_counted() {
    logging::logged(|world, lines| {
        let tenure = world.tenure();
        drop(world.acquire(&tenure, "a"));
        world.settle();
        world.plan.only("acquire", Fault::Grant(5));
        let _worker = tenure.worker("a", |_| pending::<()>()).start().unwrap();
        world.runtime.advance(SECOND);
        assert!(tenure.stats().regressed >= 1 && tenure.stats().runs == 0, "{:?}", tenure.stats());
        let warnings = lines.at(tracing::Level::WARN);
        assert!(warnings[0].contains("the store has lost its memory"), "{warnings:#?}");
        assert!(warnings[0].contains("lease=\"a\" token=5"), "{warnings:#?}");
    });
}

#[test]
fn the_lateness_of_ticks_is_measured() {
    let world = World::new();
    let tenure = world.tenure();
    let _timer = tenure.timer("t", 10 * SECOND).start().unwrap();
    world.runtime.advance(11 * SECOND);
    let stats = tenure.stats();
    assert_eq!((stats.ticks, stats.lateness.count), (1, 1));
    assert!(stats.lateness.longest < SECOND, "{stats:?}");
    world.runtime.block(14 * SECOND);
    world.runtime.advance(SECOND);
    let stats = tenure.stats();
    assert_eq!((stats.ticks, stats.lateness.count), (2, 2));
    assert!(stats.lateness.longest > 3 * SECOND && stats.lateness.longest < 6 * SECOND, "{stats:?}");
}

/// Keeps what the work says, with the spans in which it does.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: BTreeMap<u64, String>,
    entered: Vec<u64>,
    told: Vec<String>,
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut seen = self.0.lock().unwrap();
        let id = seen.spans.len() as u64 + 1;
        seen.spans.insert(id, format!("{}{}", attributes.metadata().name(), fields.0));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() != "work" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut seen = self.0.lock().unwrap();
        let within = seen.entered.iter().map(|id| seen.spans[id].as_str()).collect::<Vec<_>>().join(" / ");
        seen.told.push(format!("{within}:{}", fields.0));
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        assert_eq!(self.0.lock().unwrap().entered.pop(), Some(id.into_u64()));
    }
}

/// Tells of itself when it is dropped.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        tracing::info!(target: "work", "dropped");
    }
}

#[test]
fn what_work_writes_to_the_log_carries_its_lease_token_and_tick() {
    LazyLock::force(&logging::SECOND_LISTENER);
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || {
        let world = World::new();
        let tenure = world.tenure();
        let work = |_| {
            tracing::info!(target: "work", "begins");
            async {
                let _dropped = Dropped;
                pause().await;
                tracing::info!(target: "work", "goes on");
                pending::<()>().await;
            }
        };
        let worker = tenure.worker("w", work).start().unwrap();
        world.runtime.advance(SECOND);
        world.runtime.block_on(worker.stop()).unwrap();
        let job = tenure.periodic("p", SECOND, |_| async { tracing::info!(target: "work", "runs") });
        let job = job.start().unwrap();
        world.runtime.advance(SECOND * 3 / 2);
        world.runtime.block_on(job.stop()).unwrap();
        let under = tenure.periodic("u", SECOND, |_| async { tracing::info!(target: "work", "runs") });
        let under = under.under("l").start().unwrap();
        world.runtime.advance(SECOND * 3 / 2);
        world.runtime.block_on(under.stop()).unwrap();
        let lease = world.acquire(&tenure, "a");
        let run = lease.run(async { tracing::info!(target: "work", "under a guard") });
        world.runtime.block_on(run).unwrap();
        tracing::info!(target: "work", "outside");
    });
    let seen = spans.0.lock().unwrap();
    let shape = |line: &str| {
        // Tokens are what they are.
        let digits = line.split("token=").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        digits.collect::<Vec<_>>().join("token")
    };
    let told: Vec<_> = seen.told.iter().map(|line| shape(line)).collect();
    assert_eq!(
        told,
        [
            "tenure.run lease=\"w\" token: message=begins",
            "tenure.run lease=\"w\" token: message=goes on",
            "tenure.run lease=\"w\" token: message=dropped",
            "tenure.run timer=\"p\" tick=1 token: message=runs",
            "tenure.run lease=\"l\" timer=\"u\" tick=1 token: message=runs",
            "tenure.run lease=\"a\" token: message=under a guard",
            ": message=outside",
        ]
    );
    assert!(seen.entered.is_empty());
}

#[test]
fn a_setup_that_is_never_started_is_told() {
    use crate::tests::logging::logged;

    logged(|world, lines| {
        let tenure = world.tenure();
        drop(tenure.worker("queue", async |_| ()));
        drop(tenure.periodic("report", SECOND, async |_| ()));
        drop(tenure.coordinate(["a"], async |_| ()));
        drop(tenure.timer("tick", SECOND));
        let told = lines.at(tracing::Level::WARN);
        let begun = ["worker \"queue\"", "periodic job \"report\"", "coordinator", "timer \"tick\""];
        assert_eq!(told.len(), begun.len(), "{told:#?}");
        for (line, begun) in told.iter().zip(begun) {
            assert!(line.contains(&format!("{begun} was set up and never started")), "{line}");
        }
        let worker = tenure.worker("queue", async |_| ()).start().unwrap();
        // That it fails is told by its error.
        tenure.timer("", SECOND).start().unwrap_err();
        drop(worker);
        assert_eq!(lines.at(tracing::Level::WARN).len(), begun.len());
    });
}
