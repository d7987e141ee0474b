//! What is too much or too little.

use std::time::Duration;

use tenure_core::Token;

use super::Harness;
use super::candidate::{Candidate, granted, lease, long_ttl, run};
use crate::{Limits, Metadata, Operation, Store, StoreErrorKind, Topic};

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
