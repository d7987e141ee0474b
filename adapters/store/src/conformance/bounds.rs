//! What is too much or too little.

use std::time::Duration;

use tenure_core::{AnySchedule, Tick, TimerChange, Token};

use super::Harness;
use super::candidate::{Candidate, granted, lease, long_ttl, run};
use super::claimant::{Claimant, hourly, read, request, timer, to_read, to_stage};
use super::jobs::{job, runs, to_report};
use crate::{Limits, Metadata, Operation, RunReport, Store, StoreErrorKind, TimerAct, TimerRequest, Topic};

/// A TTL below the shortest or above the longest is refused, and nothing is written: a lease is never kept
/// for another time than was asked for.
pub fn a_ttl_out_of_bounds_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let Limits { min_ttl, max_ttl, .. } = store.limits();
        let free = Candidate::new(&lease("free"), 1, 0, long_ttl(&store));
        let holder = Candidate::new(&lease("held"), 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        let grain = Duration::from_millis(1);
        let wrong =
            [Duration::ZERO, min_ttl.saturating_sub(grain), max_ttl.saturating_add(grain), Duration::MAX];
        for ttl in wrong {
            is_rejected(&store, free.with_ttl(ttl).acquire()).await;
            is_rejected(&store, holder.with_ttl(ttl).renew(token)).await;
            is_rejected(&store, holder.with_ttl(ttl).acquire()).await;
        }
        assert_eq!(store.inspect(free.name.clone()).await, Ok(None), "nothing was written");
        Candidate::new(&free.name, 2, 0, long_ttl(&store)).gets(&store).await;
        assert_eq!(holder.gets(&store).await, token, "the lease is as it was");
    });
}

async fn is_rejected(store: &impl Store, operation: impl Into<Operation>) {
    let operation = operation.into();
    match run(store, operation.clone()).await {
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            let topic = Topic::from(operation.subject());
            assert_eq!(error.topic, Some(topic), "the error names the lease: {error}");
        }
        Ok(answer) => panic!("{operation:?} should be refused, but the answer is {answer:?}"),
    }
}

/// The shortest and the longest TTL work.
pub fn a_ttl_at_the_bounds_is_accepted<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let Limits { min_ttl, max_ttl, .. } = store.limits();
        for ttl in [min_ttl, max_ttl] {
            let name = lease(format!("for {ttl:?}"));
            Candidate::new(&name, 1, 0, ttl).gets(&store).await;
        }
        let longest = Candidate::new(&lease(format!("for {max_ttl:?}")), 1, 0, max_ttl);
        Candidate::new(&longest.name, 2, 0, max_ttl).is_refused(&store).await;
    });
}

/// Metadata of the greatest length is kept whole, and longer metadata is refused, never cut.
pub fn metadata_that_is_too_long_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("with a long text");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let mut request = holder.acquire();
        request.metadata.text = Some("ü".repeat(Metadata::MAX_TEXT_BYTES / 2 + 1).into());
        is_rejected(&store, request.clone()).await;
        assert_eq!(store.inspect(name.clone()).await, Ok(None), "nothing was written");

        request.metadata.text = Some("ü".repeat(Metadata::MAX_TEXT_BYTES / 2).into());
        let token: Token = granted(&run(&store, request.clone()).await);
        let record = store.inspect(name).await.expect("inspecting works").expect("it is held");
        assert_eq!((record.holder.token, record.holder.metadata), (Some(token), request.metadata));
    });
}

/// A schedule that is too long, a number that can't be right, a TTL out of bounds, metadata that is too long: what a
/// timer can't keep as it is given is refused, with its name, and nothing is written.
pub fn what_a_timer_can_not_keep_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = timer("bounded");
        let schedule = |bytes: usize| "ü".repeat(bytes / 2) + &"x".repeat(bytes % 2);
        let most = AnySchedule::MAX_BYTES;
        for text in [schedule(most + 1), String::new()] {
            let act = TimerAct::Read { schedule: text.into(), last: None };
            is_rejected(&store, request(&name, act)).await;
        }
        is_rejected(&store, to_read(&name, Some(TimerRequest::HIGHEST_TICK + 1))).await;
        assert_eq!(store.timers(None, 10).await, Ok(Vec::new()), "nothing was written");

        let act = TimerAct::Read { schedule: schedule(most).into(), last: None };
        assert!(run(&store, request(&name, act)).await.is_ok());
        let (before, at) = read(&store, &name, None).await;
        assert_eq!(*before.schedule, *schedule(most), "the longest is kept whole");
        let high = TimerRequest::HIGHEST_TICK + 1;
        is_rejected(&store, to_stage(&name, before.revision, Tick { n: high, at }, hourly())).await;
        let rebase = TimerChange::Rebase { last: high };
        let act = TimerAct::Change { revision: before.revision, change: rebase };
        is_rejected(&store, request(&name, act)).await;
        let Limits { min_ttl, max_ttl, .. } = store.limits();
        let grain = Duration::from_millis(1);
        for ttl in [Duration::ZERO, min_ttl.saturating_sub(grain), max_ttl.saturating_add(grain)] {
            let claimant = Claimant::new(&name, 1, ttl);
            is_rejected(&store, claimant.claim(1)).await;
            is_rejected(&store, claimant.renew(1, Token::new(1))).await;
        }
        let claimant = Claimant::new(&name, 1, long_ttl(&store));
        is_rejected(&store, claimant.claim(high)).await;
        let mut long = claimant.claim(1);
        let TimerAct::Claim(claim) = &mut long.act else { unreachable!("it is a claim") };
        claim.metadata.text = Some("ü".repeat(Metadata::MAX_TEXT_BYTES / 2 + 1).into());
        is_rejected(&store, long).await;
        assert_eq!(read(&store, &name, None).await.0, before, "nothing was written");
    });
}

/// The text of a run of the greatest length is kept whole, and a longer one is refused with the job, never cut.
pub fn a_text_of_a_run_that_is_too_long_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("with a long text");
        let mut report = to_report(&name, 1, long_ttl(&store));
        let text = "ü".repeat(RunReport::MAX_TEXT_BYTES / 2) + "x";
        report.text = Some((text.clone() + "x").into());
        let error = store.report(report.clone()).await.expect_err("a byte too many");
        assert_eq!((error.kind, &error.topic), (StoreErrorKind::Rejected, &Some(Topic::from(&name))));
        report.text = Some(text.clone().into());
        for ttl in [Duration::ZERO, Duration::MAX] {
            let error = store.report(RunReport { ttl, ..report.clone() }).await.expect_err("out of bounds");
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
        }
        assert_eq!(runs(&store, &name).await, [], "nothing was written");
        assert_eq!(store.report(report).await, Ok(()));
        assert_eq!(runs(&store, &name).await.remove(0).text, Some(text));
    });
}
