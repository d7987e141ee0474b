//! What timers promise.

use std::time::Duration;

use futures::future::join_all;
use tenure_core::{NextSchedule, Tick, TimerChange, TimerName};

use super::Harness;
use super::candidate::{PATIENCE, long_ttl, run, run_batch, short_ttl};
use super::claimant::{
    Claimant, answered, ask, every, hourly, read, request, timer, to_read, to_stage, told, with_timer,
};
use crate::{Operation, Store, TimerAct, TimerAnswer};

/// T3: whoever reads a timer first makes it, and all others find the same base, whatever schedule they would have
/// made it with.
pub fn all_handles_find_the_timer_that_the_first_reader_made<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = timer("shared");
        let (made, at) = read(&store, &name, None).await;
        assert_eq!(made.base, Tick { n: 0, at }, "it begins now, with no tick behind it");
        assert_eq!((&*made.schedule, made.last, made.claimed), (hourly().text(), 0, 0));
        assert!(made.next.is_none() && made.unfinished.is_empty(), "{made:?}");
        h.pass(Duration::from_millis(20)).await;
        let other = h.handle(&store).await;
        let schedule = every(Duration::from_secs(7)).text().into();
        let (found, _) = told(ask(&other, request(&name, TimerAct::Read { schedule, last: None })).await);
        assert_eq!(found, made);
    });
}

/// Of many that register the same timer at the same time one makes it.
pub fn many_readers_at_once_make_one_timer<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut handles = Vec::new();
        for _ in 0..10 {
            handles.push(h.handle(&store).await);
        }
        let name = timer("registered at once");
        let reads = (0..50).map(|reader| {
            // By its own schedule it shows which of them made it.
            let schedule = every(Duration::from_secs(3600 + reader)).text().into();
            let read = Operation::Timer(request(&name, TimerAct::Read { schedule, last: None }));
            let handle = &handles[reader as usize % handles.len()];
            async move { told(answered(run(handle, read).await)).0 }
        });
        let views = join_all(reads).await;
        assert!(views.iter().all(|view| *view == views[0]), "{views:?}");
    });
}

/// T3: a restart of the programs and the store changes no timer.
pub fn reopening_keeps_timers<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "kept").await;
        let (view, at) = read(&store, &name, Some(3)).await;
        let staged = Tick { n: 4, at: at + Duration::from_secs(3600) };
        let schedule = every(Duration::from_secs(7));
        let (before, _) = told(ask(&store, to_stage(&name, view.revision, staged, schedule)).await);
        let next = NextSchedule { at: staged, schedule: "every 7s".into() };
        assert_eq!(before.next.as_ref(), Some(&next));
        store.close().await;
        let store = h.reopen(store).await;
        assert_eq!(read(&store, &name, None).await.0, before);
    });
}

/// The time that is told with a record is the store's wall clock, which goes on.
pub fn reading_tells_the_stores_wall_clock<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "read twice").await;
        let wait = Duration::from_millis(200);
        let (_, first) = read(&store, &name, None).await;
        h.pass(wait).await;
        let (_, second) = read(&store, &name, None).await;
        let passed = second.saturating_since(first);
        assert!(passed >= wait / 2 && passed < wait + PATIENCE, "{passed:?} in {wait:?}");
    });
}

/// A change is made once, by whoever knew the record as it stands; the others are told what it is now.
pub fn a_change_of_a_stale_revision_changes_nothing<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "changed").await;
        let (view, at) = read(&store, &name, None).await;
        let staged = |n| Tick { n, at: at + Duration::from_secs(3600) };
        let change = |n| to_stage(&name, view.revision, staged(n), every(Duration::from_secs(n)));
        let (changed, _) = told(ask(&store, change(1)).await);
        assert_ne!(changed.revision, view.revision);
        assert_eq!(changed.next.as_ref().map(|next| next.at), Some(staged(1)));
        for stale in [change(1), change(2)] {
            let other = h.handle(&store).await;
            assert_eq!(told(ask(&other, stale).await).0, changed);
        }
        let rebase = TimerAct::Change { revision: view.revision, change: TimerChange::Rebase { last: 9 } };
        assert_eq!(told(ask(&store, request(&name, rebase)).await).0, changed);
    });
}

/// A schedule that is to follow counts from its tick on by the store's clock: no sooner, no later, and that tick is
/// its base.
pub fn a_staged_schedule_takes_effect_at_its_tick<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "staged").await;
        let wait = short_ttl::<H>(&store);
        let (view, at) = read(&store, &name, None).await;
        let staged = Tick { n: 1, at: at + wait };
        ask(&store, to_stage(&name, view.revision, staged, every(Duration::from_secs(7)))).await;
        let limit = h.now() + wait + PATIENCE;
        loop {
            let (view, at) = read(&store, &name, None).await;
            if at >= staged.at {
                assert_eq!((view.base, &*view.schedule, view.next), (staged, "every 7s", None));
                return;
            }
            assert_eq!((view.base.n, &*view.schedule), (0, hourly().text()), "not before its tick");
            assert!(h.now() < limit, "the wall clock of the store stands still");
            h.pass(wait / 20).await;
        }
    });
}

/// T4: the number of the last tick rises to what any instance knows of, and never falls.
pub fn the_last_tick_only_rises<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "rising").await;
        for (known, last) in [(None, 0), (Some(4), 4), (Some(2), 4), (None, 4), (Some(5), 5)] {
            let (view, _) = read(&store, &name, known).await;
            assert_eq!((view.last, view.claimed), (last, 0), "after {known:?}");
        }
        let claimant = Claimant::new(&name, 1, long_ttl(&store));
        claimant.gets(&store, 9).await;
        let (view, _) = read(&store, &name, Some(7)).await;
        assert_eq!((view.last, view.claimed), (9, 9), "a tick that was claimed has come");
    });
}

/// T4: a timer that was forgotten is made anew by its readers alone, who know the number to go on from.
pub fn a_forgotten_timer_goes_on_from_the_number_of_its_reader<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "forgotten").await;
        let (view, at) = read(&store, &name, Some(5)).await;
        let claimant = Claimant::new(&name, 1, long_ttl(&store));
        let token = claimant.gets(&store, 5).await;
        assert_eq!(ask(&store, request(&name, TimerAct::Forget)).await, TimerAnswer::Removed);
        assert_eq!(ask(&store, request(&name, TimerAct::Forget)).await, TimerAnswer::NotYours);
        assert_eq!(store.timers(None, 10).await, Ok(Vec::new()));
        for act in [
            to_stage(&name, view.revision, Tick { n: 6, at }, hourly()).act,
            TimerAct::Change { revision: view.revision, change: TimerChange::Rebase { last: 5 } },
        ] {
            assert_eq!(ask(&store, request(&name, act)).await, TimerAnswer::Gone);
        }
        assert_eq!(claimant.claims(&store, 6).await, TimerAnswer::Taken);
        assert_eq!(claimant.renews(&store, 5, token).await, TimerAnswer::NotYours);
        let (anew, at) = read(&store, &name, Some(5)).await;
        assert_eq!((anew.base, anew.last, anew.claimed), (Tick { n: 5, at }, 5, 5));
        assert_eq!(claimant.claims(&store, 5).await, TimerAnswer::Taken);
        assert!(claimant.gets(&store, 6).await > token);
    });
}

/// T4: when the store's wall clock was set back, one of those who notice bases the timer anew, from now and the last
/// number on. No claim minds: claims, like leases, go by another clock.
pub fn a_timer_is_based_anew_when_the_wall_clock_was_set_back<H: Harness>(h: &H) {
    const HOUR: i64 = 3_600_000_000_000;
    h.block_on(async {
        let (store, name) = with_timer(h, "set back").await;
        let (view, before) = read(&store, &name, Some(7)).await;
        let claimant = Claimant::new(&name, 1, long_ttl(&store));
        let token = claimant.gets(&store, 8).await;
        h.set_wall(HOUR);
        assert_eq!(claimant.renews(&store, 8, token).await, TimerAnswer::Renewed, "an hour forward");
        h.set_wall(-3 * HOUR);
        assert_eq!(claimant.renews(&store, 8, token).await, TimerAnswer::Renewed, "two hours back");
        let (same, after) = read(&store, &name, None).await;
        assert!(after < before, "{after:?} is not before {before:?}");
        assert_eq!((same.revision, same.base), (view.revision, view.base));
        let rebase = TimerAct::Change { revision: same.revision, change: TimerChange::Rebase { last: 7 } };
        let (anew, at) = told(ask(&store, request(&name, rebase.clone())).await);
        assert_eq!((anew.base, anew.last), (Tick { n: 8, at }, 8));
        let (again, _) = told(ask(&store, request(&name, rebase)).await);
        assert_eq!(again, anew, "the second who notices changes nothing");
    });
}

/// Operations on one timer are carried out in the order of the batch, whatever stands between them.
pub fn operations_on_one_timer_keep_their_order<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = timer("in order");
        let [a, b] = [1, 2].map(|process| Claimant::new(&name, process, long_ttl(&store)));
        let end = tenure_core::ClaimEnd::Finished;
        let steps =
            [to_read(&name, None), a.claim(1), b.claim(1), b.claim(2), a.finish(1, None, end), b.claim(3)];
        let mut batch = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            batch.push(Operation::Timer(step));
            batch.push(Operation::Timer(to_read(&timer(format!("beside {}", number % 2)), None)));
        }
        let outcomes = run_batch(&store, batch).await.into_iter().step_by(2).map(answered);
        let outcomes: Vec<TimerAnswer> = outcomes.collect();
        assert!(
            matches!(
                outcomes[..],
                [
                    TimerAnswer::Read { .. },
                    TimerAnswer::Granted(_),
                    TimerAnswer::Taken,
                    TimerAnswer::Overlaps,
                    TimerAnswer::Removed,
                    TimerAnswer::Granted(_)
                ]
            ),
            "{outcomes:?}"
        );
    });
}

/// A list is read in pages, in the order of the names' bytes, each timer once, with its record.
pub fn timers_are_listed_page_by_page<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut names: Vec<TimerName> =
            (0..10).map(|number| timer(format!("{}{number}", ["a", "B", "ä/"][number % 3]))).collect();
        for (name, n) in names.iter().zip(1..) {
            read(&store, name, Some(n)).await;
            Claimant::new(name, 1, long_ttl(&store)).gets(&store, n + 1).await;
        }
        let last = names.clone();
        names.sort();
        for most in [1, 4, 10, 11] {
            let mut found: Vec<TimerName> = Vec::new();
            loop {
                let page = store.timers(found.last().cloned(), most).await.expect("listing works");
                assert!(page.len() <= most, "at most {most}: {page:?}");
                if page.is_empty() {
                    break;
                }
                for entry in page {
                    let n = last.iter().zip(1..).find(|(name, _)| **name == entry.name).map(|(_, n)| n);
                    assert_eq!(Some(entry.record.last), n, "{:?}", entry.name);
                    let claim = &entry.record.claims[0];
                    assert_eq!(Some(claim.tick), n.map(|n| n + 1), "{claim:?}");
                    assert!(claim.ends > entry.time.now && claim.owner.contains('/'), "{claim:?}");
                    found.push(entry.name);
                }
                assert!(found.len() <= names.len(), "each timer once: {found:?}");
            }
            assert_eq!(found, names, "in pages of {most}");
        }
        assert_eq!(store.timers(None, 0).await, Ok(Vec::new()));
    });
}
