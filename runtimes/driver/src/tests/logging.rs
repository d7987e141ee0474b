//! What is logged, and how much.

use std::fmt::Write;
use std::sync::{LazyLock, Mutex};

use futures::FutureExt;
use tenure_store::{Operation, TimerAct, TimerAnswer, TimerRequest};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use super::*;

/// Keeps all lines, and sees to it that each is one of the guide's table.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    pub(super) fn at(&self, level: Level) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|(at, _)| *at == level).map(|(_, line)| line.clone()).collect()
    }
}

#[derive(Default)]
struct Text {
    text: String,
    event: Option<String>,
    fields: Vec<&'static str>,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            self.event = Some(value.to_owned());
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.text, "{}={value:?} ", field.name()).unwrap();
        if field.name() != "message" {
            self.fields.push(field.name());
        }
    }
}

impl Text {
    /// Whether the guide knows of such a line.
    fn check(&self, metadata: &Metadata<'_>) {
        let name = self.event.as_deref().unwrap_or_else(|| panic!("a line without a name: {}", self.text));
        let known = observing::events().iter().find(|definition| definition.name == name);
        let known = known.unwrap_or_else(|| panic!("{name} is not in the table"));
        // What comes in floods is written at a lower level.
        if *metadata.level() != Level::DEBUG && name != "trouble.summary" {
            assert_eq!((*metadata.level(), metadata.target()), (known.level, known.target), "{name}");
        }
        let extra: Vec<_> = self.fields.iter().filter(|field| !known.fields.contains(field)).collect();
        assert!(extra.is_empty(), "{name} has fields that are not in the table: {extra:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        text.check(event.metadata());
        self.0.lock().unwrap().push((*event.metadata().level(), text.text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Beside a single listener, a line that another test comes to first would count as one that nobody wants.
pub(super) static SECOND_LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

/// Runs a test with all that it logs.
pub(super) fn logged(test: impl FnOnce(&World, &Lines)) {
    LazyLock::force(&SECOND_LISTENER);
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || test(&World::new(), &lines));
}

#[test]
fn a_store_that_is_down_for_a_minute_under_a_thousand_leases_makes_a_handful_of_lines() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let leases: Vec<_> = (0..1000).map(|n| world.acquire(&tenure, &n.to_string())).collect();
        world.runtime.advance(TTL);
        assert_eq!(lines.at(Level::WARN), Vec::<String>::new());
        world.plan.all(Fault::Fail);
        world.runtime.advance(60 * SECOND);
        assert!(leases.iter().all(|lease| !lease.is_valid()));
        assert_eq!(tenure.stats().lost, 1000);
        let warnings = lines.at(Level::WARN);
        assert!((4..=16).contains(&warnings.len()), "{warnings:#?}");
        let summary = warnings.iter().find(|line| line.contains("997 leases concerned"));
        assert!(summary.is_some(), "{warnings:#?}");
        assert!(warnings.iter().any(|line| line.contains("997 more within 30s")), "{warnings:#?}");
    });
}

#[test]
fn what_a_candidate_hears_is_not_logged_as_well() {
    for fault in [Fault::Hang, Fault::Fail] {
        logged(|world, lines| {
            let tenure = world.tenure();
            world.plan.all(fault);
            let acquiring = tenure.acquire("a").wait_at_most(10 * SECOND).into_future();
            world.runtime.block_on(acquiring).unwrap_err();
            let heard = spawn(&world.runtime, tenure.acquire("b").on_progress(|_| ()).into_future());
            world.runtime.advance(60 * SECOND);
            world.runtime.block_on(tenure.shutdown()).unwrap();
            assert!(heard.lock().unwrap().is_some());
            assert_eq!(lines.at(Level::WARN), Vec::<String>::new());
        });
    }
}

#[test]
fn a_candidate_that_waits_for_ever_and_hears_nothing_leaves_a_line() {
    for fault in [Fault::Hang, Fault::Fail] {
        logged(|world, lines| {
            let tenure = world.tenure();
            world.plan.all(fault);
            let _waiting = spawn(&world.runtime, tenure.acquire("a").into_future());
            world.runtime.advance(60 * SECOND);
            let warnings = lines.at(Level::WARN);
            assert_eq!(warnings.len(), 1, "{warnings:#?}");
            assert!(warnings[0].contains("not acquired yet"), "{warnings:#?}");
        });
    }
}

#[test]
fn a_lease_that_is_lost_makes_one_line_of_doubt_and_one_of_loss() {
    for fault in [Fault::Hang, Fault::Fail] {
        logged(|world, lines| {
            let tenure = world.tenure();
            let lease = world.acquire(&tenure, "a");
            world.plan.all(fault);
            world.runtime.block_on(lease.lost());
            world.runtime.advance(2 * TTL);
            let warnings = lines.at(Level::WARN);
            assert_eq!(warnings.len(), 2, "{warnings:#?}");
            let [doubt, loss] = &warnings[..] else { panic!("{warnings:#?}") };
            assert!(doubt.contains("a renewal failed") && doubt.contains("(lease \"a\")"), "{doubt}");
            assert!(loss.contains("is lost: no renewal was acknowledged in time"), "{loss}");
        });
    }
}

#[test]
fn who_shut_down_and_was_told_what_is_still_held_needs_no_line_about_it() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let _lease = world.acquire(&tenure, "a");
        world.runtime.block_on(tenure.shutdown()).unwrap_err();
        world.runtime.shut_down();
        assert_eq!(lines.at(Level::WARN), Vec::<String>::new());
    });
}

#[test]
fn transitions_are_told_once_and_renewals_are_not() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let lease = world.acquire(&tenure, "a");
        world.runtime.advance(10 * TTL);
        world.runtime.block_on(lease.release()).unwrap();
        let lines: Vec<_> = lines.at(Level::INFO);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("lease acquired") && lines[0].contains("a"), "{lines:#?}");
        assert!(lines[1].contains("lease released"), "{lines:#?}");
    });
}

#[test]
fn a_runtime_that_ends_with_leases_unreleased_makes_one_warning_that_names_shutdown() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let other = world.tenure();
        let _lease = world.acquire(&tenure, "a");
        let _waiting = spawn(&world.runtime, other.acquire("a").into_future());
        world.settle();
        world.runtime.shut_down();
        let warnings = lines.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(
            warnings[0].contains("shutdown") && warnings[0].contains("lease \"a\" was given back"),
            "{warnings:#?}"
        );
    });
}

#[test]
fn a_starved_renewal_says_so_and_what_to_do() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let _lease = world.acquire(&tenure, "a");
        world.runtime.block(TTL / 2);
        world.settle();
        let warnings = lines.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(warnings[0].contains("renewal starved") && warnings[0].contains("blocking"), "{warnings:#?}");
    });
}

#[test]
fn work_that_is_stopped_by_choice_is_no_trouble_and_a_loss_is_warned_of_once() {
    for how in ["drain", "timeout", "stop", "shutdown", "max hold", "loss", "error"] {
        logged(|world, lines| {
            let tenure = world.tenure();
            let mut setup = tenure.worker("a", move |ctx: crate::Ctx| async move {
                ctx.draining().await;
                match how {
                    "drain" | "shutdown" | "max hold" => Ok(()),
                    "error" => Err("no luck"),
                    _ => std::future::pending().await,
                }
            });
            if how == "max hold" {
                setup = setup.max_hold(SECOND);
            }
            let worker = setup.drain_timeout(SECOND).start().unwrap();
            world.settle();
            match how {
                "stop" => world.runtime.block_on(worker.stop()).unwrap(),
                "shutdown" => world.runtime.block_on(tenure.shutdown()).unwrap(),
                "max hold" => world.runtime.advance(2 * SECOND),
                "loss" => {
                    world.runtime.block_on(tenure.evict("a", tenure_store::Eviction::Delete)).unwrap();
                    world.runtime.advance(TTL);
                }
                _ => world.runtime.block_on(worker.drain()).unwrap(),
            }
            let warnings = lines.at(Level::WARN);
            match how {
                "loss" => assert!(warnings.len() == 1 && warnings[0].contains("is lost"), "{warnings:#?}"),
                // What goes wrong in a drain is not hidden.
                "error" => assert!(warnings.len() == 1 && warnings[0].contains("no luck"), "{warnings:#?}"),
                _ => assert!(warnings.is_empty(), "{how}: {warnings:#?}"),
            }
            assert_eq!(
                (tenure.stats().failed_runs, worker.last_error().is_some()),
                (0, how == "error"),
                "{how}"
            );
            let ends =
                lines.at(Level::INFO).into_iter().filter(|line| line.contains("work has ended")).count();
            assert_eq!(ends > 0, how != "error", "{how}");
        });
    }
}

#[test]
fn ticks_that_are_skipped_make_a_few_lines_with_their_timer_and_number() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let _job = tenure.periodic("p", SECOND, |_| std::future::pending::<()>()).start().unwrap();
        world.runtime.advance(3600 * SECOND);
        assert!(tenure.stats().skipped_ticks > 3500, "{:?}", tenure.stats());
        assert_eq!(lines.at(Level::WARN), Vec::<String>::new(), "it is what was asked for");
        let told = lines.at(Level::INFO);
        let single: Vec<_> = told.iter().filter(|line| line.contains("is not run here: a run was")).collect();
        assert!(single[0].contains("timer=\"p\"") && single[0].contains("tick=2"), "{single:#?}");
        assert!(told.len() < 130, "a summary each half a minute: {}", told.len());
    });
}

#[test]
fn ticks_that_pass_while_the_instance_drains_are_no_trouble() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let _job = tenure.periodic("p", SECOND, |_| async {}).start().unwrap();
        world.settle();
        world.runtime.block_on(tenure.drain()).unwrap();
        world.runtime.advance(60 * SECOND);
        assert!(tenure.stats().skipped_ticks >= 59, "{:?}", tenure.stats());
        assert_eq!(lines.at(Level::WARN), Vec::<String>::new());
        let told =
            |level| lines.at(level).into_iter().filter(|line| line.contains("is not run here")).collect();
        let (info, debug): (Vec<String>, Vec<String>) = (told(Level::INFO), told(Level::DEBUG));
        assert_eq!(info, Vec::<String>::new(), "that it drains is told once");
        assert!(debug.len() >= 59 && debug[0].contains("this instance drains"), "{debug:#?}");
        assert!(debug[0].contains("timer=\"p\"") && debug[0].contains("tick=1"), "{debug:#?}");
    });
}

#[test]
fn missed_ticks_and_failed_runs_are_warned_of_in_a_few_lines() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let _job = tenure.periodic("p", SECOND, |_| async { Err::<(), _>("no luck") }).start().unwrap();
        world.settle();
        world.runtime.block(60 * SECOND);
        world.runtime.advance(60 * SECOND);
        let warnings = lines.at(Level::WARN);
        let count = |text: &str| warnings.iter().filter(|line| line.contains(text)).count();
        // The last one comes once the store's time was asked for.
        assert!((1..=2).contains(&count("missed before tick")), "{warnings:#?}");
        assert_eq!(count("a run failed: no luck"), 5);
        assert_eq!(count("of leases, ticks and jobs concerned"), 2, "{warnings:#?}");
    });
}

#[test]
fn runs_are_told_at_their_end_and_their_claims_are_not() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let job = tenure.periodic("p", SECOND, |_| async {}).start().unwrap();
        world.runtime.advance(3 * SECOND + SECOND / 2);
        world.runtime.block_on(job.drain()).unwrap();
        let told = lines.at(Level::INFO);
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(told[0].contains("a run has ended") && told[0].contains("tick=1"), "{told:#?}");
    });
}

#[test]
fn a_store_without_records_is_told_of_once() {
    logged(|world, lines| {
        let tenure = world.tenure();
        world.plan.reports(Fault::Refuse);
        let _job = tenure.periodic("p", SECOND, |_| async {}).start().unwrap();
        world.runtime.advance(100 * SECOND);
        let warnings = lines.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(
            warnings[0].contains("job=\"p\"") && warnings[0].contains("no records here"),
            "{warnings:#?}"
        );
    });
}

#[test]
fn no_answer_of_a_bad_store_reaches_the_machines_of_timers_as_a_mistake_of_the_driver() {
    logged(|world, lines| {
        let mut random = tenure_core::SplitMix::new(3);
        world.plan.set(move |_| Fault::of_a_bad_store(tenure_core::Jitter::below(&mut random, 100)));
        let (one, other) = (world.tenure(), world.tenure());
        let _timers = [&one, &other].map(|tenure| tenure.timer("t", SECOND).start().unwrap());
        let _jobs = [(&one, 1), (&other, 3)].map(|(tenure, attempts)| {
            let job = tenure.periodic("p", 5 * SECOND, |_| async {}).attempts(attempts);
            job.under("a").start().unwrap()
        });
        world.runtime.advance(1000 * SECOND);
        let (all, stats) = (lines.at(Level::WARN), one.stats());
        assert!(stats.runs > 20 && stats.failures > 100, "{stats:?}");
        assert!(all.iter().any(|line| line.contains("answered with what belongs to another operation")));
        let misuse = ["was never", "does not answer", "shutting down", "can't overlap"];
        let wrong = all.iter().find(|line| misuse.iter().any(|text| line.contains(text)));
        assert_eq!(wrong, None);
    });
}

#[test]
fn a_change_of_a_timer_that_was_forgotten_meanwhile_is_no_bug_of_the_store() {
    logged(|world, lines| {
        let plan = Plan::default();
        let tenure = world.tenure_with(&plan);
        let _first = world.tenure().timer("p", SECOND * 10).start().unwrap();
        world.settle();
        let store = world.store.clone();
        let changes = Arc::new(Mutex::new(0));
        let count = Arc::clone(&changes);
        plan.set(move |operation| {
            if let Operation::Timer(TimerRequest { name, act: TimerAct::Change { .. }, .. }) = operation {
                *count.lock().unwrap() += 1;
                if *count.lock().unwrap() == 1 {
                    let forget = TimerRequest { name: name.clone(), act: TimerAct::Forget, timeout: SECOND };
                    assert_eq!(
                        SimpleStore::timer(&store, forget).now_or_never(),
                        Some(Ok(TimerAnswer::Removed))
                    );
                }
            }
            Fault::None
        });
        let second = tenure.timer("p", SECOND * 20).start().unwrap();
        world.runtime.advance(60 * SECOND);
        assert!(*changes.lock().unwrap() >= 1);
        let warnings = lines.at(Level::WARN);
        assert!(warnings.iter().all(|line| !line.contains("another operation")), "{warnings:#?}");
        // It was made anew, with what this instance wants.
        let timers = world.runtime.block_on(tenure.timers()).unwrap();
        assert_eq!(timers[0].record.schedule.as_ref(), second.schedule().text());
        assert_eq!(second.schedule().text(), "every 20s");
    });
}

#[test]
fn what_the_store_says_of_a_claim_beside_a_lease_is_told() {
    for (kind, fault, text) in [
        ("claim", Fault::Refuse, "not claimed: "),
        ("claim", Fault::Fail, "not claimed yet, and tried again: "),
        ("finish", Fault::Fail, "the server is down"),
    ] {
        logged(|world, lines| {
            let tenure = world.tenure();
            world.plan.only(kind, fault);
            let _job = tenure.periodic("p", 60 * SECOND, |_| async {}).under("a").start().unwrap();
            world.runtime.advance(61 * SECOND);
            let warnings = lines.at(Level::WARN);
            let told: Vec<_> = warnings.iter().filter(|line| line.contains(text)).collect();
            assert!((1..=3).contains(&told.len()), "{kind}: {warnings:#?}");
            assert!(told[0].contains("timer=\"p\"") && told[0].contains("tick=1"), "{told:#?}");
        });
    }
}

#[test]
fn what_becomes_of_an_instance_and_its_workloads_is_told_once_each() {
    logged(|world, lines| {
        let tenure = world.tenure();
        let works = sharing::Works::default();
        let coordinator = sharing::dutiful(&tenure, "a", &works, 1).start().unwrap();
        world.settle();
        world.runtime.block_on(tenure.drain()).unwrap();
        tenure.resume();
        world.settle();
        world.runtime.block_on(coordinator.drain()).unwrap();
        world.runtime.block_on(tenure.shutdown()).unwrap();
        assert_eq!(lines.at(Level::WARN), Vec::<String>::new());
        let told = lines.at(Level::INFO);
        for (text, times) in [
            ("joined the fleet", 1),
            ("members=1", 4),
            ("a workload belongs to this instance", 2),
            ("does not belong to this instance: this instance drains", 1),
            ("does not belong to this instance: its coordinator ends", 1),
            ("draining: the program wants it", 1),
            ("drained: nothing is held any more", 1),
            ("the drain was taken back", 1),
            ("left the fleet", 1),
        ] {
            let lines = told.iter().filter(|line| line.contains(text)).count();
            assert!((1..=times).contains(&lines), "{text}: {lines} times: {told:#?}");
        }
    });
}

#[test]
fn heartbeats_that_fail_for_an_hour_make_a_handful_of_lines_and_name_the_error() {
    logged(|world, lines| {
        let tenure = world.tenure();
        world.runtime.block_on(tenure.join()).unwrap();
        world.plan.only("heartbeat", Fault::Fail);
        world.runtime.advance(3600 * SECOND);
        let warnings = lines.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(
            warnings[0].contains("the server is down") && warnings[0].contains("heartbeat"),
            "{warnings:#?}"
        );
        assert!(tenure.stats().failed_heartbeats > 500);
    });
}
