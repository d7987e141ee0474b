//! Who owns a lease.

use futures::future::join_all;
use tenure_core::Token;

use super::Harness;
use super::candidate::{Candidate, granted, held, lease, long_ttl, run, run_batch};
use crate::{Acquired, Answer, Released, Renewed};

/// S1: of fifty candidates in ten processes that try at the same time, one gets the lease, and the others are
/// told that it is held.
pub fn one_candidate_in_fifty_wins<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut handles = Vec::new();
        for _ in 0..10 {
            handles.push(h.handle(&store).await);
        }
        let ttl = long_ttl(&store);
        let name = lease("one of fifty");
        let tries = (0..50).map(|candidate: u16| {
            let handle = &handles[usize::from(candidate) % handles.len()];
            let acquire = Candidate::new(&name, candidate, 0, ttl).acquire();
            async move { run(handle, acquire).await }
        });
        let mut winners = Vec::new();
        let mut losers = Vec::new();
        for outcome in join_all(tries).await {
            match outcome {
                Ok(Answer::Acquire(Acquired::Granted(token))) => winners.push(token),
                other => losers.push(held(other)),
            }
        }
        assert_eq!(winners.len(), 1, "one candidate wins: {winners:?}");
        for loser in losers {
            assert!(loser.token.is_none_or(|token| token == winners[0]), "{loser:?} is not {winners:?}");
        }
    });
}

/// S8: an owner that asks again is told the same token: a retry of an acquire whose answer was lost finds its
/// grant.
pub fn acquire_is_idempotent_per_owner<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let other_handle = h.handle(&store).await;
        let owner = Candidate::new(&lease("asked again"), 1, 0, long_ttl(&store));
        let token = owner.gets(&store).await;
        assert_eq!(owner.gets(&store).await, token, "asked again");
        assert_eq!(owner.gets(&other_handle).await, token, "asked again on another connection");
        assert_eq!(owner.renews(&store, token).await, Renewed::Renewed);
        assert_eq!(owner.gets(&store).await, token, "asked again after a renewal");
    });
}

/// There is no re-entrancy: a second acquisition of the holder's own process is one more candidate, and so is
/// a process of the same name that was started again.
pub fn another_acquisition_of_the_same_process_is_a_stranger<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("no re-entrancy");
        let first = Candidate::new(&name, 1, 0, long_ttl(&store));
        let second = Candidate::new(&name, 1, 1, long_ttl(&store));
        let token = first.gets(&store).await;
        let holder = second.is_refused(&store).await;
        assert_eq!(holder.owner, first.owner.to_string());
        assert_eq!(second.renews(&store, token).await, Renewed::NotYours);
        assert_eq!(second.releases(&store, Some(token)).await, Released::NotYours);
        assert_eq!(first.renews(&store, token).await, Renewed::Renewed, "the first still has it");

        let restarted = first.restarted();
        assert_eq!(restarted.is_refused(&store).await.owner, first.owner.to_string());
        assert_eq!(restarted.renews(&store, token).await, Renewed::NotYours);
    });
}

/// Only the owner renews, and only with the token of its grant.
pub fn renew_checks_owner_and_token<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("renewed");
        let owner = Candidate::new(&name, 1, 0, long_ttl(&store));
        let stranger = Candidate::new(&name, 2, 0, long_ttl(&store));
        assert_eq!(owner.renews(&store, Token::new(1)).await, Renewed::NotYours, "nobody holds it");
        let token = owner.gets(&store).await;
        assert_eq!(stranger.renews(&store, token).await, Renewed::NotYours, "another owner");
        for wrong in wrong_tokens(token) {
            assert_eq!(owner.renews(&store, wrong).await, Renewed::NotYours, "{wrong} is not {token}");
        }
        assert_eq!(owner.renews(&store, token).await, Renewed::Renewed);
        assert_eq!(owner.gets(&store).await, token, "a renewal keeps the token");
    });
}

/// S9: only the owner releases, and only with the token of its grant if it names one.
pub fn release_checks_owner_and_token<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("released");
        let owner = Candidate::new(&name, 1, 0, long_ttl(&store));
        let stranger = Candidate::new(&name, 2, 0, long_ttl(&store));
        assert_eq!(owner.releases(&store, Some(Token::new(1))).await, Released::NotYours, "nobody holds it");
        let token = owner.gets(&store).await;
        assert_eq!(stranger.releases(&store, Some(token)).await, Released::NotYours, "another owner");
        for wrong in wrong_tokens(token) {
            assert_eq!(owner.releases(&store, Some(wrong)).await, Released::NotYours, "{wrong} not {token}");
        }
        stranger.is_refused(&store).await;
        owner.gives_back(&store, token).await;
        stranger.gets(&store).await;
    });
}

/// The release of a grant that never became known matches the owner alone, and nobody else.
pub fn release_without_a_token_checks_the_owner<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("released unseen");
        let owner = Candidate::new(&name, 1, 0, long_ttl(&store));
        let stranger = Candidate::new(&name, 2, 0, long_ttl(&store));
        assert_eq!(owner.releases(&store, None).await, Released::NotYours, "nobody holds it");
        owner.gets(&store).await;
        assert_eq!(stranger.releases(&store, None).await, Released::NotYours);
        stranger.is_refused(&store).await;
        assert_ne!(owner.releases(&store, None).await, Released::NotYours);
        stranger.gets(&store).await;
    });
}

/// S8: a request that arrives twice does no more than if it had arrived once.
pub fn executing_twice_equals_once<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("twice");
        let owner = Candidate::new(&name, 1, 0, long_ttl(&store));
        let next = Candidate::new(&name, 2, 0, long_ttl(&store));

        let twice = run_batch(&store, vec![owner.acquire().into(), owner.acquire().into()]).await;
        let token = granted(&twice[0]);
        assert_eq!(granted(&twice[1]), token, "one grant, one token");

        let renew = || owner.renew(token).into();
        let renewed = Ok(Answer::Renew(Renewed::Renewed));
        assert_eq!(run_batch(&store, vec![renew(), renew()]).await, [renewed.clone(), renewed]);
        assert_eq!(owner.gets(&store).await, token);

        let release = || owner.release(Some(token)).into();
        let released = run_batch(&store, vec![release(), release()]).await;
        assert!(matches!(released[0], Ok(Answer::Release(Released::Released { .. }))), "{released:?}");
        assert_eq!(released[1], Ok(Answer::Release(Released::NotYours)), "the second finds nothing");

        let next_token = next.gets(&store).await;
        assert_eq!(owner.releases(&store, Some(token)).await, Released::NotYours, "a third one, late");
        assert_eq!(next.renews(&store, next_token).await, Renewed::Renewed);
    });
}

/// S9: a release that comes late, with or without a token, never ends the grant of another owner, nor a later
/// grant of the same process.
pub fn a_release_never_ends_the_grant_of_another<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("handed on");
        let ttl = long_ttl(&store);
        let former = Candidate::new(&name, 1, 0, ttl);
        let former_token = former.gets(&store).await;
        former.gives_back(&store, former_token).await;
        for holder in [Candidate::new(&name, 2, 0, ttl), Candidate::new(&name, 1, 1, ttl)] {
            let token = holder.gets(&store).await;
            for late in [Some(former_token), Some(token), None] {
                assert_eq!(former.releases(&store, late).await, Released::NotYours, "{late:?}");
            }
            Candidate::new(&name, 3, 0, ttl).is_refused(&store).await;
            assert_eq!(holder.renews(&store, token).await, Renewed::Renewed, "{holder:?} still has it");
            holder.gives_back(&store, token).await;
        }
    });
}

fn wrong_tokens(token: Token) -> [Token; 4] {
    let token = token.get();
    [token.saturating_sub(1), token.saturating_add(1), 0, u64::MAX].map(Token::new)
}
