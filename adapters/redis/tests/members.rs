//! Members on real servers: what is kept of them, what is told of them when nobody does anything, and what is made of what
//! was lost or damaged.

#[macro_use]
mod common;

on_both! {
    a_heartbeat_takes_two_requests_and_brings_no_list_to_who_knows_it
    nothing_of_the_members_is_kept_for_good
    who_is_over_is_told_of_without_a_heartbeat_of_anybody
    a_heartbeat_is_no_hint_for_its_own_handle_but_what_an_operator_does_is
    who_was_disconnected_is_told_to_look_and_hears_again
    a_record_that_can_not_be_read_is_nobody_and_made_anew_by_its_process
    the_view_gets_a_new_version_when_what_it_goes_by_was_lost
    a_server_that_forgot_everything_gets_the_members_back_as_they_were
    what_another_program_keeps_in_the_place_of_members_is_an_error_that_names_it
    who_may_not_publish_or_subscribe_sends_heartbeats_all_the_same
    a_mark_and_heartbeats_at_once_lose_nothing_of_each_other
    a_full_server_takes_no_heartbeats_and_changes_nothing
}

use std::sync::Arc;
use std::time::Duration;

use common::{At, Runtime, TIMEOUT, after, hears, prefix, run};
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use tenure_redis::RedisStore;
use tenure_servers::{Config, Flavour, Redis};
use tenure_store::core::{Identity, Incarnation, Labels, Presence, Timestamp};
use tenure_store::{
    Answer, DrainMark, Heartbeat, Hint, Hints, Leave, Metadata, Store, StoreError, StoreErrorKind,
};

const LONG: Duration = Duration::from_secs(60);

/// A process that sends heartbeats.
struct Member(Heartbeat);

impl Member {
    fn new(name: &str, process: u128, ttl: Duration) -> Self {
        Self(Heartbeat {
            identity: Identity::new(name, Incarnation::new(process)).unwrap(),
            sequence: 0,
            joined: None,
            draining: false,
            marked: false,
            digests: [].into(),
            labels: Labels::default(),
            known: None,
            ttl,
            metadata: Metadata::new(),
            timeout: TIMEOUT,
        })
    }

    async fn tries(&mut self, store: &RedisStore) -> Result<Presence, StoreError> {
        self.0.sequence += 1;
        let presence = match run(store, self.0.clone().into()).await? {
            Answer::Heartbeat(presence) => presence,
            other => panic!("an answer to something else: {other:?}"),
        };
        (self.0.joined, self.0.known) = (Some(presence.joined), Some(presence.version));
        Ok(presence)
    }

    async fn beats(&mut self, store: &RedisStore) -> Presence {
        self.tries(store).await.expect("the heartbeat is fine")
    }

    async fn leaves(&self, store: &RedisStore) {
        let leave = Leave { identity: self.0.identity.clone(), ttl: self.0.ttl, timeout: TIMEOUT };
        assert_eq!(run(store, leave.into()).await, Ok(Answer::Leave));
    }
}

fn who(presence: &Presence) -> Vec<&str> {
    let members = presence.members.as_ref().unwrap_or_else(|| panic!("the view is told: {presence:?}"));
    members.iter().map(|member| member.identity.instance()).collect()
}

fn drain(name: &str, drain: bool) -> DrainMark {
    DrainMark { instance: name.into(), incarnation: None, drain }
}

/// A store on the shared server, and its prefix.
fn on(flavour: Flavour) -> (At<Arc<Redis>>, String, RedisStore) {
    let at = At::shared(Runtime::tokio(), flavour);
    let prefix = prefix();
    let store = at.open(&prefix);
    (at, prefix, store)
}

fn alone(config: Config) -> (At<Redis>, RedisStore) {
    let server = Redis::with(config);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let store = at.open("t");
    (at, store)
}

fn of(flavour: Flavour) -> Config {
    Config::new().flavour(flavour)
}

fn nothing_more(hints: &mut Hints) -> bool {
    hints.next().now_or_never().is_none()
}

async fn hears_of_members(hints: &mut Hints, what: &str) {
    hears(hints, what, |hint| matches!(hint, Hint::Members | Hint::Resync).then_some(())).await;
}

fn a_heartbeat_takes_two_requests_and_brings_no_list_to_who_knows_it(flavour: Flavour) {
    let (at, store) = alone(of(flavour));
    at.runtime.block_on(async {
        let (mut a, mut b) = (Member::new("a", 1, LONG), Member::new("b", 2, LONG));
        a.beats(&store).await;
        b.beats(&store).await;
        assert_eq!(who(&a.beats(&store).await), ["a", "b"]);
        assert!(at.server.command(&["CONFIG", "RESETSTAT"]) != tenure_servers::Reply::Nil);
        for _ in 0..10 {
            let presence = a.beats(&store).await;
            assert_eq!((presence.version, presence.members), (b.0.known.unwrap(), None));
        }
        let calls = |command: &str| {
            let stats = at.server.info(&format!("cmdstat_{command}"));
            let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
            calls.unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(calls("evalsha"), 20);
        assert!(!at.server.command(&["INFO", "commandstats"]).text().contains("cmdstat_hmget"), "no list");
    });
}

fn nothing_of_the_members_is_kept_for_good(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let week = Duration::from_secs(7 * 24 * 3600);
        let (mut brief, mut long) = (Member::new("brief", 1, LONG), Member::new("long", 2, week));
        let ttls = || {
            let keys = at.server.keys().into_iter().filter(|key| key.starts_with(&prefix));
            keys.map(|key| Duration::from_millis(at.server.command(&["PTTL", &key]).integer() as u64))
                .collect::<Vec<_>>()
        };
        brief.beats(&store).await;
        let kept = ttls();
        assert_eq!(kept.len(), 4, "records, listed, remembered, version");
        assert!(kept.iter().all(|ttl| *ttl > LONG && *ttl <= LONG * 2), "{kept:?}");
        long.beats(&store).await;
        brief.beats(&store).await;
        assert!(ttls().iter().all(|ttl| *ttl > week && *ttl <= week * 2));
        long.leaves(&store).await;
        assert!(ttls().iter().all(|ttl| *ttl <= week), "a tombstone for the TTL");
        // What is over leaves the hash, too.
        let mut soon = Member::new("soon", 3, Duration::from_millis(50));
        soon.beats(&store).await;
        let records = format!("{prefix}!members");
        assert_eq!(at.server.command(&["HLEN", &records]).integer(), 3);
        common::until("it is forgotten", async || {
            brief.beats(&store).await;
            (at.server.command(&["HLEN", &records]).integer() == 2).then_some(())
        })
        .await;
        assert_eq!(at.server.command(&["ZCARD", &format!("{prefix}!members-remembered")]).integer(), 2);
        assert_eq!(at.server.command(&["ZCARD", &format!("{prefix}!members-listed")]).integer(), 1);
    });
}

fn who_is_over_is_told_of_without_a_heartbeat_of_anybody(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let mut hints = store.hints().unwrap();
        let other = at.open(&prefix);
        let ttl = Duration::from_millis(700);
        let (mut dies, mut hears) = (Member::new("dies", 1, ttl), Member::new("hears", 2, LONG));
        dies.beats(&other).await;
        let begun = tenure_store::clock::now();
        let before = hears.beats(&store).await;
        assert_eq!(who(&before), ["dies", "hears"]);
        hears_of_members(&mut hints, "a member that is gone").await;
        assert!(tenure_store::clock::now() >= begun + ttl / 2, "not before its time");
        let after = hears.beats(&store).await;
        assert!(after.version > before.version);
        assert_eq!(who(&after), ["hears"]);
    });
}

fn a_heartbeat_is_no_hint_for_its_own_handle_but_what_an_operator_does_is(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let mut hints = store.hints().unwrap();
        let mut a = Member::new("a", 1, LONG);
        a.beats(&store).await;
        a.0.draining = true;
        a.beats(&store).await;
        // What was published on the way has come by now: the connection keeps the order.
        assert_eq!(store.members(None, 10).await.unwrap().len(), 1);
        after(Duration::from_millis(50)).await;
        assert!(nothing_more(&mut hints));
        assert_eq!(store.mark(drain("a", true)).await.unwrap(), [a.0.identity.clone()]);
        hears_of_members(&mut hints, "the mark by the same handle").await;
        Member::new("b", 2, LONG).beats(&at.open(&prefix)).await;
        hears_of_members(&mut hints, "another member").await;
    });
}

fn who_was_disconnected_is_told_to_look_and_hears_again(flavour: Flavour) {
    let (at, store) = alone(of(flavour));
    at.runtime.block_on(async {
        let mut hints = store.hints().unwrap();
        let mut a = Member::new("a", 1, LONG);
        a.beats(&store).await;
        assert_eq!(at.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).integer(), 1);
        hears(&mut hints, "a gap", |hint| (*hint == Hint::Resync).then_some(())).await;
        Member::new("b", 2, LONG).beats(&at.open("t")).await;
        hears(&mut hints, "a member", |hint| (*hint == Hint::Members).then_some(())).await;
    });
}

fn a_record_that_can_not_be_read_is_nobody_and_made_anew_by_its_process(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let records = format!("{prefix}!members");
    at.runtime.block_on(async {
        let (mut a, mut b) = (Member::new("a", 1, LONG), Member::new("b", 2, LONG));
        a.beats(&store).await;
        let joined = b.beats(&store).await.joined;
        for (damage, says) in [("x", "another program"), ("{\"v\":2}", "format 2"), ("{\"v\":1}", "damaged")]
        {
            let field = b.0.identity.to_string();
            assert_eq!(at.server.command(&["HSET", &records, &field, damage]).integer(), 0);
            a.0.known = None;
            assert_eq!(who(&a.beats(&store).await), ["a"], "{damage}");
            let listed = store.members(None, 10).await.unwrap();
            assert_eq!(listed.len(), 2);
            assert!(listed[1].problem.as_ref().unwrap().contains(says), "{listed:?}");
            assert_eq!(store.mark(drain("b", true)).await, Ok(Vec::new()), "it can't be marked");
            let version = a.0.known;
            assert_eq!(b.beats(&store).await.joined, joined, "it has not forgotten");
            assert!(b.0.known > version, "it is back for the others");
            assert_eq!(who(&a.beats(&store).await), ["a", "b"]);
        }
        assert_eq!(at.server.command(&["HDEL", &records, &b.0.identity.to_string()]).integer(), 1);
        let listed = store.members(None, 10).await.unwrap();
        assert!(listed[1].problem.as_ref().unwrap().contains("missing"), "{listed:?}");
        // An identity that can't be one is nobody's.
        for key in [format!("{prefix}!members-listed"), format!("{prefix}!members-remembered")] {
            assert_eq!(at.server.command(&["ZADD", &key, "9000000000000000", "nobody"]).integer(), 1);
        }
        assert_eq!(store.members(None, 10).await.unwrap().len(), 2);
        a.0.known = None;
        assert_eq!(who(&a.beats(&store).await), ["a"]);
    });
}

fn the_view_gets_a_new_version_when_what_it_goes_by_was_lost(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let (mut a, mut b) = (Member::new("a", 1, LONG), Member::new("b", 2, LONG));
        a.beats(&store).await;
        b.beats(&store).await;
        let mut version = a.beats(&store).await.version;
        for lost in ["!members-version", "!members-listed", "!members", "!members-remembered"] {
            assert_eq!(at.server.command(&["DEL", &format!("{prefix}{lost}")]).integer(), 1);
            a.beats(&store).await;
            b.beats(&store).await;
            a.0.known = a.0.known.map(|known| known.min(version));
            let presence = a.beats(&store).await;
            if lost != "!members-remembered" {
                assert!(presence.version > version, "{lost}");
            }
            a.0.known = None;
            assert_eq!(who(&a.beats(&store).await), ["a", "b"], "{lost}");
            version = presence.version;
        }
        for nonsense in ["x", "-1", "inf", "nan", "1e300", "9007199254740992"] {
            at.server.command(&["SET", &format!("{prefix}!members-version"), nonsense]).ok();
            a.0.known = None;
            let presence = a.beats(&store).await;
            assert!(presence.version > version, "{nonsense} is taken for none");
            version = presence.version;
        }
    });
}

fn a_server_that_forgot_everything_gets_the_members_back_as_they_were(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let mut a = Member::new("a", 1, LONG);
        let first = a.beats(&store).await;
        store.mark(drain("a", true)).await.unwrap();
        assert!(a.beats(&store).await.drain);
        a.0.marked = true;
        for key in at.server.keys().iter().filter(|key| key.starts_with(&prefix)) {
            assert_eq!(at.server.command(&["DEL", key]).integer(), 1);
        }
        let before = a.0.known;
        let presence = a.beats(&store).await;
        assert_eq!((presence.joined, presence.drain), (first.joined, true));
        assert!(Some(presence.version) > before, "by the clock of the server");
        assert!(presence.joined > Timestamp::EPOCH);
    });
}

fn what_another_program_keeps_in_the_place_of_members_is_an_error_that_names_it(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        for key in ["!members", "!members-listed", "!members-remembered", "!members-version"] {
            let key = format!("{prefix}{key}");
            assert_eq!(at.server.command(&["RPUSH", &key, "x"]).integer(), 1);
            let mut a = Member::new("a", 1, LONG);
            let error = a.tries(&store).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(error.message.contains(&key), "{error}");
            assert_eq!(at.server.command(&["PTTL", &key]).integer(), -1, "{key} is as it was");
            assert_eq!(at.server.command(&["DEL", &key]).integer(), 1);
        }
    });
}

fn who_may_not_publish_or_subscribe_sends_heartbeats_all_the_same(flavour: Flavour) {
    let rules = "on >secret ~t* resetchannels -@all +eval +evalsha +hello +ping +get +set +pexpire +pttl +time \
                 +hget +hset +hdel +hmget +hlen +zadd +zrem +zscore +zcard +zcount +zrange +zrangebyscore \
                 +zremrangebyscore +publish +subscribe";
    let (at, _) = alone(of(flavour).user("u", rules));
    at.runtime.block_on(async {
        let url = at.url.replace("redis://", "redis://u:secret@");
        let open = || RedisStore::from_url(&format!("{url}?prefix=t")).unwrap();
        let (one, other) = (open(), open());
        let (mut a, mut b) = (Member::new("a", 1, LONG), Member::new("b", 2, LONG));
        a.beats(&one).await;
        b.beats(&other).await;
        assert_eq!(who(&a.beats(&one).await), ["a", "b"]);
        assert_eq!(one.mark(drain("b", true)).await.unwrap().len(), 1);
        assert!(b.beats(&other).await.drain);
        b.leaves(&other).await;
        assert_eq!(who(&a.beats(&one).await), ["a"]);
        assert_eq!(one.members(None, 10).await.unwrap().len(), 1);
    });
}

fn a_mark_and_heartbeats_at_once_lose_nothing_of_each_other(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let mut members: Vec<Member> = (0..20).map(|process| Member::new("same", process, LONG)).collect();
        for member in &mut members {
            member.beats(&store).await;
        }
        let handles: Vec<RedisStore> = (0..5).map(|_| at.open(&prefix)).collect();
        for round in 0..40 {
            let beating = members.iter_mut().enumerate().map(|(n, member)| {
                member.0.metadata.text = Some(format!("round {round}").into());
                let handle = &handles[n % 5];
                async move {
                    member.beats(handle).await;
                    member.beats(handle).await;
                }
            });
            // Whoever is a little later meets them at another place.
            let marking = async {
                after(Duration::from_micros(200 * (round % 10))).await;
                store.mark(drain("same", round % 2 == 0)).await
            };
            let (_, marked) = futures::join!(join_all(beating), marking);
            assert_eq!(marked.unwrap().len(), 20, "all are concerned in round {round}");
            for entry in store.members(None, 100).await.unwrap() {
                assert_eq!(entry.marked, round % 2 == 0, "the mark of round {round}: {entry:?}");
                assert_eq!(
                    entry.metadata.text,
                    Some(format!("round {round}").into()),
                    "the heartbeat: {entry:?}"
                );
            }
        }
        // The last heartbeat that there is stays, also if a mark has read the one before.
        let (records, mut client) = (format!("{prefix}!members"), at.server.client());
        for round in 0..10 {
            let beating = members.iter_mut().enumerate().map(|(n, member)| member.beats(&handles[n % 5]));
            let (_, marked) = futures::join!(join_all(beating), store.mark(drain("same", round % 2 == 0)));
            assert_eq!(marked.unwrap().len(), 20);
            for member in &members {
                let record = client.command(&["HGET", &records, &member.0.identity.to_string()]).text();
                let last = format!("\"sequence\":{},", member.0.sequence);
                assert!(record.contains(&last), "{last} is not in {record}");
            }
        }
    });
}

fn a_full_server_takes_no_heartbeats_and_changes_nothing(flavour: Flavour) {
    let (at, store) = alone(of(flavour));
    at.runtime.block_on(async {
        let mut a = Member::new("a", 1, LONG);
        a.beats(&store).await;
        let records = || at.server.command(&["HGETALL", "t!members"]).texts();
        let before = records();
        at.server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
        for change in [false, true] {
            a.0.draining = change;
            let error = a.tries(&store).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
            assert!(error.message.contains("out of memory"), "{error}");
        }
        assert_eq!(store.mark(drain("a", true)).await.unwrap_err().kind, StoreErrorKind::Transient);
        assert_eq!(records(), before);
        assert_eq!(store.members(None, 10).await.unwrap().len(), 1, "who only looks is answered");
        at.server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
        a.beats(&store).await;
    });
}
