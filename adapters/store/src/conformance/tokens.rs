//! What tokens promise.

use tenure_core::Token;

use super::Harness;
use super::candidate::{Candidate, granted, lease, long_ttl, run, short_ttl};
use crate::{Eviction, Renewed, Store, StoreErrorKind};

/// S6: each grant's token is above that of the grant before, whether that was released or ran out.
pub fn tokens_rise_over_release_and_expiry<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("rising");
        let mut highest = Token::ZERO;
        for process in 0..5 {
            let holder = Candidate::new(&name, process, 0, long_ttl(&store));
            let token = holder.gets(&store).await;
            assert!(token > highest, "after a release {token} is above {highest}");
            highest = token;
            holder.gives_back(&store, token).await;
        }
        for process in 5..7 {
            let holder = Candidate::new(&name, process, 0, short_ttl::<H>(&store));
            let (token, _) = holder.takes_over(h, &store).await;
            assert!(token > highest, "after expiry {token} is above {highest}");
            highest = token;
        }
    });
}

/// S6: each grant's token is above that of a grant that an operator ended.
pub fn tokens_rise_over_eviction<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("rising over evictions");
        let mut highest = Token::ZERO;
        for (process, how) in [(1, Eviction::Delete), (2, Eviction::Replace), (3, Eviction::Delete)] {
            let holder = Candidate::new(&name, process, 0, short_ttl::<H>(&store));
            let (token, _) = holder.takes_over(h, &store).await;
            assert!(token > highest, "{token} is above {highest}");
            highest = token;
            // It may have run out by now, which is as good.
            store.evict(name.clone(), how).await.expect("evicting works");
        }
        let (token, _) = Candidate::new(&name, 4, 0, long_ttl(&store)).takes_over(h, &store).await;
        assert!(token > highest, "{token} is above {highest}");
    });
}

/// S6: each grant's token is above those from before a restart.
pub fn tokens_rise_over_reopening<H: Harness>(h: &H) {
    h.block_on(async {
        let mut store = h.fresh().await;
        let name = lease("rising over restarts");
        let mut highest = Token::ZERO;
        for process in 0..3 {
            let holder = Candidate::new(&name, process, 0, long_ttl(&store));
            let token = holder.gets(&store).await;
            assert!(token > highest, "after a restart {token} is above {highest}");
            highest = token;
            holder.gives_back(&store, token).await;
            store.close().await;
            store = h.reopen(store).await;
        }
    });
}

/// A lease that is held when the store is started again is held afterwards, by the same owner.
pub fn reopening_keeps_what_is_held<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("held over a restart");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        store.close().await;
        let store = h.reopen(store).await;
        let refused = Candidate::new(&name, 2, 0, long_ttl(&store)).is_refused(&store).await;
        assert_eq!(refused.owner, holder.owner.to_string());
        assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
    });
}

/// S6: a grant's token is above the floor that the request names, and those after it too.
pub fn tokens_lie_above_the_floor<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("above the floor");
        let first = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = first.gets(&store).await;
        first.gives_back(&store, token).await;

        let floor = Token::new(token.get() + 1_000_000_000);
        let second = Candidate::new(&name, 2, 0, long_ttl(&store));
        let mut request = second.acquire();
        request.floor = floor;
        let token = granted(&run(&store, request).await);
        assert!(token > floor, "{token} is above the floor {floor}");
        second.gives_back(&store, token).await;

        let third = Candidate::new(&name, 3, 0, long_ttl(&store)).gets(&store).await;
        assert!(third > token, "{third} is above {token}");
    });
}

/// A floor with no room above it is refused, and spoils nothing for those who come after.
pub fn a_floor_near_the_maximum_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("far too high");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let before = holder.gets(&store).await;
        holder.gives_back(&store, before).await;
        for floor in [u64::MAX, u64::MAX - 1] {
            let mut request = Candidate::new(&name, 2, 0, long_ttl(&store)).acquire();
            request.floor = Token::new(floor);
            match run(&store, request).await {
                Err(error) => assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}"),
                Ok(answer) => panic!("a floor of {floor} was answered with {answer:?}"),
            }
        }
        let after = Candidate::new(&name, 3, 0, long_ttl(&store)).gets(&store).await;
        assert!(after > before, "{after} is above {before}");
        assert!(after.get() < u64::MAX / 2, "{after} leaves room for those to come");
    });
}
