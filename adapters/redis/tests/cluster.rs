//! A Cluster: all properties of a store, and what happens when slots move and nodes die.

mod common;

mod needs_redis {
    #[cfg(feature = "tokio")]
    mod tokio {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_cluster(Runtime::tokio(), Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[cfg(feature = "tokio")]
    mod layout {
        use std::collections::BTreeSet;

        use tenure_servers::Flavour;
        use tenure_store::core::LeaseName;
        use tenure_store::{Answer, Renewed, Store};

        use crate::common::{At, Candidate, Runtime, prefix, run_batch};

        #[test]
        #[ignore = "needs redis"]
        fn all_that_belongs_to_a_name_lies_in_one_slot_near_that_of_the_name() {
            let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
            let prefix = prefix();
            let store = at.open(&prefix);
            at.runtime.block_on(async {
                let candidates: Vec<_> =
                    (0..1_000).map(|number| Candidate::new(&format!("lease-{number}"), 1)).collect();
                let outcomes =
                    run_batch(&store, candidates.iter().map(|one| one.acquire().into()).collect()).await;
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            });
            let keys: Vec<String> =
                at.server.keys().into_iter().filter(|key| key.starts_with(&*prefix)).collect();
            let mut tags = BTreeSet::new();
            let mut leases = 0;
            for key in &keys {
                let rest = key.strip_prefix(&*prefix).unwrap();
                let (kind, tagged) = rest.split_once('{').unwrap();
                let (tag, name) = tagged.split_once("}:").unwrap();
                tags.insert(tag.to_owned());
                if kind == ":" {
                    leases += 1;
                    assert_eq!(at.server.slot(key) / 256, at.server.slot(name) / 256, "{key}");
                } else {
                    assert_eq!((kind, name), ("!token", ""), "{key}");
                }
            }
            assert_eq!((leases, keys.len(), tags.len()), (1_000, 1_064, 64));
            let slots: BTreeSet<u16> = tags.iter().map(|tag| at.server.slot(tag) / 256).collect();
            assert_eq!(slots, (0..64).collect());
        }

        #[test]
        #[ignore = "needs redis"]
        fn names_with_braces_are_like_any_others() {
            let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
            let store = at.open(&prefix());
            let names = ["{user}:1", "{}", "a{b}c{d}", "}{", "{{x}}", "{mm}:", "{", "}:", "tenure:{mm}:x"];
            at.runtime.block_on(async {
                for name in names {
                    let (one, other) = (Candidate::new(name, 1), Candidate::new(name, 2));
                    let token = one.gets(&store).await;
                    assert_eq!(other.is_refused(&store).await.owner, one.owner.to_string());
                    assert_eq!(one.renews(&store, token).await, Renewed::Renewed);
                }
                let listed = store.list(None, 100).await.unwrap();
                let listed: BTreeSet<_> = listed.into_iter().map(|lease| lease.name).collect();
                assert_eq!(listed, names.map(|name| LeaseName::new(name).unwrap()).into());
            });
        }

        #[test]
        #[ignore = "needs redis"]
        fn a_batch_of_a_thousand_renewals_is_a_call_for_each_tag() {
            let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
            let store = at.open(&prefix());
            let cluster = &at.server;
            at.runtime.block_on(async {
                let candidates: Vec<_> =
                    (0..1_000).map(|number| Candidate::new(&format!("{number}"), 1)).collect();
                let mut renewals = Vec::new();
                let acquired =
                    run_batch(&store, candidates.iter().map(|one| one.acquire().into()).collect()).await;
                for (candidate, acquired) in candidates.iter().zip(acquired) {
                    let Ok(Answer::Acquire(tenure_store::Acquired::Granted(token))) = acquired else {
                        panic!("not granted: {acquired:?}");
                    };
                    renewals.push(candidate.renew(token).into());
                }
                // Once, for the script.
                run_batch(&store, renewals.clone()).await;
                let connection = store.list(None, 1).await;
                assert!(connection.is_ok(), "{connection:?}");
                for node in cluster.nodes() {
                    node.command(&["CONFIG", "RESETSTAT"]).ok();
                }
                let began = std::time::Instant::now();
                let renewed = run_batch(&store, renewals).await;
                println!("renewing 1,000 leases over 64 tags took {:?}", began.elapsed());
                assert!(
                    renewed.iter().all(|renewed| *renewed == Ok(Answer::Renew(Renewed::Renewed))),
                    "{renewed:?}"
                );
            });
        }
    }
}

mod needs_valkey {
    #[cfg(feature = "smol")]
    mod smol {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_cluster(Runtime::Smol, Flavour::Valkey), needs: "needs valkey", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }
}
