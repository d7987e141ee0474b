//! What a user must be allowed is what the guide says, no less and no more.

#![cfg(feature = "tokio")]

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{At, Candidate, Runtime, shared, shared_cluster, until};
use tenure_driver::{Builder, Tenure};
use tenure_redis::RedisStore;
use tenure_servers::{Cluster, Flavour, LIMIT, Redis};
use tenure_store::{Eviction, Released, Renewed, Store, StoreErrorKind, clock};
use tenure_tokio::Tokio;

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The commands that make the user, as a page has them.
fn lines(page: &str) -> Vec<String> {
    let text = fs::read_to_string(file(page)).unwrap();
    let lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("ACL SETUSER ")).map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{page} makes no user");
    lines
}

/// The texts in quotes that follow after `call`, in all files of a folder with this ending.
fn quoted(folder: &Path, ending: &str, call: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            quoted(&path, ending, call, found);
        } else if path.extension().is_some_and(|extension| extension == ending) && !path.ends_with("tests.rs")
        {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            for rest in text.split(call).skip(1) {
                let quoted = rest.split(['"', '\'']).next().unwrap_or_default();
                found.insert(quoted.to_ascii_lowercase());
            }
        }
    }
}

/// All that is sent to a server that keeps the data.
fn used() -> BTreeSet<String> {
    let source = file("adapters/redis/src");
    let mut used = BTreeSet::new();
    for call in ["call('", "try('"] {
        quoted(&source.join("scripts"), "lua", call, &mut used);
    }
    assert!(used.contains("pexpire"), "{used:?}");
    quoted(&source, "rs", "cmd(\"", &mut used);
    quoted(&source, "rs", "call.command(\"", &mut used);
    // A script is told which command reads the key.
    quoted(&source, "rs", "self.forget(route, &key, \"", &mut used);
    assert!(used.contains("hlen"), "{used:?}");
    assert!(used.contains("evalsha") && used.contains("subscribe"), "{used:?}");
    // Only Sentinels are asked that.
    used.remove("sentinel");
    // Of these commands just one part is used.
    assert!(used.remove("cluster"));
    used.insert("cluster|slots".to_owned());
    // The client library says these when it connects.
    used.extend(["hello", "select"].map(str::to_owned));
    used
}

#[test]
fn the_guide_and_the_readme_list_exactly_the_commands_that_are_used() {
    let guide = lines("src/guide/redis.md");
    let listed: BTreeSet<_> = guide
        .iter()
        .flat_map(|line| line.split(' '))
        .filter_map(|word| word.strip_prefix('+'))
        .map(str::to_owned)
        .collect();
    let used = used();
    let missing: Vec<_> = used.difference(&listed).collect();
    let needless: Vec<_> = listed.difference(&used).collect();
    assert!(missing.is_empty() && needless.is_empty(), "missing: {missing:?}, needless: {needless:?}");
    assert_eq!(lines("README.md"), guide);
    // Before Redis 7 a user has all channels to begin with, and then no channel can be added.
    assert!(guide[0].contains(" resetchannels &"), "{guide:?}");
}

/// Makes the user of the guide at a server, by another name and without some of its rights, for prefixes of these tests.
fn make_user(server: &Redis, name: &str, without: &[&str]) {
    for line in lines("src/guide/redis.md") {
        let line = line.replace("SETUSER app", &format!("SETUSER {name}"));
        let line = line.replace("~tenure", "~test-*").replace("&tenure", "&test-*");
        let words: Vec<_> = line.split(' ').filter(|word| !without.contains(word)).collect();
        server.command(&words).ok();
    }
}

/// Makes the user of the guide at servers that tests share, once for each: a user that is set up again is without its
/// rights for a moment.
fn make_user_once(servers: &[Redis]) {
    static MADE: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    for server in servers.iter().filter(|server| made.insert(server.port())) {
        make_user(server, "app", &[]);
    }
}

/// Stores of the user of the guide.
fn as_the_user_of_the_guide(flavour: Flavour) -> At<Arc<Redis>> {
    let server = shared(flavour);
    make_user_once(slice::from_ref(&server));
    let url = format!("redis://app:secret@{}", server.address());
    At { runtime: Runtime::tokio(), url, server }
}

/// The same in a Cluster.
fn as_the_user_of_the_guide_in_a_cluster(flavour: Flavour) -> At<Arc<Cluster>> {
    let server = shared_cluster(flavour);
    make_user_once(server.nodes());
    let url = format!("redis://app:secret@{}", server.nodes()[0].address());
    At { runtime: Runtime::tokio(), url, server }
}

/// Properties that together use all commands of the list but `ping`, `select` and `asking`.
macro_rules! much_works {
    ($harness:expr, $needs:literal) => {
        much_works! { $harness, $needs,
            renew_checks_owner_and_token
            release_checks_owner_and_token
            operations_on_one_lease_keep_their_order
            inspect_tells_who_holds
            list_goes_page_by_page
            a_deleted_lease_is_free_at_once
            a_staged_schedule_takes_effect_at_its_tick
            timers_are_listed_page_by_page
            a_claim_is_renewed_and_ended_by_its_owner_alone
            a_run_is_recorded_from_its_first_report_to_its_outcome
            jobs_are_listed_page_by_page
            a_forgotten_job_is_gone
            who_sends_heartbeats_is_a_member_for_all_handles
            a_mark_to_drain_stays_until_it_is_taken_back
            members_are_listed_page_by_page
            a_change_of_the_members_reaches_those_who_send_heartbeats
            a_release_reaches_a_watching_handle
            at_most_two_waiters_are_chosen
            unwatch_ends_the_waiting
        }
    };
    ($harness:expr, $needs:literal, $($property:ident)*) => {$(
        #[test]
        #[ignore = $needs]
        fn $property() {
            tenure_store::conformance::$property(&$harness);
        }
    )*};
}

mod needs_redis {
    use super::*;

    mod everything_works {
        use super::*;

        tenure_store::conformance!(as_the_user_of_the_guide(Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    mod much_works_in_a_cluster {
        use super::*;

        much_works!(as_the_user_of_the_guide_in_a_cluster(Flavour::Redis), "needs redis");
    }

    #[test]
    #[ignore = "needs redis"]
    fn in_a_cluster_the_user_is_told_to_need_the_slots() {
        let cluster = shared_cluster(Flavour::Redis);
        let rights = |without: &[&str]| {
            cluster.nodes().iter().for_each(|node| make_user(node, "lost", without));
        };
        rights(&["+cluster|slots"]);
        let at = |node: &Redis| format!("redis://lost:secret@{}?prefix=test-lost", node.address());
        let store = RedisStore::from_url(&at(&cluster.nodes()[0])).unwrap();
        Runtime::tokio().block_on(async {
            let candidate = Candidate::new("backup", 1);
            let error = candidate.tries(&store).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(error.message.contains("+cluster|slots"), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
            // Once it may, the same store goes on.
            rights(&[]);
            until("the new right to count", async || candidate.tries(&store).await.ok()).await;
        });
    }

    #[test]
    #[ignore = "needs redis"]
    fn without_asking_a_slot_that_moves_is_out_of_reach_until_it_has_moved() {
        let cluster = Cluster::start(2);
        cluster.nodes().iter().for_each(|node| make_user(node, "lost", &["+asking"]));
        let url = format!("redis://lost:secret@{}?prefix=test-lost", cluster.nodes()[0].address());
        let store = RedisStore::from_url(&url).unwrap();
        Runtime::tokio().block_on(async {
            let candidate = Candidate::new("backup", 1);
            let token = candidate.gets(&store).await;
            let slot = cluster.slot(&cluster.keys()[0]);
            let from = cluster.owner(slot);
            let to = 1 - from;
            cluster.begin_move(slot, from, to);
            while cluster.move_keys(slot, from, to, 1000) > 0 {}
            let error = candidate.tries(&store).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
            assert!(error.message.contains("+asking"), "{error}");
            cluster.finish_move(slot, from, to);
            assert_eq!(candidate.gets(&store).await, token, "a confirmation");
        });
    }
}

mod needs_valkey {
    use super::*;

    mod much_works {
        use super::*;

        much_works!(as_the_user_of_the_guide(Flavour::Valkey), "needs valkey");
    }
}

mod with_less {
    use super::*;

    /// Stores of a user at a server of its own who lacks some of the rights of the guide.
    fn as_a_user_without(flavour: Flavour, rights: &[&str]) -> At<Redis> {
        let server = Redis::of(flavour);
        make_user(&server, "poor", rights);
        let url = format!("redis://poor:secret@{}", server.address());
        At { runtime: Runtime::tokio(), url, server }
    }

    /// What takes part in waking those who wait.
    const CHANNELS: [&str; 4] = ["&test-*!*", "+publish", "+subscribe", "+unsubscribe"];

    fn without_channels_lists_and_warnings_leases_go_on(flavour: Flavour) {
        let others = ["+scan", "+info", "+select", "+cluster|slots", "+asking"];
        let at = as_a_user_without(flavour, &[&CHANNELS[..], &others].concat());
        let (store, waits) = (at.open("test-poor"), at.open("test-poor"));
        at.runtime.block_on(async {
            let (one, other) = (Candidate::new("backup", 1), Candidate::new("backup", 2));
            let token = one.gets(&store).await;
            assert_eq!(one.renews(&store, token).await, Renewed::Renewed);
            assert!(store.inspect(one.name.clone()).await.unwrap().is_some());
            for (right, error) in [
                ("+subscribe", waits.watch(one.name.clone()).await.unwrap_err()),
                ("+scan", store.list(None, 10).await.unwrap_err()),
            ] {
                assert_eq!(error.kind, StoreErrorKind::Rejected, "{right}: {error}");
                assert!(error.message.contains(right), "{right}: {error}");
            }
            let holder = other.is_refused(&waits).await;
            assert!(
                holder.remaining.is_some_and(|time| time > Duration::ZERO),
                "until then it waits: {holder:?}"
            );
            let nobody = Released::Released { others_chosen: false };
            assert_eq!(one.releases(&store, token).await, nobody, "who can't hear is not chosen");
            assert!(other.gets(&waits).await > token);
            assert_eq!(at.server.keys(), ["test-poor!token", "test-poor:backup"], "nor is it registered");
        });
    }

    fn without_channels_who_waits_gets_the_lease_when_the_ttl_is_over(flavour: Flavour) {
        let at = as_a_user_without(flavour, &CHANNELS);
        at.runtime.block_on(async {
            let ttl = Duration::from_secs(1);
            let begun = clock::now();
            // Of a process that dies at once: nobody renews.
            let token = Candidate::new("backup", 1).ttl(ttl).gets(&at.open("test-poor")).await;
            let waits: Tenure = Builder::new(Tokio::current()).store(at.open("test-poor")).start().unwrap();
            let granted = tokio::time::timeout(LIMIT, waits.acquire("backup")).await;
            let lease = granted.expect("it is granted").unwrap();
            assert!(clock::now().saturating_since(begun) >= ttl);
            assert!(lease.token() > token);
            lease.release().await.unwrap();
            waits.shutdown().await.unwrap();
        });
    }

    fn who_may_not_ask_for_the_time_can_still_evict_and_release(flavour: Flavour) {
        let may_not = as_a_user_without(flavour, &["+time"]);
        let may_all = At { runtime: Runtime::tokio(), url: may_not.server.url(), server: () };
        may_all.runtime.block_on(async {
            let prefix = "test-poor";
            let (store, limited, waits) = (may_all.open(prefix), may_not.open(prefix), may_all.open(prefix));
            let ours = Candidate::new("a", 1);
            // What is done is not said to have failed.
            for round in 0..2 {
                let token = ours.gets(&store).await;
                waits.watch(ours.name.clone()).await.unwrap();
                if round == 0 {
                    assert!(limited.evict(ours.name.clone(), Eviction::Delete).await.unwrap().is_some());
                } else {
                    let released = ours.releases(&limited, token).await;
                    assert_eq!(released, Released::Released { others_chosen: true });
                }
                assert_eq!(store.inspect(ours.name.clone()).await, Ok(None));
            }
        });
    }

    fn keys_of_another_prefix_are_out_of_reach(flavour: Flavour) {
        let at = as_the_user_of_the_guide(flavour);
        let store = at.open("others");
        let error = at.runtime.block_on(Candidate::new("backup", 1).tries(&store)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
        assert!(error.message.to_ascii_lowercase().contains("permission"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }

    on_both! {
        without_channels_lists_and_warnings_leases_go_on
        without_channels_who_waits_gets_the_lease_when_the_ttl_is_over
        who_may_not_ask_for_the_time_can_still_evict_and_release
        keys_of_another_prefix_are_out_of_reach
    }
}
