//! Many operations in one request.

use std::time::Duration;

use tenure_core::Token;

use super::Harness;
use super::candidate::{Candidate, granted, held, lease, long_ttl, run_batch};
use crate::{Answer, Operation, Outcome, Released, Renewed, Store, StoreErrorKind};

/// What is refused in a batch has no effect on the rest of it, not even on the same lease.
pub fn a_refused_operation_leaves_its_neighbours_alone<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let held_before = Candidate::new(&lease("held before"), 1, 0, ttl);
        let token = held_before.gets(&store).await;
        let (first, last) =
            (Candidate::new(&lease("first"), 1, 1, ttl), Candidate::new(&lease("last"), 1, 2, ttl));
        let outcomes = run_batch(
            &store,
            vec![
                first.acquire().into(),
                held_before.with_ttl(Duration::ZERO).renew(token).into(),
                held_before.renew(token).into(),
                last.with_ttl(Duration::MAX).acquire().into(),
                last.acquire().into(),
            ],
        )
        .await;
        granted(&outcomes[0]);
        assert!(is_rejected(&outcomes[1]), "{outcomes:?}");
        assert_eq!(outcomes[2], Ok(Answer::Renew(Renewed::Renewed)));
        assert!(is_rejected(&outcomes[3]), "{outcomes:?}");
        granted(&outcomes[4]);
    });
}

fn is_rejected(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Rejected)
}

/// Operations on one lease are carried out in the order of the batch, whatever stands between them.
pub fn operations_on_one_lease_keep_their_order<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let name = lease("in order");
        let [a, b, c] = [1, 2, 3].map(|process| Candidate::new(&name, process, 0, ttl));
        let steps: [Operation; 7] = [
            a.acquire().into(),
            b.acquire().into(),
            a.release(None).into(),
            b.acquire().into(),
            c.acquire().into(),
            b.release(None).into(),
            c.acquire().into(),
        ];
        // Operations on other leases in between, two for each.
        let mut batch = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            batch.push(step);
            batch.push(Candidate::new(&lease(format!("beside {}", number % 4)), 4, 0, ttl).acquire().into());
        }
        let outcomes: Vec<_> = run_batch(&store, batch).await.into_iter().step_by(2).collect();
        let first = granted(&outcomes[0]);
        assert_eq!(held(outcomes[1].clone()).owner, a.owner.to_string());
        assert!(matches!(outcomes[2], Ok(Answer::Release(Released::Released { .. }))), "{outcomes:?}");
        let second = granted(&outcomes[3]);
        assert_eq!(held(outcomes[4].clone()).owner, b.owner.to_string());
        assert!(matches!(outcomes[5], Ok(Answer::Release(Released::Released { .. }))), "{outcomes:?}");
        let third = granted(&outcomes[6]);
        assert!(first < second && second < third, "{first} < {second} < {third}");
    });
}

/// As many operations as the store says that it takes at once get one outcome each, and each its own.
pub fn a_large_batch_answers_every_operation<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let size = store.limits().batch;
        assert!(size > 0, "a batch has room for something");
        let candidates: Vec<Candidate> = (0..size)
            .map(|number| {
                Candidate::new(&lease(format!("one of many {number}")), 1, number as u64, long_ttl(&store))
            })
            .collect();
        let tokens: Vec<Token> =
            run_batch(&store, candidates.iter().map(|one| one.acquire().into()).collect())
                .await
                .iter()
                .map(granted)
                .collect();

        // Every third one with a wrong token.
        let wrong = |number: usize| number % 3 == 1;
        let renewals = candidates.iter().zip(&tokens).enumerate().map(|(number, (one, token))| {
            one.renew(if wrong(number) { Token::new(token.get() + 1) } else { *token }).into()
        });
        for (number, outcome) in run_batch(&store, renewals.collect()).await.into_iter().enumerate() {
            let right = if wrong(number) { Renewed::NotYours } else { Renewed::Renewed };
            assert_eq!(outcome, Ok(Answer::Renew(right)), "renewal {number} of {size}");
        }

        let releases = candidates.iter().zip(&tokens).map(|(one, token)| one.release(Some(*token)).into());
        for (number, outcome) in run_batch(&store, releases.collect()).await.into_iter().enumerate() {
            let is_released = matches!(outcome, Ok(Answer::Release(Released::Released { .. })));
            assert!(is_released, "release {number} of {size}: {outcome:?}");
        }
        assert_eq!(store.list(None, 1).await, Ok(Vec::new()), "nothing is left");
    });
}
