//! What waiters hear on real servers, also when the connection is lost, and from programs that tell nobody.

#[macro_use]
mod common;

on_both! {
    a_release_between_a_failed_try_and_the_subscription_is_not_missed
    who_listens_is_connected_again_after_a_kill_and_hears_the_next_release
    who_listens_is_connected_again_after_the_server_was_started_again
    a_connection_that_died_unseen_is_replaced_by_one_that_hears
    the_end_of_a_foreign_lock_that_nobody_tells_is_noticed
    who_has_not_asked_for_longest_is_chosen_and_who_died_is_passed_over
    what_anybody_publishes_does_no_harm
    two_watches_of_one_lease_one_after_the_other_hear
    who_watches_no_more_leaves_nothing_behind
    what_is_watched_no_more_while_the_server_is_down_is_not_listened_to_again
    those_that_died_do_not_pile_up_while_a_lease_is_held
}

use std::time::Duration;

use common::{At, Candidate, Runtime, freed, hears, until};
use tenure_redis::RedisStore;
use tenure_servers::{Client, Flavour, Proxy, Redis};
use tenure_store::core::Wake;
use tenure_store::{Hint, Hints, Released, Renewed, Store, StoreErrorKind};

/// A server of one's own.
fn alone(flavour: Flavour, runtime: Runtime) -> At<Redis> {
    let server = Redis::of(flavour);
    At { runtime, url: server.url(), server }
}

fn listening<S>(at: &At<S>) -> (RedisStore, Hints) {
    let store = at.open("p");
    let hints = store.hints().expect("nobody listens yet");
    (store, hints)
}

async fn is_told_to_look(hints: &mut Hints) {
    hears(hints, "a gap", |hint| (*hint == Hint::Resync).then_some(())).await;
}

/// Closes all other connections.
fn kill_others(client: &mut Client) -> i64 {
    client.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).integer()
}

fn a_release_between_a_failed_try_and_the_subscription_is_not_missed(flavour: Flavour) {
    let at = At::shared(Runtime::tokio(), flavour);
    let prefix = common::prefix();
    at.runtime.block_on(async {
        let (holds, waits) = (at.open(&prefix), at.open(&prefix));
        let _hints = waits.hints();
        let (holder, waiter) = (Candidate::new("a", 1), Candidate::new("a", 2));
        let token = holder.gets(&holds).await;
        waiter.is_refused(&waits).await;
        holder.releases(&holds, token).await;
        waits.watch(waiter.name.clone()).await.unwrap();
        // Whoever has begun to watch tries again: nobody will tell of what was before.
        waiter.gets(&waits).await;
    });
}

fn who_listens_is_connected_again_after_a_kill_and_hears_the_next_release(flavour: Flavour) {
    for runtime in Runtime::each() {
        let at = alone(flavour, runtime);
        let mut client = at.server.client();
        at.runtime.block_on(async {
            let holds = at.open("p");
            let (waits, mut hints) = listening(&at);
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&holds).await;
            waits.watch(holder.name.clone()).await.unwrap();
            for _ in 0..3 {
                assert_eq!(kill_others(&mut client), 1, "one connection for all that is heard");
                is_told_to_look(&mut hints).await;
            }
            Candidate::new("a", 2).is_refused(&waits).await;
            assert_eq!(holder.releases(&holds, token).await, Released::Released { others_chosen: true });
            assert!(hears(&mut hints, "a release", freed(&holder.name)).await, "it is chosen");
        });
    }
}

fn who_listens_is_connected_again_after_the_server_was_started_again(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    at.runtime.block_on(async {
        let holds = at.open("p");
        let (waits, mut hints) = listening(&at);
        let names: Vec<Candidate> =
            (0..300).map(|number| Candidate::new(&format!("lease {number}"), 1)).collect();
        for one in &names {
            waits.watch(one.name.clone()).await.unwrap();
        }
        at.server.kill();
        at.server.restart();
        is_told_to_look(&mut hints).await;
        for one in [&names[0], &names[150], &names[299]] {
            let token = until("the server to be back", async || match one.tries(&holds).await {
                Ok(tenure_store::Acquired::Granted(token)) => Some(token),
                _ => None,
            })
            .await;
            one.releases(&holds, token).await;
            hears(&mut hints, "a release", freed(&one.name)).await;
        }
    });
}

fn a_connection_that_died_unseen_is_replaced_by_one_that_hears(flavour: Flavour) {
    let server = Redis::of(flavour);
    let proxy = Proxy::to(server.address());
    let at = At { runtime: Runtime::tokio(), url: proxy.url(), server };
    at.runtime.block_on(async {
        let (waits, mut hints) = listening(&at);
        let holder = Candidate::new("a", 1);
        waits.watch(holder.name.clone()).await.unwrap();
        proxy.stall();
        // What is lost now stays lost on that connection; a new one works.
        let mut lost = Box::pin(is_told_to_look(&mut hints));
        let passed = common::after(Duration::from_millis(200));
        let early = futures::future::select(&mut lost, Box::pin(passed)).await;
        assert!(matches!(early, futures::future::Either::Right(_)), "nobody can know yet");
        proxy.restore();
        lost.await;
        let direct = RedisStore::from_url(&format!("{}?prefix=p", at.server.url())).unwrap();
        let token = holder.gets(&direct).await;
        holder.releases(&direct, token).await;
        hears(&mut hints, "a release", freed(&holder.name)).await;
        assert!(proxy.accepted() >= 2);
    });
}

fn the_end_of_a_foreign_lock_that_nobody_tells_is_noticed(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    let mut client = at.server.client();
    at.runtime.block_on(async {
        let (waits, mut hints) = listening(&at);
        let (ours, beside) = (Candidate::new("a", 1), Candidate::new("b", 1));
        let holds = at.open("p");
        Candidate::new("b", 2).gets(&holds).await;
        client.command(&["SET", "p:a", "worker-3", "NX", "PX", "60000"]).ok();
        for one in [&ours, &beside] {
            waits.watch(one.name.clone()).await.unwrap();
            one.is_refused(&waits).await;
        }
        for _ in 0..2 {
            assert_eq!(client.command(&["DEL", "p:a"]).integer(), 1);
            assert!(!hears(&mut hints, "the end", freed(&ours.name)).await, "nobody was chosen");
            // Once told, and again when that other program has had it again.
            client.command(&["SET", "p:a", "worker-4", "NX", "PX", "60000"]).ok();
            ours.is_refused(&waits).await;
        }
        let looked = |client: &mut Client| {
            let stats = client.command(&["INFO", "commandstats"]).text();
            let line =
                stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls=").map(str::to_owned));
            line.unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
        };
        // Only that one is looked at, not the lease of one who will tell.
        waits.unwatch(ours.name.clone()).await;
        let before = looked(&mut client);
        let silence = futures::future::select(
            hints_of(&mut hints),
            Box::pin(common::after(Duration::from_millis(2500))),
        )
        .await;
        assert!(matches!(silence, futures::future::Either::Right(_)), "nothing has happened");
        assert_eq!(looked(&mut client), before);
    });
}

/// Polls the hints until one comes.
fn hints_of(hints: &mut Hints) -> std::pin::Pin<Box<dyn Future<Output = Option<Hint>> + '_>> {
    Box::pin(futures::StreamExt::next(hints))
}

fn who_has_not_asked_for_longest_is_chosen_and_who_died_is_passed_over(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    let mut client = at.server.client();
    at.runtime.block_on(async {
        let holds = at.open("p");
        let holder = Candidate::new("a", 1);
        let token = holder.gets(&holds).await;
        // Many that died, as they stand there once their time is over, before those that live.
        for number in 0..100 {
            client.command(&["ZADD", "p!waiters:a", "1000", &format!("dead {number}")]).integer();
        }
        let mut waiting = Vec::new();
        // They stand in line by until when the lease lasts for all that they know; one millisecond is as exact as that is.
        let lasts_longer = async || {
            common::after(Duration::from_millis(3)).await;
            assert_eq!(holder.renews(&holds, token).await, Renewed::Renewed);
        };
        for _ in 0..4 {
            let (store, hints) = listening(&at);
            store.watch(holder.name.clone()).await.unwrap();
            waiting.push((store, hints));
            lasts_longer().await;
        }
        // The second one asks again, and is the last one then.
        Candidate::new("a", 2).is_refused(&waiting[1].0).await;
        assert_eq!(holder.releases(&holds, token).await, Released::Released { others_chosen: true });
        let mut chosen = Vec::new();
        for (_, hints) in &mut waiting {
            chosen.push(hears(hints, "a release", freed(&holder.name)).await);
        }
        assert_eq!(chosen, [true, false, true, false]);
        assert_eq!(
            client.command(&["ZCARD", "p!waiters:a"]).integer(),
            2,
            "the dead are gone, and the chosen"
        );

        // Whoever takes it waits no more; the others are told that, and of the next release.
        let next = Candidate::new("a", 3);
        let token = next.gets(&waiting[1].0).await;
        let told = hears(&mut waiting[3].1, "a grant", |hint| match hint {
            Hint::Lease { wake: Wake::Held { token, ttl }, .. } => Some((*token, *ttl)),
            _ => None,
        })
        .await;
        assert_eq!(told, (token, next.ttl));
        assert_eq!(next.releases(&waiting[1].0, token).await, Released::Released { others_chosen: true });
        assert!(hears(&mut waiting[3].1, "a release", freed(&holder.name)).await);
    });
}

fn what_anybody_publishes_does_no_harm(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    let mut client = at.server.client();
    at.runtime.block_on(async {
        let (waits, mut hints) = listening(&at);
        let holder = Candidate::new("a", 1);
        waits.watch(holder.name.clone()).await.unwrap();
        for text in
            ["", "free", "held x", "held x y z", "held x 1 99999999999999999999", "nonsense \u{1f980}"]
        {
            assert_eq!(client.command(&["PUBLISH", "p!wake:a", text]).integer(), 1);
        }
        client.command(&["PUBLISH", "p!wake:a", "free x"]).integer();
        let first = hears(&mut hints, "anything", |hint| Some(hint.clone())).await;
        assert_eq!(first, Hint::Lease { name: holder.name.clone(), wake: Wake::Free { chosen: false } });
    });
}

fn two_watches_of_one_lease_one_after_the_other_hear(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    at.runtime.block_on(async {
        let holds = at.open("p");
        let (waits, mut hints) = listening(&at);
        let holder = Candidate::new("a", 1);
        for _ in 0..50 {
            let token = holder.gets(&holds).await;
            waits.watch(holder.name.clone()).await.unwrap();
            // The end of the one and the beginning of the next meet on the way.
            let ends = waits.unwatch(holder.name.clone());
            let (_, begins) = futures::join!(ends, waits.watch(holder.name.clone()));
            begins.unwrap();
            holder.releases(&holds, token).await;
            hears(&mut hints, "a release", |hint| match hint {
                Hint::Lease { wake: Wake::Free { .. }, .. } | Hint::Resync => Some(()),
                _ => None,
            })
            .await;
            waits.unwatch(holder.name.clone()).await;
        }
    });
}

fn who_watches_no_more_leaves_nothing_behind(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    let mut client = at.server.client();
    at.runtime.block_on(async {
        let holds = at.open("p");
        let (waits, _hints) = listening(&at);
        let holder = Candidate::new("a", 1);
        holder.gets(&holds).await;
        waits.watch(holder.name.clone()).await.unwrap();
        assert_eq!(client.command(&["PUBSUB", "CHANNELS"]).texts(), ["p!wake:a"]);
        waits.unwatch(holder.name.clone()).await;
        assert_eq!(client.command(&["PUBSUB", "CHANNELS"]).texts(), [""; 0]);
        assert_eq!(at.server.keys(), ["p!token", "p:a"]);
    });
}

fn what_is_watched_no_more_while_the_server_is_down_is_not_listened_to_again(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    at.runtime.block_on(async {
        let (waits, mut hints) = listening(&at);
        let (stays, goes) = (Candidate::new("stays", 1), Candidate::new("goes", 1));
        for one in [&stays, &goes] {
            waits.watch(one.name.clone()).await.unwrap();
        }
        at.server.kill();
        let unreachable = async || match stays.tries(&waits).await {
            Err(error) if error.kind == StoreErrorKind::Transient => Some(()),
            _ => None,
        };
        until("the loss to be noticed", unreachable).await;
        waits.unwatch(goes.name.clone()).await;
        at.server.restart();
        is_told_to_look(&mut hints).await;
        assert_eq!(at.server.command(&["PUBSUB", "CHANNELS"]).texts(), ["p!wake:stays"]);
    });
}

fn those_that_died_do_not_pile_up_while_a_lease_is_held(flavour: Flavour) {
    let at = alone(flavour, Runtime::tokio());
    let mut client = at.server.client();
    at.runtime.block_on(async {
        let holds = at.open("p");
        let holder = Candidate::new("a", 1);
        holder.gets(&holds).await;
        // As they stand there once their time is over.
        for number in 0..10 {
            client.command(&["ZADD", "p!waiters:a", "1000", &format!("dead {number}")]).integer();
        }
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let (store, hints) = listening(&at);
            store.watch(holder.name.clone()).await.unwrap();
            waiting.push((store, hints));
        }
        assert_eq!(client.command(&["ZCARD", "p!waiters:a"]).integer(), 2, "just those that wait");
    });
}
