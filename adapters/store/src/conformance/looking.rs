//! What people see of the leases.

use std::time::Duration;

use tenure_core::LeaseName;

use super::Harness;
use super::candidate::{Candidate, granted, lease, long_ttl, run, short_ttl, until_over};
use crate::{LeaseRecord, Store};

/// Whoever inspects or lists a lease learns its owner, its token, its TTL and its metadata, also after a
/// renewal; and a candidate that is refused learns who holds it.
pub fn inspect_tells_who_holds<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let other_handle = h.handle(&store).await;
        let ttl = long_ttl(&store);
        let holder = Candidate::new(&lease("inspected"), 1, 7, ttl);
        let mut request = holder.acquire();
        request.metadata.host = Some("höst.example".into());
        request.metadata.pid = Some(u32::MAX);
        request.metadata.text = Some("two\nlines, \"quoted\" \\ and 🦀".into());
        let token = granted(&run(&store, request.clone()).await);
        holder.renews(&store, token).await;

        let is_right = |record: &LeaseRecord| {
            let told = &record.holder;
            assert_eq!(record.name, holder.name);
            assert_eq!(told.owner, holder.owner.to_string());
            assert_eq!(told.token, Some(token));
            assert_eq!(told.ttl, Some(ttl));
            assert_eq!(told.metadata, request.metadata);
            assert_eq!(told.problem, None);
            is_possible(told.remaining, ttl);
        };
        for handle in [&store, &other_handle] {
            is_right(&handle.inspect(holder.name.clone()).await.expect("it works").expect("it is held"));
            let listed = handle.list(None, 10).await.expect("listing works");
            assert_eq!(listed.len(), 1, "{listed:?}");
            is_right(&listed[0]);
        }
        let refused = Candidate::new(&holder.name, 2, 0, ttl).is_refused(&store).await;
        assert_eq!((refused.owner, refused.token), (holder.owner.to_string(), Some(token)));
        is_possible(refused.remaining, ttl);
    });
}

/// A store that can't say what remains may say nothing, but nothing wrong: waiters sleep for so long.
fn is_possible(remaining: Option<Duration>, ttl: Duration) {
    if let Some(remaining) = remaining {
        assert!(!remaining.is_zero() && remaining <= ttl, "{remaining:?} can't remain of {ttl:?}");
    }
}

/// What was released, or has run out, is neither found nor listed.
pub fn what_is_over_is_not_listed<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("over");
        assert_eq!(store.inspect(name.clone()).await, Ok(None), "nobody has ever held it");
        assert_eq!(store.list(None, 10).await, Ok(Vec::new()));
        let released = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = released.gets(&store).await;
        released.gives_back(&store, token).await;
        assert_eq!(store.inspect(name.clone()).await, Ok(None), "it was released");
        assert_eq!(store.list(None, 10).await, Ok(Vec::new()));
        Candidate::new(&name, 2, 0, short_ttl::<H>(&store)).gets(&store).await;
        until_over(h, &store, &name).await;
        assert_eq!(store.list(None, 10).await, Ok(Vec::new()));
    });
}

/// A list is read in pages, in the order of the names' bytes, each lease once.
pub fn list_goes_page_by_page<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut names: Vec<LeaseName> =
            (0..25).map(|number| lease(format!("{}{number}", ["a", "B", "ä/"][number % 3]))).collect();
        for (name, n) in names.iter().zip(0..) {
            Candidate::new(name, 1, n, long_ttl(&store)).gets(&store).await;
        }
        names.sort();
        let page = async |after: Option<&LeaseName>, most| -> Vec<LeaseName> {
            let records = store.list(after.cloned(), most).await.expect("listing works");
            records.into_iter().map(|record| record.name).collect()
        };
        for most in [1, 7, 25, 26] {
            let mut read: Vec<LeaseName> = Vec::new();
            loop {
                let next = page(read.last(), most).await;
                assert!(next.len() <= most, "at most {most}: {next:?}");
                if next.is_empty() {
                    break;
                }
                read.extend(next);
                assert!(read.len() <= names.len(), "each lease once: {read:?}");
            }
            assert_eq!(read, names, "in pages of {most}");
        }
        assert_eq!(page(None, 0).await, []);
        assert_eq!(page(Some(&lease("a1000")), 1).await, [lease("a12")], "after a name that nobody holds");
    });
}
