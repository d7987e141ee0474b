//! Leases on real servers: beside programs that know nothing of Tenure, and on servers that are full or empty.

#[macro_use]
mod common;

/// What a program does that locks with plain commands: `SET NX PX`, and scripts that check the owner.
mod plain {
    use tenure_servers::{Client, Reply};

    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                          return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    pub(super) fn acquires(client: &mut Client, key: &str, owner: &str) -> bool {
        client.command(&["SET", key, owner, "NX", "PX", "60000"]) != Reply::Nil
    }

    pub(super) fn releases(client: &mut Client, key: &str, owner: &str) -> bool {
        client.command(&["EVAL", RELEASE, "1", key, owner]).integer() == 1
    }

    pub(super) fn extends(client: &mut Client, key: &str, owner: &str) -> bool {
        client.command(&["EVAL", EXTEND, "1", key, owner, "60000"]).integer() == 1
    }
}

on_both! {
    a_program_that_locks_with_plain_commands_and_we_exclude_each_other
    a_value_without_a_ttl_is_refused_and_named
    a_key_of_another_type_is_refused_and_named
    among_many_renewals_what_is_not_ours_concerns_no_other
    tokens_rise_over_a_server_that_lost_everything
    no_token_is_made_out_of_a_high_water_that_is_none
    a_full_server_lets_holders_renew_and_release_and_takes_no_new_ones
    nothing_without_a_ttl_is_left_but_the_high_water
    an_evicted_lease_keeps_its_ttl_and_what_has_none_is_only_deleted
    a_record_of_a_newer_format_is_held_and_says_so
    what_is_renewed_lives_as_long_as_was_asked_for
    ten_thousand_leases_that_are_over_leave_the_server_as_it_was
    one_renewal_that_has_no_time_left_does_not_fail_those_beside_it
    who_waits_for_a_key_that_lasts_for_ages_is_told_so
}

use std::time::Duration;

use common::{At, Candidate, Runtime, prefix, run_batch};
use tenure_redis::RedisStore;
use tenure_servers::{Client, Config, Flavour, Proxy, Redis};
use tenure_store::core::{LeaseName, Token};
use tenure_store::{
    Acquired, Answer, Eviction, Operation, Released, Renew, Renewed, Store, StoreErrorKind, Topic,
};

/// A store with a prefix of its own on the server that all share, and a plain connection to that.
struct Place {
    at: At<std::sync::Arc<Redis>>,
    prefix: String,
    store: RedisStore,
    client: Client,
}

impl Place {
    fn new(flavour: Flavour) -> Self {
        let at = At::shared(Runtime::tokio(), flavour);
        let (prefix, client) = (prefix(), at.server.client());
        let store = at.open(&prefix);
        Self { at, prefix, store, client }
    }

    fn key(&self, lease: &str) -> String {
        format!("{}:{lease}", self.prefix)
    }

    /// All keys of this prefix.
    fn keys(&self) -> Vec<String> {
        let mut keys = self.at.server.keys();
        keys.retain(|key| key.starts_with(&self.prefix));
        keys
    }
}

fn a_program_that_locks_with_plain_commands_and_we_exclude_each_other(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let key = place.key("shared");
    let Place { at, store, client, .. } = &mut place;
    at.runtime.block_on(async {
        let ours = Candidate::new("shared", 1);
        assert!(plain::acquires(client, &key, "3f0e-worker"));
        let holder = ours.is_refused(store).await;
        assert_eq!((holder.owner.as_str(), holder.token), ("3f0e-worker", None));
        assert!(holder.problem.is_some_and(|problem| problem.contains("another program")));
        let left = holder.remaining.expect("it has a TTL");
        assert!(left > Duration::from_secs(30) && left <= Duration::from_secs(60), "{left:?}");
        assert_eq!(ours.renews(store, Token::new(1)).await, Renewed::NotYours);
        assert_eq!(ours.releases(store, Token::new(1)).await, Released::NotYours);
        assert!(plain::extends(client, &key, "3f0e-worker"), "we have left it alone");
        let listed = store.list(None, 10).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].name.as_str(), listed[0].holder.owner.as_str()), ("shared", "3f0e-worker"));
        assert!(plain::releases(client, &key, "3f0e-worker"));

        let token = ours.gets(store).await;
        assert!(!plain::acquires(client, &key, "3f0e-worker"));
        assert!(!plain::extends(client, &key, "3f0e-worker"));
        assert!(!plain::releases(client, &key, "3f0e-worker"));
        let value = client.command(&["GET", &key]).text();
        let first = value.lines().next().unwrap();
        assert_eq!(first, format!("{token}:{}", ours.owner), "GET shows the holder: {value}");
        assert_eq!(ours.renews(store, token).await, Renewed::Renewed, "it has left us alone");
        assert_ne!(ours.releases(store, token).await, Released::NotYours);
        assert!(plain::acquires(client, &key, "another"));
    });
}

fn a_value_without_a_ttl_is_refused_and_named(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let key = place.key("endless");
    let Place { at, store, client, .. } = &mut place;
    client.command(&["SET", &key, "worker-9"]).ok();
    at.runtime.block_on(async {
        let ours = Candidate::new("endless", 1);
        let error = ours.tries(store).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected);
        assert_eq!(error.topic, Some(Topic::from(&ours.name)));
        for part in [&key, "worker-9", "no TTL", "delete the key"] {
            assert!(error.message.contains(part), "{error}");
        }
        let found = store.inspect(ours.name.clone()).await.unwrap().expect("somebody has it");
        assert_eq!(found.holder.remaining, None);
        assert!(found.holder.problem.is_some_and(|problem| problem.contains("no TTL")));
        client.command(&["DEL", &key]).integer();

        // Somebody has taken the TTL from one of ours: nobody else waits for ever, and its holder mends it.
        let token = ours.gets(store).await;
        client.command(&["PERSIST", &key]).integer();
        let error = Candidate::new("endless", 2).tries(store).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected);
        assert_eq!(ours.renews(store, token).await, Renewed::Renewed);
        assert!(client.command(&["PTTL", &key]).integer() > 0);
    });
}

fn a_key_of_another_type_is_refused_and_named(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let key = place.key("list");
    let Place { at, store, client, .. } = &mut place;
    client.command(&["LPUSH", &key, "x"]).integer();
    at.runtime.block_on(async {
        let ours = Candidate::new("list", 1);
        let error = ours.tries(store).await.unwrap_err();
        assert_eq!((error.kind, &error.topic), (StoreErrorKind::Rejected, &Some(Topic::from(&ours.name))));
        for part in [&key, "does not hold a string", "prefix"] {
            assert!(error.message.contains(part), "{error}");
        }
        assert_eq!(ours.renews(store, Token::new(1)).await, Renewed::NotYours);
        assert_eq!(ours.releases(store, Token::new(1)).await, Released::NotYours);
        for how in [Eviction::Replace, Eviction::Delete] {
            let error = store.evict(ours.name.clone(), how).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected);
        }
        let beside = Candidate::new("beside", 1);
        beside.gets(store).await;
        let listed = store.list(None, 10).await.unwrap();
        assert_eq!(listed.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["beside", "list"]);
        assert!(listed[1].holder.problem.as_ref().is_some_and(|problem| problem.contains("not a string")));
        assert_eq!(client.command(&["LLEN", &key]).integer(), 1, "it is as it was");
    });
}

fn among_many_renewals_what_is_not_ours_concerns_no_other(flavour: Flavour) {
    let server = Redis::of(flavour);
    let (list, foreign, gone) = ("p:lease 7", "p:lease 300", "p:lease 599");
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let (store, client) = (&at.open("p"), &mut at.server.client());
    at.runtime.block_on(async {
        let candidates: Vec<Candidate> =
            (0..600).map(|number| Candidate::new(&format!("lease {number}"), 1)).collect();
        let batch = candidates.iter().map(|one| one.acquire().into()).collect();
        let tokens: Vec<Token> = run_batch(store, batch)
            .await
            .into_iter()
            .map(|outcome| match outcome {
                Ok(Answer::Acquire(Acquired::Granted(token))) => token,
                other => panic!("{other:?}"),
            })
            .collect();
        for key in [list, foreign, gone] {
            assert_eq!(client.command(&["DEL", key]).integer(), 1);
        }
        client.command(&["LPUSH", list, "x"]).integer();
        assert!(plain::acquires(client, foreign, "worker"));

        let mut batch: Vec<Operation> =
            candidates.iter().zip(&tokens).map(|(one, token)| one.renew(*token).into()).collect();
        let Operation::Renew(too_long) = &mut batch[5] else { unreachable!("all are renewals") };
        too_long.ttl = Duration::MAX;
        // Those of one lease keep their order, and travel by themselves.
        batch.push(candidates[3].renew(tokens[3]).into());
        batch.push(Candidate::new("new", 1).acquire().into());
        // Once, so that the server has the script.
        assert_eq!(candidates[0].renews(store, tokens[0]).await, Renewed::Renewed);
        let before = calls(client);
        let outcomes = run_batch(store, batch).await;
        let calls = calls(client) - before;
        for (number, outcome) in outcomes.iter().take(601).enumerate() {
            match number {
                5 => assert_eq!(outcome.as_ref().unwrap_err().kind, StoreErrorKind::Rejected),
                7 | 300 | 599 => assert_eq!(outcome, &Ok(Answer::Renew(Renewed::NotYours)), "{number}"),
                _ => assert_eq!(outcome, &Ok(Answer::Renew(Renewed::Renewed)), "{number}"),
            }
        }
        assert!(matches!(outcomes[601], Ok(Answer::Acquire(Acquired::Granted(_)))));
        assert_eq!(
            calls,
            3 + 2 + 1,
            "as many calls for 598 renewals, for two of one lease, and for what is new"
        );
    });
}

/// How many calls of scripts the server has had.
fn calls(client: &mut Client) -> u64 {
    let stats = client.command(&["INFO", "commandstats"]).text();
    let of = |command: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    of("evalsha") + of("eval")
}

fn tokens_rise_over_a_server_that_lost_everything(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    at.runtime.block_on(async {
        let store = at.open("p");
        let ours = Candidate::new("a", 1).ttl(Duration::from_millis(60));
        let mut last = ours.gets(&store).await;
        for step in ["expiry", "release", "flush", "restart", "eviction"] {
            match step {
                "expiry" => {
                    common::until("the end of a TTL", async || {
                        store.inspect(ours.name.clone()).await.unwrap().is_none().then_some(())
                    })
                    .await;
                }
                "release" => drop(ours.releases(&store, last).await),
                "flush" => at.server.flush(),
                "restart" => at.server.restart(),
                _ => drop(store.evict(ours.name.clone(), Eviction::Delete).await),
            }
            let token = common::until("the server to be back", async || match ours.tries(&store).await {
                Ok(Acquired::Granted(token)) => Some(token),
                _ => None,
            })
            .await;
            assert!(token > last, "after {step}: {token} is above {last}");
            last = token;
        }
        // A floor that a process brings along, far ahead of the server's clock.
        let mut ahead = Candidate::new("b", 1).acquire();
        ahead.floor = Token::new(last.get() + 10_000_000_000);
        let outcome = common::run(&store, ahead.clone().into()).await;
        let Ok(Answer::Acquire(Acquired::Granted(token))) = outcome else { panic!("{outcome:?}") };
        assert_eq!(token.get(), ahead.floor.get() + 1);
        assert!(Candidate::new("c", 1).gets(&store).await > token, "one high water for all leases");
    });
}

fn no_token_is_made_out_of_a_high_water_that_is_none(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let high_water = format!("{}!token", place.prefix);
    let Place { at, store, client, .. } = &mut place;
    at.runtime.block_on(async {
        let ours = Candidate::new("a", 1);
        for wrong in ["abc", "", "-1", "1e3", "0x10", "nan", "9007199254740991", "99999999999999999999999"] {
            client.command(&["SET", &high_water, wrong]).ok();
            let error = ours.tries(store).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{wrong:?}");
            assert!(error.message.contains(&high_water) && error.message.contains(wrong), "{error}");
            assert_eq!(client.command(&["GET", &high_water]).text(), wrong, "it is as it was");
        }
        client.command(&["DEL", &high_water]).integer();
        client.command(&["LPUSH", &high_water, "x"]).integer();
        let error = ours.tries(store).await.unwrap_err();
        assert!(error.message.contains(&high_water), "{error}");
        assert_eq!(store.inspect(ours.name.clone()).await, Ok(None), "nothing was granted");
        client.command(&["DEL", &high_water]).integer();
        // The highest from which one can go on.
        client.command(&["SET", &high_water, "9007199254740990"]).ok();
        assert_eq!(ours.gets(store).await, Token::new(9_007_199_254_740_991));
        assert!(Candidate::new("b", 1).tries(store).await.is_err(), "above that numbers are not exact");
    });
}

fn a_full_server_lets_holders_renew_and_release_and_takes_no_new_ones(flavour: Flavour) {
    let server = Redis::with(Config::new().flavour(flavour));
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    at.runtime.block_on(async {
        let store = at.open("p");
        let (kept, given_back) = (Candidate::new("kept", 1), Candidate::new("given back", 1));
        let (token, other) = (kept.gets(&store).await, given_back.gets(&store).await);
        let high_water = at.server.command(&["GET", "p!token"]);
        store.watch(kept.name.clone()).await.unwrap();
        at.server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();

        assert_eq!(kept.renews(&store, token).await, Renewed::Renewed);
        assert_eq!(kept.gets(&store).await, token, "a confirmation needs no memory");
        assert_ne!(given_back.releases(&store, other).await, Released::NotYours);
        let error = given_back.tries(&store).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
        assert!(error.message.contains("memory"), "{error}");
        assert_eq!(Candidate::new("kept", 2).is_refused(&store).await.token, Some(token));
        assert_eq!(store.inspect(given_back.name.clone()).await, Ok(None), "nothing was written");
        assert_eq!(at.server.command(&["GET", "p!token"]), high_water, "nor was a token used up");
        assert_eq!(kept.renews(&store, token).await, Renewed::Renewed);

        at.server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
        given_back.gets(&store).await;
    });
}

fn nothing_without_a_ttl_is_left_but_the_high_water(flavour: Flavour) {
    let place = Place::new(flavour);
    let (high_water, mut client) = (format!("{}!token", place.prefix), place.at.server.client());
    place.at.runtime.block_on(async {
        let dies = place.at.open(&place.prefix);
        let ttl = Duration::from_millis(300);
        let mut tokens = Vec::new();
        for number in 0..20 {
            let name = format!("lease {number}");
            tokens.push(Candidate::new(&name, 1).ttl(ttl).gets(&place.store).await);
            dies.watch(LeaseName::new(&name).unwrap()).await.unwrap();
            drop(Candidate::new(&name, 2).ttl(ttl).tries(&dies).await);
        }
        drop(dies);
        let keys = place.keys();
        assert!(keys.len() > 21, "leases, and those that wait for them: {keys:?}");
        for key in &keys {
            let lasts = client.command(&["PTTL", key]).integer();
            assert_eq!(lasts == -1, *key == high_water, "{key} lasts {lasts} ms");
            assert!(lasts <= 10_000, "{key} lasts {lasts} ms");
        }
        for (number, token) in tokens.into_iter().enumerate().take(10) {
            Candidate::new(&format!("lease {number}"), 1).releases(&place.store, token).await;
        }
    });
    let left = || (place.keys() == [high_water.clone()]).then_some(());
    tenure_servers::eventually("everything to be over", left);
}

fn an_evicted_lease_keeps_its_ttl_and_what_has_none_is_only_deleted(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let (key, endless) = (place.key("a"), place.key("endless"));
    let Place { at, store, client, .. } = &mut place;
    at.runtime.block_on(async {
        let ours = Candidate::new("a", 1).ttl(Duration::from_secs(30));
        let token = ours.gets(store).await;
        store.evict(ours.name.clone(), Eviction::Replace).await.unwrap().expect("it was held");
        assert_eq!(client.command(&["GET", &key]).text(), format!("{token}:evicted"));
        let lasts = client.command(&["PTTL", &key]).integer();
        assert!((1..=30_000).contains(&lasts), "{lasts} ms");

        client.command(&["SET", &endless, "worker"]).ok();
        let name = LeaseName::new("endless").unwrap();
        let error = store.evict(name.clone(), Eviction::Replace).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
        let evicted = store.evict(name.clone(), Eviction::Delete).await.unwrap().expect("it was held");
        assert_eq!((evicted.holder.owner.as_str(), evicted.holder.remaining), ("worker", None));
        assert_eq!(store.inspect(name).await, Ok(None));
    });
}

fn a_record_of_a_newer_format_is_held_and_says_so(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let key = place.key("newer");
    let Place { at, store, client, .. } = &mut place;
    client.command(&["SET", &key, "17:host/1.0\n{\"v\":2,\"ttl\":[]}", "PX", "60000"]).ok();
    at.runtime.block_on(async {
        let holder = Candidate::new("newer", 1).is_refused(store).await;
        assert_eq!((holder.owner.as_str(), holder.token), ("host/1.0", Some(Token::new(17))));
        assert!(holder.problem.is_some_and(|problem| problem.contains("format 2")));
    });
}

fn what_is_renewed_lives_as_long_as_was_asked_for(flavour: Flavour) {
    let mut place = Place::new(flavour);
    let key = place.key("a");
    let Place { at, store, client, .. } = &mut place;
    at.runtime.block_on(async {
        let ttl = |seconds| Candidate::new("a", 1).ttl(Duration::from_secs(seconds));
        let mut lasts = |seconds: i64| {
            let lasts = client.command(&["PTTL", &key]).integer();
            assert!(lasts > (seconds - 20) * 1000 && lasts <= seconds * 1000, "{lasts} ms of {seconds} s");
        };
        let token = ttl(100).gets(store).await;
        lasts(100);
        assert_eq!(ttl(200).renews(store, token).await, Renewed::Renewed);
        lasts(200);
        assert_eq!(ttl(300).gets(store).await, token, "a confirmation");
        lasts(300);
        assert_eq!(ttl(60).renews(store, token).await, Renewed::Renewed, "shorter, if that is asked for");
        lasts(60);
    });
}

fn ten_thousand_leases_that_are_over_leave_the_server_as_it_was(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let memory = || at.server.info("used_memory").parse::<u64>().unwrap();
    at.runtime.block_on(async {
        let store = at.open("p");
        // What the server keeps for good: the scripts, and the connection.
        let first = Candidate::new("first", 1);
        let token = first.gets(&store).await;
        first.releases(&store, token).await;
        let before = memory();
        let dies = at.open("p");
        for hundred in 0..40 {
            let each: Vec<Candidate> = (0..250)
                .map(|number| {
                    Candidate::new(&format!("lease {hundred} {number}"), 1).ttl(Duration::from_millis(500))
                })
                .collect();
            let outcomes = run_batch(&store, each.iter().map(|one| one.acquire().into()).collect()).await;
            dies.watch(each[0].name.clone()).await.unwrap();
            dies.watch(each[1].name.clone()).await.unwrap();
            // Every other one is released, the rest runs out.
            let releases = each.iter().zip(outcomes).step_by(2).map(|(one, outcome)| match outcome {
                Ok(Answer::Acquire(Acquired::Granted(token))) => one.release(token).into(),
                other => panic!("{other:?}"),
            });
            for outcome in run_batch(&store, releases.collect()).await {
                assert!(matches!(outcome, Ok(Answer::Release(_))), "{outcome:?}");
            }
        }
        drop(dies);
        common::until("everything to be over", async || {
            // Whoever looks at a key lets the server notice that it is over.
            at.server.keys().eq(&["p!token"]).then_some(())
        })
        .await;
        let (after, room) = (memory(), 500_000);
        assert!(after < before + room, "{before} bytes before, {after} after");
    });
}

fn one_renewal_that_has_no_time_left_does_not_fail_those_beside_it(flavour: Flavour) {
    let server = Redis::of(flavour);
    let proxy = Proxy::to(server.address());
    let at = At { runtime: Runtime::tokio(), url: proxy.url(), server };
    at.runtime.block_on(async {
        let store = at.open("p");
        let (late, beside) = (Candidate::new("late", 1), Candidate::new("beside", 1));
        let (first, second) = (late.gets(&store).await, beside.gets(&store).await);
        proxy.delay(Duration::from_millis(300));
        let late = Renew { timeout: Duration::from_millis(50), ..late.renew(first) };
        for _ in 0..2 {
            let outcomes = run_batch(&store, vec![late.clone().into(), beside.renew(second).into()]).await;
            assert_eq!(outcomes[0].as_ref().unwrap_err().kind, StoreErrorKind::Unknown);
            assert_eq!(outcomes[1], Ok(Answer::Renew(Renewed::Renewed)));
        }
        assert_eq!(proxy.accepted(), 1, "what was answered is no silence");
    });
}

fn who_waits_for_a_key_that_lasts_for_ages_is_told_so(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    at.runtime.block_on(async {
        let store = at.open("p");
        let candidate = Candidate::new("a", 1);
        // Some millions of years.
        at.server.command(&["SET", "p:a", "worker", "PX", "900000000000000000"]).ok();
        store.watch(candidate.name.clone()).await.unwrap();
        assert_eq!(candidate.is_refused(&store).await.owner, "worker");
        let lasts = at.server.command(&["PTTL", "p!waiters:a"]).integer();
        assert!((1..=8 * 24 * 3600 * 1000).contains(&lasts), "{lasts} ms");
    });
}
