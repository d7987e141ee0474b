//! How an operator takes a lease away.

use super::Harness;
use super::candidate::{Candidate, lease, long_ttl, short_ttl, timing};
use crate::{Eviction, Released, Renewed, Store};

/// A holder whose owner was replaced can neither renew, release nor confirm, and nobody else gets the lease
/// before the holder must have stopped.
pub fn a_replaced_owner_is_refused_and_the_lease_stays_closed<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("replaced");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let next = Candidate::new(&name, 2, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        let evicted = store.evict(name.clone(), Eviction::Replace).await.expect("evicting works");
        let evicted = evicted.expect("it was held").holder;
        assert_eq!((evicted.owner, evicted.token), (holder.owner.to_string(), Some(token)));

        assert_eq!(holder.renews(&store, token).await, Renewed::NotYours);
        assert_eq!(holder.releases(&store, Some(token)).await, Released::NotYours);
        assert_eq!(holder.releases(&store, None).await, Released::NotYours);
        holder.is_refused(&store).await;
        let in_place = next.is_refused(&store).await;
        assert_ne!(in_place.owner, holder.owner.to_string());
        assert!(in_place.token.is_none_or(|kept| kept == token), "{in_place:?} kept {token}");

        // The TTL goes on as it was.
        let ttl = short_ttl::<H>(&store);
        let holder = Candidate::new(&lease("replaced and over"), 1, 0, ttl);
        let sent = h.now();
        let token = holder.gets(&store).await;
        store.evict(holder.name.clone(), Eviction::Replace).await.expect("evicting works");
        let next = Candidate::new(&holder.name, 2, 0, ttl);
        let (next_token, taken) = next.takes_over(h, &store).await;
        let (after, valid_for) = (taken.saturating_since(sent), timing(&store, ttl).valid_for());
        assert!(after >= valid_for, "granted {after:?} after the evicted holder asked for {valid_for:?}");
        assert!(next_token > token, "{next_token} is above {token}");
    });
}

/// A lease that was deleted is granted at once, with a higher token, and its former holder is refused.
pub fn a_deleted_lease_is_free_at_once<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("deleted");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        let evicted = store.evict(name.clone(), Eviction::Delete).await.expect("evicting works");
        assert_eq!(evicted.map(|record| record.holder.owner), Some(holder.owner.to_string()));
        assert_eq!(store.inspect(name.clone()).await, Ok(None));
        assert_eq!(holder.renews(&store, token).await, Renewed::NotYours, "nobody has it");
        let next = Candidate::new(&name, 2, 0, long_ttl(&store));
        let next_token = next.gets(&store).await;
        assert!(next_token > token, "{next_token} is above {token}");
        assert_eq!(holder.renews(&store, token).await, Renewed::NotYours, "another has it");
        assert_eq!(holder.releases(&store, None).await, Released::NotYours);
        assert_eq!(next.renews(&store, next_token).await, Renewed::Renewed);
    });
}

/// Evicting where nobody holds says so, and leaves the lease free.
pub fn evicting_nobody_changes_nothing<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("held by nobody");
        for how in [Eviction::Replace, Eviction::Delete] {
            assert_eq!(store.evict(name.clone(), how).await, Ok(None));
            assert_eq!(store.inspect(name.clone()).await, Ok(None));
        }
        Candidate::new(&name, 1, 0, long_ttl(&store)).gets(&store).await;
    });
}
