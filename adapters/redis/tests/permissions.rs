//! What a user must be allowed is what the guide says, no less and no more.

#![cfg(feature = "tokio")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

mod needs_redis {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use tenure_redis::RedisStore;
    use tenure_servers::{Flavour, Redis};
    use tenure_store::core::LeaseName;
    use tenure_store::{Released, Renewed, Store, StoreErrorKind};

    use super::lines;
    use crate::common::{At, Candidate, Runtime, shared};

    /// Stores of the user of the guide, who may use prefixes of these tests.
    fn as_the_user_of_the_guide(flavour: Flavour) -> At<Arc<Redis>> {
        // Once for each server: a user that is set up again is without its rights for a moment.
        static MADE: Mutex<Vec<u16>> = Mutex::new(Vec::new());
        let server = shared(flavour);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains(&server.port()) {
            for line in lines("src/guide/redis.md") {
                let line = line.replace("~tenure", "~test-*").replace("&tenure", "&test-*");
                server.command(&line.split(' ').collect::<Vec<_>>()).ok();
            }
            made.push(server.port());
        }
        drop(made);
        let url = format!("redis://app:secret@{}", server.address());
        At { runtime: Runtime::tokio(), url, server }
    }

    mod everything_works {
        use super::*;

        tenure_store::conformance!(as_the_user_of_the_guide(Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[test]
    #[ignore = "needs redis"]
    fn keys_of_another_prefix_are_out_of_reach() {
        let at = as_the_user_of_the_guide(Flavour::Redis);
        let store = at.open("others");
        let error = at.runtime.block_on(Candidate::new("backup", 1).tries(&store)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
        assert!(error.message.to_ascii_lowercase().contains("permission"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }

    #[test]
    #[ignore = "needs redis"]
    fn without_channels_lists_and_warnings_leases_go_on() {
        let at = as_the_user_of_the_guide(Flavour::Redis);
        // A user of its own: the other tests share the one of the guide.
        for line in lines("src/guide/redis.md") {
            let line = line.replace("~tenure", "~test-*").replace("SETUSER app", "SETUSER poor");
            let words = line.split(' ').filter(|word| {
                !word.starts_with('&')
                    && !["+publish", "+subscribe", "+unsubscribe", "+scan", "+info", "+select", "+asking"]
                        .contains(word)
                    && !word.starts_with("+cluster")
            });
            at.server.command(&words.collect::<Vec<_>>()).ok();
        }
        let url = format!("redis://poor:secret@{}?prefix=test-poor", at.server.address());
        let (store, name) = (RedisStore::from_url(&url).unwrap(), LeaseName::new("backup").unwrap());
        at.runtime.block_on(async {
            let (one, other) = (Candidate::new("backup", 1), Candidate::new("backup", 2));
            let token = one.gets(&store).await;
            assert_eq!(one.renews(&store, token).await, Renewed::Renewed);
            let holder = other.is_refused(&store).await;
            assert!(
                holder.remaining.is_some_and(|time| time > Duration::ZERO),
                "by which a waiter sleeps: {holder:?}"
            );
            assert!(store.inspect(name.clone()).await.unwrap().is_some());
            for (what, error) in [
                ("subscribe", store.watch(name.clone()).await.unwrap_err()),
                ("scan", store.list(None, 10).await.unwrap_err()),
            ] {
                assert_eq!(error.kind, StoreErrorKind::Rejected, "{what}: {error}");
                assert!(error.message.to_ascii_lowercase().contains(what), "{what}: {error}");
            }
            assert!(matches!(one.releases(&store, token).await, Released::Released { .. }));
            let next = other.gets(&store).await;
            assert!(next > token);
        });
    }
}
