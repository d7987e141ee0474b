//! Getting a lease, and the ways of not getting it.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use tenure_core::{ConfigError, LeaseConfig, LeaseName, NameError, ReleaseOutcome, Token};
use tenure_store::{Eviction, StoreErrorKind};

use super::*;
use crate::{AcquireError, LostReason, Progress, RequestError, StartError};

#[test]
fn a_lease_is_acquired_shown_and_given_back() {
    let world = World::new();
    let tenure = world.builder().instance("worker-1").store(world.faulty()).start().unwrap();
    assert_eq!(tenure.identity().instance(), "worker-1");

    let lease = world.runtime.block_on(tenure.acquire("backup").text("tonight").into_future()).unwrap();
    assert!(lease.is_valid());
    assert_eq!(lease.name().as_str(), "backup");
    assert!(lease.owner().starts_with("worker-1/"));
    assert!(lease.token() > Token::ZERO);
    assert!(lease.deadlines().fence_at > world.now());

    let record = world.runtime.block_on(tenure.inspect("backup")).unwrap().unwrap();
    assert_eq!(record.holder.owner, lease.owner());
    assert_eq!(record.holder.token, Some(lease.token()));
    assert_eq!(record.holder.metadata.text.as_deref(), Some("tonight"));
    assert_eq!(record.holder.metadata.pid, Some(std::process::id()));
    assert!(record.holder.metadata.host.is_some());
    assert_eq!(world.runtime.block_on(tenure.leases()).unwrap(), [record]);

    let token = lease.token();
    assert_eq!(world.runtime.block_on(lease.release()), Ok(ReleaseOutcome::Released));
    assert!(world.records().is_empty());
    let again = world.acquire(&tenure, "backup");
    assert!(again.token() > token);
    let stats = tenure.stats();
    assert_eq!((stats.acquired, stats.released, stats.held, stats.open), (2, 1, 1, 1));
}

#[test]
fn a_name_that_nobody_holds_has_no_record() {
    let world = World::new();
    let tenure = world.tenure();
    assert_eq!(world.runtime.block_on(tenure.inspect("backup")).unwrap(), None);
    assert_eq!(world.runtime.block_on(tenure.evict("backup", Eviction::Delete)).unwrap(), None);
    assert_eq!(
        world.runtime.block_on(tenure.inspect("")),
        Err(RequestError::Name(NameError::Empty { what: "a lease name" }))
    );
}

#[test]
fn all_leases_are_listed_over_many_pages() {
    let world = World::new();
    let tenure = world.tenure();
    let names: Vec<_> = (0..1203).map(|n| format!("{n:04}")).collect();
    let guards: Vec<_> = names.iter().map(|name| world.acquire(&tenure, name)).collect();
    let listed = world.runtime.block_on(tenure.leases()).unwrap();
    let listed: Vec<_> = listed.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(listed, names);
    drop(guards);
}

#[test]
fn whoever_tries_once_is_told_who_holds_the_lease() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    for tenure in [&other, &one] {
        let error = world.runtime.block_on(tenure.try_acquire("a").into_future()).unwrap_err();
        let AcquireError::Busy { lease: name, holder: Some(holder) } = &error else { panic!("{error}") };
        assert_eq!(name.as_str(), "a");
        assert_eq!(holder.owner, lease.owner());
        assert_eq!(holder.token, Some(lease.token()));
        assert!(
            error.to_string().starts_with(&format!("lease \"a\" is held by {:?}", lease.owner())),
            "{error}"
        );
    }
    assert!(world.now() < lease.deadlines().fence_at);
}

#[test]
fn whoever_waits_gets_the_lease_when_it_is_given_back() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let token = lease.token();
    let got = spawn(&world.runtime, other.acquire("a").into_future());
    world.runtime.advance(60 * SECOND);
    assert!(got.lock().unwrap().is_none());
    assert!(lease.is_valid());
    drop(lease);
    world.runtime.advance(SECOND);
    let next = got.lock().unwrap().take().unwrap().unwrap();
    assert!(next.token() > token);
}

#[test]
fn candidates_of_one_process_take_turns() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let got = spawn(&world.runtime, tenure.acquire("a").into_future());
    world.runtime.advance(SECOND);
    assert!(got.lock().unwrap().is_none());
    drop(lease);
    world.runtime.advance(SECOND);
    assert!(got.lock().unwrap().as_ref().unwrap().as_ref().unwrap().is_valid());
}

#[test]
fn waiting_has_a_limit() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let _lease = world.acquire(&one, "a");
    let began = world.now();
    let error =
        world.runtime.block_on(other.acquire("a").wait_at_most(20 * SECOND).into_future()).unwrap_err();
    assert!(matches!(error, AcquireError::Busy { .. }), "{error}");
    let waited = world.now().saturating_since(began);
    assert!(waited >= 20 * SECOND && waited < 21 * SECOND, "{waited:?}");
}

#[test]
fn progress_tells_of_the_holder_and_of_failures() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reports);
    let candidate = other.acquire("a").on_progress(move |report| heard.lock().unwrap().push(report));
    let got = spawn(&world.runtime, candidate.into_future());
    world.runtime.advance(SECOND);
    {
        let reports = reports.lock().unwrap();
        assert!(!reports.is_empty());
        for report in reports.iter() {
            let Progress::Waiting { holder: Some(holder), until } = report else { panic!("{report:?}") };
            assert_eq!(holder.owner, lease.owner());
            assert!(*until > world.now());
        }
    }
    reports.lock().unwrap().clear();
    world.plan.only("acquire", Fault::Fail);
    world.plan.forget();
    drop(lease);
    world.runtime.advance(SECOND);
    assert!(world.plan.count("acquire") > 1, "it tries again");
    {
        let reports = reports.lock().unwrap();
        let retrying: Vec<_> =
            reports.iter().filter(|report| matches!(report, Progress::Retrying { .. })).collect();
        let [Progress::Retrying { error }] = &retrying[..] else { panic!("{reports:?}") };
        assert_eq!(error.kind, StoreErrorKind::Transient);
        assert_eq!(error.lease(), Some(&LeaseName::new("a").unwrap()));
    }
    world.plan.heal();
    world.runtime.advance(5 * SECOND);
    assert!(got.lock().unwrap().as_ref().unwrap().is_ok());
}

#[test]
fn a_listener_that_is_slow_or_panics_harms_nobody_else() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let kept = world.acquire(&other, "b");

    // It is called in the task of whoever waits, never in the driver's: a panic arrives there.
    let candidate = other.acquire("a").on_progress(|_| panic!("a listener's bug"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.runtime.block_on(candidate.into_future()).map(drop)
    }));
    assert!(outcome.is_err());

    // A listener that is never called again, because its task does not run, holds nothing up.
    let mut stuck = pin!(other.acquire("a").on_progress(|_| ()).into_future());
    assert!(poll_once(stuck.as_mut()).is_pending());
    world.runtime.advance(120 * SECOND);
    assert!(lease.is_valid() && kept.is_valid());
    assert_eq!(other.stats().open, 2);
}

#[test]
fn each_failure_has_an_error_of_its_own() {
    let world = World::new();
    let tenure = world.tenure();
    let fail = |candidate: crate::Acquire| world.runtime.block_on(candidate.into_future()).unwrap_err();

    let error = fail(tenure.acquire(""));
    assert_eq!(error, AcquireError::Name(NameError::Empty { what: "a lease name" }));

    let error = fail(tenure.acquire("a").ttl(Duration::ZERO));
    let AcquireError::Config(ConfigError { field: "ttl", .. }) = error else { panic!("{error}") };
    let error = fail(tenure.acquire("a").ttl(Duration::MAX));
    let AcquireError::Config(ConfigError { field: "ttl", .. }) = error else { panic!("{error}") };
    let error = fail(tenure.acquire("a").timing(LeaseConfig::new(TTL).renew_interval(TTL)));
    let AcquireError::Config(ConfigError { field: "renew_interval", .. }) = error else { panic!("{error}") };
    let error = fail(tenure.acquire("a").text("x".repeat(2000)));
    let AcquireError::Config(ConfigError { field: "text", .. }) = error else { panic!("{error}") };
    let error = fail(tenure.acquire("a").max_hold(Duration::ZERO));
    assert_eq!(error.to_string(), "max_hold is 0s, but it must be more than zero");

    world.plan.all(Fault::Refuse);
    let error = fail(tenure.acquire("a"));
    let AcquireError::Refused { error: cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.kind, StoreErrorKind::Rejected);
    assert_eq!(
        error.to_string(),
        "lease \"a\" can't be acquired: the store refuses (lease \"a\"): not allowed"
    );

    world.plan.all(Fault::Fail);
    let error = fail(tenure.acquire("a").wait_at_most(5 * SECOND));
    let AcquireError::Unreachable { error: cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.kind, StoreErrorKind::Transient);
    world.plan.all(Fault::Hang);
    let error = fail(tenure.acquire("b").wait_at_most(5 * SECOND));
    let AcquireError::Unreachable { error: cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.kind, StoreErrorKind::Unknown);

    world.plan.heal();
    let lease = world.acquire(&tenure, "c");
    let seen = lease.token();
    drop(lease);
    world.settle();
    world.plan.only("acquire", Fault::Grant(5));
    let error = fail(tenure.acquire("c"));
    let AcquireError::StoreRegressed { token, floor, .. } = error else { panic!("{error}") };
    assert_eq!((token, floor), (Token::new(5), seen));

    // The answer comes after nine tenths of the TTL: there is no time left to work.
    world.plan.only("acquire", Fault::Slow(TTL * 9 / 10));
    let error = fail(tenure.try_acquire("d"));
    assert!(matches!(error, AcquireError::TooLate { .. } | AcquireError::Unreachable { .. }), "{error}");
    world.plan.heal();

    world.runtime.block_on(tenure.shutdown()).unwrap();
    let error = fail(tenure.acquire("a"));
    assert_eq!(error, AcquireError::Closed);
}

#[test]
fn settings_that_do_not_fit_are_refused_at_the_start() {
    let world = World::new();
    let start = |config| world.builder().lease(config).store(world.faulty()).start().unwrap_err();
    let error = start(LeaseConfig::new(Duration::from_millis(1)));
    let StartError::Config(ConfigError { field: "ttl", .. }) = error else { panic!("{error}") };
    let error = start(LeaseConfig::new(TTL).attempt_timeout(TTL));
    let StartError::Config(ConfigError { field: "attempt_timeout", .. }) = error else { panic!("{error}") };
    let error = world.builder().instance("a\nb").store(world.faulty()).start().unwrap_err();
    assert!(matches!(error, StartError::Name(NameError::Character { .. })), "{error}");
}

#[test]
fn every_process_has_a_name_of_its_own_unless_it_is_given_one() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    assert_ne!(one.identity().instance(), other.identity().instance());
    assert_ne!(one.identity().incarnation(), other.identity().incarnation());
    let pid = format!(":{}:", std::process::id());
    assert!(one.identity().instance().contains(&pid), "{}", one.identity().instance());
}

#[test]
fn a_program_may_start_while_the_store_is_down() {
    let world = World::new();
    world.plan.all(Fault::Fail);
    let tenure = world.tenure();
    let reports = Arc::new(Mutex::new(0));
    let heard = Arc::clone(&reports);
    let candidate = tenure.acquire("a").on_progress(move |report| {
        assert!(matches!(report, Progress::Retrying { .. }), "{report:?}");
        *heard.lock().unwrap() += 1;
    });
    let got = spawn(&world.runtime, candidate.into_future());
    world.runtime.advance(600 * SECOND);
    assert!(got.lock().unwrap().is_none());
    assert_eq!(*reports.lock().unwrap(), 1, "it is told once, not at each try");
    world.plan.heal();
    world.runtime.advance(10 * SECOND);
    assert!(got.lock().unwrap().take().unwrap().unwrap().is_valid());
}

#[test]
fn an_eviction_ends_the_hold_before_anybody_else_starts() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let evicted = world.runtime.block_on(other.evict("a", Eviction::Replace)).unwrap().unwrap();
    assert_eq!(evicted.holder.owner, lease.owner());
    let got = spawn(&world.runtime, other.acquire("a").into_future());
    let lost = world.runtime.block_on(lease.lost());
    assert_eq!(lost.why, LostReason::NotYours);
    assert!(got.lock().unwrap().is_none(), "the record keeps its remaining time");
    world.runtime.advance(2 * TTL);
    assert!(got.lock().unwrap().as_ref().unwrap().is_ok());
}

#[test]
fn a_grant_that_its_task_picks_up_too_late_is_not_handed_out() {
    let world = World::new();
    let tenure = world.tenure();
    let mut waiting = Box::pin(tenure.acquire("a").into_future());
    let mut trying = Box::pin(tenure.try_acquire("b").into_future());
    assert!(poll_once(waiting.as_mut()).is_pending() && poll_once(trying.as_mut()).is_pending());
    world.settle();
    assert_eq!(tenure.stats().acquired, 2);
    // The whole program stands still.
    world.runtime.block(2 * TTL);
    let error = world.runtime.block_on(trying).unwrap_err();
    assert!(matches!(error, AcquireError::TooLate { .. }), "{error}");
    let lease = world.runtime.block_on(waiting).unwrap();
    assert!(lease.is_valid());
}

#[test]
fn a_process_that_was_started_again_waits_for_its_predecessor_like_anyone() {
    let world = World::new();
    let start = || world.builder().instance("worker-1").store(world.faulty()).start().unwrap();
    let killed = world.acquire(&start(), "a");
    world.plan.only("renew", Fault::Hang);
    let valid_until = killed.deadlines().valid_until;
    let again = start();
    let error = world.runtime.block_on(again.try_acquire("a").into_future()).unwrap_err();
    assert!(matches!(error, AcquireError::Busy { .. }), "{error}");
    let lease = world.acquire(&again, "a");
    assert!(world.now() >= valid_until);
    assert!(lease.token() > killed.token());
    assert_ne!(lease.owner(), killed.owner());
}
