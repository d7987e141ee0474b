//! What claims of ticks promise.

use futures::future::join_all;
use tenure_core::{ClaimEnd, Overlap, PeriodicOptions, Token};

use super::Harness;
use super::candidate::{PATIENCE, long_ttl, short_ttl, timing};
use super::claimant::{Claimant, read, with_timer};
use crate::{Store, TimerAnswer};

/// T2: of fifty that claim a tick at the same time, one gets it.
pub fn one_claimant_in_fifty_gets_a_tick<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "one of fifty").await;
        let mut handles = Vec::new();
        for _ in 0..10 {
            handles.push(h.handle(&store).await);
        }
        let claims = (0..50_u16).map(|process| {
            let handle = &handles[usize::from(process) % handles.len()];
            let claimant = Claimant::new(&name, process, long_ttl(&store));
            async move { claimant.claims(handle, 1).await }
        });
        let answers = join_all(claims).await;
        let granted = answers.iter().filter(|answer| matches!(answer, TimerAnswer::Granted(_))).count();
        assert_eq!(granted, 1, "one gets it: {answers:?}");
        let taken = answers.iter().filter(|answer| **answer == TimerAnswer::Taken).count();
        assert_eq!(taken, 49, "it is tried once only, so for the others that is the end: {answers:?}");
    });
}

/// Who asks again, since the answer was lost, gets the same token again and the whole TTL.
pub fn a_claim_is_idempotent_per_owner<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "asked again").await;
        let claimant = Claimant::new(&name, 1, long_ttl(&store));
        let token = claimant.gets(&store, 1).await;
        let other = h.handle(&store).await;
        assert_eq!(claimant.gets(&other, 1).await, token);
        let (view, _) = read(&store, &name, None).await;
        assert_eq!((view.claimed, view.unfinished), (1, vec![1]));
    });
}

/// T2: nothing below the last tick that was claimed is ever granted, whatever became of it.
pub fn a_lower_tick_is_never_granted<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "in order").await;
        let [first, second] = [1, 2].map(|process| Claimant::new(&name, process, long_ttl(&store)));
        let token = first.gets(&store, 5).await;
        let all = async || {
            for tick in 0..=5 {
                assert_eq!(second.claims(&store, tick).await, TimerAnswer::Taken, "tick {tick}");
            }
        };
        all().await;
        first.ends_its_own(&store, 5, token, ClaimEnd::Finished).await;
        all().await;
        assert_eq!(first.claims(&store, 5).await, TimerAnswer::Taken, "it has finished it");
        second.gets(&store, 6).await;
    });
}

/// A tick of one attempt is not granted again when its claim runs out; one of two is, once.
pub fn a_claim_that_ran_out_is_granted_again_while_attempts_are_left<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "attempts").await;
        let ttl = short_ttl::<H>(&store);
        let twice = |process| Claimant::new(&name, process, ttl).attempts(2);
        let first = twice(1).gets(&store, 1).await;
        let (second, _) = twice(2).takes_over(h, &store, 1).await;
        assert!(second > first, "the next token {second} is above {first}");
        assert_eq!(twice(1).renews(&store, 1, first).await, TimerAnswer::NotYours);
        let third = twice(3);
        let limit = h.now() + timing(&store, ttl).outlived_after() + PATIENCE;
        loop {
            match third.claims(&store, 1).await {
                TimerAnswer::Taken => break,
                TimerAnswer::Held { .. } => assert!(h.now() < limit, "it did not run out"),
                other => panic!("no third run was to be begun, but the answer is {other:?}"),
            }
            h.pass(ttl / 20).await;
        }

        let once = |process| Claimant::new(&name, process, ttl);
        let token = once(1).gets(&store, 2).await;
        h.pass(timing(&store, ttl).outlived_after()).await;
        assert_eq!(once(1).renews(&store, 2, token).await, TimerAnswer::NotYours, "it is over");
        for claimant in [once(2), once(2).attempts(5)] {
            assert_eq!(claimant.claims(&store, 2).await, TimerAnswer::Taken, "{claimant:?}");
        }
    });
}

/// An owner that asks again once its claim has run out asks for another attempt: it may have begun under the earlier
/// grant, of which its own answer speaks no more. So what it gives back unbegun frees no attempt of that one.
pub fn asking_again_after_a_claim_ran_out_is_another_attempt<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "asked again too late").await;
        let ttl = short_ttl::<H>(&store);
        let outlived = timing(&store, ttl).outlived_after();

        let once = |process| Claimant::new(&name, process, ttl);
        once(1).gets(&store, 1).await;
        h.pass(outlived).await;
        assert_eq!(once(1).claims(&store, 1).await, TimerAnswer::Taken, "its one attempt was made");

        let twice = |process| Claimant::new(&name, process, ttl).attempts(2);
        let first = twice(1).gets(&store, 2).await;
        h.pass(outlived).await;
        let second = twice(1).gets(&store, 2).await;
        assert!(second > first, "the next token {second} is above {first}");
        h.pass(outlived).await;
        assert_eq!(twice(1).claims(&store, 2).await, TimerAnswer::Taken, "both attempts were made");

        let first = twice(1).gets(&store, 3).await;
        h.pass(outlived).await;
        let second = twice(1).gets(&store, 3).await;
        assert_eq!(twice(1).ends(&store, 3, Some(first), ClaimEnd::NotStarted).await, TimerAnswer::NotYours);
        twice(1).ends_its_own(&store, 3, second, ClaimEnd::NotStarted).await;
        let third = twice(2).gets(&store, 3).await;
        twice(2).ends_its_own(&store, 3, third, ClaimEnd::Interrupted).await;
        assert_eq!(
            twice(3).claims(&store, 3).await,
            TimerAnswer::Taken,
            "the first grant was an attempt, too"
        );
    });
}

/// S1: as long as the owner of a claim relies on it nobody else gets the tick. The same after a renewal.
pub fn no_claim_passes_on_before_its_ttl_is_over<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "not early").await;
        let ttl = short_ttl::<H>(&store);
        let valid_for = timing(&store, ttl).valid_for();
        for tick in 1..20 {
            let owner = Claimant::new(&name, 1, ttl).attempts(2);
            let mut sent = h.now();
            let token = owner.gets(&store, tick).await;
            let mut renewed = false;
            if tick > 1 {
                h.pass(ttl / 4).await;
                let sent_again = h.now();
                if owner.renews(&store, tick, token).await == TimerAnswer::Renewed {
                    (sent, renewed) = (sent_again, true);
                }
            }
            let next = Claimant::new(&name, 2, ttl).attempts(2);
            let (token, taken) = next.takes_over(h, &store, tick).await;
            let after = taken.saturating_since(sent);
            assert!(after >= valid_for, "granted {after:?} after the owner asked for {valid_for:?}");
            if renewed {
                return;
            }
            next.ends(&store, tick, Some(token), ClaimEnd::Finished).await;
        }
        panic!("no renewal came in time: use a longer Harness::TTL than {ttl:?}");
    });
}

/// Only the owner with its token renews a claim, and only the owner, with its token or without, ends it.
pub fn a_claim_is_renewed_and_ended_by_its_owner_alone<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "owned").await;
        let [owner, other] = [1, 2].map(|process| Claimant::new(&name, process, long_ttl(&store)));
        let token = owner.gets(&store, 1).await;
        let wrong = Token::new(token.get() + 1);
        assert_eq!(owner.renews(&store, 1, wrong).await, TimerAnswer::NotYours);
        assert_eq!(owner.renews(&store, 2, token).await, TimerAnswer::NotYours, "of another tick");
        assert_eq!(other.renews(&store, 1, token).await, TimerAnswer::NotYours);
        for token in [None, Some(token)] {
            let answer = other.ends(&store, 1, token, ClaimEnd::Finished).await;
            assert_eq!(answer, TimerAnswer::NotYours, "it is not the other's, {token:?}");
        }
        assert_eq!(owner.ends(&store, 1, Some(wrong), ClaimEnd::Finished).await, TimerAnswer::NotYours);
        assert_eq!(owner.renews(&store, 1, token).await, TimerAnswer::Renewed, "it is as it was");
        assert_eq!(owner.ends(&store, 1, None, ClaimEnd::Finished).await, TimerAnswer::Removed);
        assert_eq!(owner.ends(&store, 1, None, ClaimEnd::Finished).await, TimerAnswer::NotYours);
        assert_eq!(owner.renews(&store, 1, token).await, TimerAnswer::NotYours, "never made again");
    });
}

/// However late an end comes, it does not end the claim of the next who has the tick, nor count against it.
pub fn a_late_end_never_ends_the_claim_of_another<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "ended late").await;
        let [first, second, third] =
            [1, 2, 3].map(|process| Claimant::new(&name, process, long_ttl(&store)).attempts(2));
        let token = first.gets(&store, 1).await;
        first.ends_its_own(&store, 1, token, ClaimEnd::Interrupted).await;
        let next = second.gets(&store, 1).await;
        for end in [ClaimEnd::Interrupted, ClaimEnd::NotStarted, ClaimEnd::Finished] {
            for token in [None, Some(token)] {
                assert_eq!(first.ends(&store, 1, token, end).await, TimerAnswer::NotYours, "{end:?}");
            }
        }
        assert_eq!(second.renews(&store, 1, next).await, TimerAnswer::Renewed);
        second.ends_its_own(&store, 1, next, ClaimEnd::Interrupted).await;
        assert_eq!(third.claims(&store, 1).await, TimerAnswer::Taken, "both attempts were made");
    });
}

/// A tick whose owner gives it back unbegun is there for others at once; that was no attempt. Once begun it was one.
pub fn a_tick_that_was_never_begun_is_granted_again<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "never begun").await;
        let [first, second, third] = [1, 2, 3].map(|process| Claimant::new(&name, process, long_ttl(&store)));
        let token = first.gets(&store, 1).await;
        first.ends_its_own(&store, 1, token, ClaimEnd::NotStarted).await;
        assert_eq!(read(&store, &name, None).await.0.unfinished, [1]);
        let next = second.gets(&store, 1).await;
        assert!(next > token, "the next token {next} is above {token}");
        second.ends_its_own(&store, 1, next, ClaimEnd::Interrupted).await;
        assert_eq!(third.claims(&store, 1).await, TimerAnswer::Taken);
        assert_eq!(read(&store, &name, None).await.0.unfinished, [], "nothing is left of it");
    });
}

/// While a run goes on, on whatever instance, the next tick is passed over for good, waits, or runs beside it.
pub fn overlapping_ticks_are_skipped_or_wait_or_run<H: Harness>(h: &H) {
    h.block_on(async {
        for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
            let (store, name) = with_timer(h, "overlapping").await;
            let [first, second] =
                [1, 2].map(|process| Claimant::new(&name, process, long_ttl(&store)).overlap(overlap));
            let token = first.gets(&store, 1).await;
            let answer = second.claims(&h.handle(&store).await, 2).await;
            let as_it_should_be = match (overlap, &answer) {
                (Overlap::Skip, TimerAnswer::Overlaps) => true,
                (Overlap::Queue, TimerAnswer::Held { token: held, remaining }) => {
                    *held == token && *remaining <= first.ttl && *remaining > first.ttl / 2
                }
                (Overlap::Allow, TimerAnswer::Granted(other)) => *other > token,
                _ => false,
            };
            assert!(as_it_should_be, "{overlap:?}: {answer:?}");
            first.ends_its_own(&store, 1, token, ClaimEnd::Finished).await;
            match overlap {
                Overlap::Skip => assert_eq!(second.claims(&store, 2).await, TimerAnswer::Taken),
                Overlap::Queue | Overlap::Allow => drop(second.gets(&store, 2).await),
            }
            assert_eq!(read(&store, &name, None).await.0.claimed, 2);
        }
    });
}

/// S6: each claim's token is above those of all earlier claims of the timer, and above the floor that is asked for.
pub fn tokens_of_claims_rise<H: Harness>(h: &H) {
    h.block_on(async {
        let (mut store, name) = with_timer(h, "rising").await;
        let mut highest = Token::ZERO;
        for tick in 1..6 {
            let claimant = Claimant::new(&name, 1, long_ttl(&store));
            let token = claimant.gets(&store, tick).await;
            assert!(token > highest, "{token} is above {highest}");
            highest = token;
            claimant.ends_its_own(&store, tick, token, ClaimEnd::Finished).await;
            if tick == 3 {
                store.close().await;
                store = h.reopen(store).await;
                read(&store, &name, Some(tick)).await;
            }
        }
    });
}

/// A restart of the programs and the store ends no claim, and makes no tick free.
pub fn reopening_keeps_claims<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "kept").await;
        let owner = Claimant::new(&name, 1, long_ttl(&store)).attempts(3);
        let token = owner.gets(&store, 2).await;
        store.close().await;
        let store = h.reopen(store).await;
        assert_eq!(Claimant::new(&name, 2, long_ttl(&store)).claims(&store, 2).await, TimerAnswer::Taken);
        assert_eq!(Claimant::new(&name, 2, long_ttl(&store)).claims(&store, 1).await, TimerAnswer::Taken);
        assert_eq!(owner.gets(&store, 2).await, token);
        assert_eq!(owner.renews(&store, 2, token).await, TimerAnswer::Renewed);
        assert_eq!(owner.ends(&store, 2, Some(token), ClaimEnd::Interrupted).await, TimerAnswer::Removed);
        assert_eq!(read(&store, &name, None).await.0.unfinished, [2], "two attempts are left");
    });
}

/// A record stays small: so many runs go on side by side, and no more.
pub fn only_so_many_runs_go_on_side_by_side<H: Harness>(h: &H) {
    h.block_on(async {
        let (store, name) = with_timer(h, "side by side").await;
        let most = PeriodicOptions::MOST_RUNS as u64;
        let claimant =
            |tick: u64| Claimant::new(&name, tick as u16, long_ttl(&store)).overlap(Overlap::Allow);
        let mut tokens = Vec::new();
        for tick in 1..=most {
            tokens.push(claimant(tick).gets(&store, tick).await);
        }
        let next = most + 1;
        assert_eq!(claimant(next).claims(&store, next).await, TimerAnswer::Overlaps);
        claimant(1).ends_its_own(&store, 1, tokens[0], ClaimEnd::Finished).await;
        claimant(next + 1).gets(&store, next + 1).await;
        let (view, _) = read(&store, &name, None).await;
        let unfinished: Vec<u64> = (2..=most).chain([next + 1]).collect();
        assert_eq!(view.unfinished, unfinished, "oldest first");
    });
}
