//! When a lease ends by itself.

use super::Harness;
use super::candidate::{Candidate, lease, long_ttl, short_ttl, timing, until_over};
use crate::{Renewed, Store};

/// Once the TTL is over the lease is free, without anybody doing anything for it.
pub fn an_expired_lease_is_granted_to_the_next<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("expiring");
        let token = Candidate::new(&name, 1, 0, short_ttl::<H>(&store)).gets(&store).await;
        let (next, _) = Candidate::new(&name, 2, 0, long_ttl(&store)).takes_over(h, &store).await;
        assert!(next > token, "the next token {next} is above {token}");
    });
}

/// S1: as long as the holder relies on the lease (TTL, less the drift of the clocks, the store's grain and its
/// steps, counted from before the request was sent) nobody else gets it. The same after a renewal.
pub fn no_lease_is_granted_before_its_ttl_is_over<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = short_ttl::<H>(&store);
        let valid_for = timing(&store, ttl).valid_for();
        let mut renewed = 0;
        for number in 0..20 {
            let name = lease(format!("not early {number}"));
            let holder = Candidate::new(&name, 1, 0, ttl);
            let mut sent = h.now();
            let token = holder.gets(&store).await;
            if number > 0 {
                h.pass(ttl / 4).await;
                let sent_again = h.now();
                if holder.renews(&store, token).await == Renewed::Renewed {
                    sent = sent_again;
                    renewed += 1;
                }
            }
            let (_, taken) = Candidate::new(&name, 2, 0, ttl).takes_over(h, &store).await;
            let after = taken.saturating_since(sent);
            assert!(after >= valid_for, "granted {after:?} after the holder asked for {valid_for:?}");
            if renewed > 0 {
                return;
            }
        }
        panic!("no renewal came in time: use a longer Harness::TTL than {ttl:?}");
    });
}

/// S7: a renewal that comes too late finds nothing and makes nothing: not when the lease is free, not when
/// another has it, not after a release.
pub fn a_late_renewal_resurrects_nothing<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (short, long) = (short_ttl::<H>(&store), long_ttl(&store));

        let expired = Candidate::new(&lease("expired"), 1, 0, short);
        let token = expired.gets(&store).await;
        until_over(h, &store, &expired.name).await;
        assert_eq!(expired.renews(&store, token).await, Renewed::NotYours, "it has expired");
        assert_eq!(store.inspect(expired.name.clone()).await, Ok(None), "nothing came of the late renewal");
        Candidate::new(&expired.name, 2, 0, long).gets(&store).await;

        let succeeded = Candidate::new(&lease("succeeded"), 1, 0, short);
        let token = succeeded.gets(&store).await;
        let next = Candidate::new(&succeeded.name, 2, 0, long);
        let (next_token, _) = next.takes_over(h, &store).await;
        for late in [token, next_token] {
            assert_eq!(succeeded.renews(&store, late).await, Renewed::NotYours, "another has it");
        }
        assert_eq!(next.renews(&store, next_token).await, Renewed::Renewed, "and keeps it");
        next.gives_back(&store, next_token).await;
        assert_eq!(succeeded.renews(&store, token).await, Renewed::NotYours, "another had it");

        let released = Candidate::new(&lease("released"), 1, 0, long);
        let token = released.gets(&store).await;
        released.gives_back(&store, token).await;
        assert_eq!(released.renews(&store, token).await, Renewed::NotYours, "it was released");
        Candidate::new(&released.name, 2, 0, long).gets(&store).await;
    });
}

/// S6: the same owner may ask again after its grant is over: that is a new grant, with a new token.
pub fn a_grant_after_a_gap_has_a_new_token<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let owner = Candidate::new(&lease("with gaps"), 1, 0, short_ttl::<H>(&store));
        let first = owner.gets(&store).await;
        until_over(h, &store, &owner.name).await;
        let owner = owner.with_ttl(long_ttl(&store));
        let second = owner.gets(&store).await;
        assert!(second > first, "after expiry {second} is above {first}");
        owner.gives_back(&store, second).await;
        let third = owner.gets(&store).await;
        assert!(third > second, "after a release {third} is above {second}");
    });
}
