//! Servers that work together.

#![cfg(unix)]

use std::net::SocketAddr;

use tenure_servers::{Client, Cluster, Config, Flavour, Redis, Reply, Sentinel, eventually};

fn role(server: &Redis) -> String {
    // A server that changes its role closes all connections.
    let reply = eventually("a role", || server.client().try_command(&["ROLE"]).ok());
    reply.array().swap_remove(0).text()
}

fn reaches_the_replica(sentinel: &Sentinel, key: &str, value: &str) {
    let replica = sentinel.replicas().swap_remove(0);
    eventually("the replica to have it", || {
        (replica.command(&["GET", key]) == Reply::Bulk(value.into())).then_some(())
    });
}

fn sentinels_make_the_replica_the_primary(flavour: Flavour) {
    let sentinel = Sentinel::of(flavour);
    let (before, address) = (sentinel.primary(), sentinel.primary_address());
    assert_eq!((role(before).as_str(), before.address()), ("master", address));
    assert_eq!(sentinel.sentinel_ports().len(), 3);
    before.command(&["SET", "key", "value"]).ok();
    reaches_the_replica(&sentinel, "key", "value");

    sentinel.failover();
    assert_ne!(sentinel.primary_address(), address);
    assert_eq!(role(sentinel.primary()), "master");
    assert_eq!(sentinel.primary().command(&["GET", "key"]).text(), "value");
    // The old one is told so.
    sentinel.settled();
    assert_eq!(role(before), "slave");
    assert!(before.command(&["SET", "key", "other"]).error().starts_with("READONLY"));

    let address = sentinel.kill_primary();
    sentinel.moved(address);
    assert_eq!(sentinel.primary_address(), before.address());
    sentinel.primary().command(&["SET", "key", "third"]).ok();
}

fn a_cluster_shares_slots_and_moves_them(flavour: Flavour) {
    let cluster = Cluster::with(&Config::new().flavour(flavour), 3, 0);
    assert_eq!(cluster.ports().len(), 3);
    let slot = cluster.slot("{tag}key");
    assert_eq!(slot, cluster.slot("tag"));
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    let get = |index: usize| cluster.nodes()[index].command(&["GET", "{tag}key"]);
    for key in ["{tag}key", "{tag}other"] {
        cluster.nodes()[from].command(&["SET", key, "value"]).ok();
    }
    let elsewhere = |at: usize| format!("{slot} 127.0.0.1:{}", cluster.nodes()[at].port());
    assert_eq!(get(to).error(), format!("MOVED {}", elsewhere(from)));

    cluster.begin_move(slot, from, to);
    assert_eq!(get(from).text(), "value");
    assert_eq!(
        cluster.nodes()[from].command(&["GET", "{tag}missing"]).error(),
        format!("ASK {}", elsewhere(to))
    );
    assert_eq!(cluster.move_keys(slot, from, to, 1), 1);
    assert!(
        cluster.nodes()[from].command(&["MGET", "{tag}key", "{tag}other"]).error().starts_with("TRYAGAIN")
    );

    cluster.finish_move(slot, from, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(get(to).text(), "value");
    assert_eq!(get(from).error(), format!("MOVED {}", elsewhere(to)));
    assert_eq!(cluster.keys(), ["{tag}key", "{tag}other"]);
    cluster.settled();
}

macro_rules! on {
    ($module:ident, $why:literal, $flavour:ident: $($test:ident)*) => {
        mod $module {
            use super::*;

            $(
                #[test]
                #[ignore = $why]
                fn $test() {
                    super::$test(Flavour::$flavour);
                }
            )*
        }
    };
}

on! { needs_valkey, "needs valkey", Valkey:
    sentinels_make_the_replica_the_primary
    a_cluster_shares_slots_and_moves_them
}

mod needs_redis {
    use super::*;

    #[test]
    #[ignore = "needs redis"]
    fn sentinels_make_the_replica_the_primary() {
        super::sentinels_make_the_replica_the_primary(Flavour::Redis);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_cluster_shares_slots_and_moves_them() {
        super::a_cluster_shares_slots_and_moves_them(Flavour::Redis);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_partition_leaves_two_primaries_and_healing_it_one() {
        let sentinel = Sentinel::behind_a_proxy();
        let old = &sentinel.servers()[0];
        let known: SocketAddr = sentinel.proxy().address();
        assert_eq!(sentinel.primary_address(), known);
        Client::connect(known).unwrap().command(&["SET", "key", "before"]).ok();
        reaches_the_replica(&sentinel, "key", "before");

        sentinel.proxy().stall();
        sentinel.moved(known);
        sentinel.direct().command(&["SET", "key", "on the old side"]).ok();
        sentinel.primary().command(&["SET", "key", "on the new side"]).ok();
        assert_eq!((role(old).as_str(), role(sentinel.primary()).as_str()), ("master", "master"));

        sentinel.proxy().restore();
        sentinel.settled();
        assert_eq!(role(old), "slave");
        assert_eq!(old.command(&["GET", "key"]).text(), "on the new side");
    }

    #[test]
    #[ignore = "needs redis"]
    fn with_passwords_and_tls_the_replica_becomes_the_primary() {
        let config = Config::new().tls().password("servers").sentinel_password("sentinels");
        let sentinel = Sentinel::with(&config, 1, false);
        let (before, address) = (sentinel.primary(), sentinel.primary_address());
        assert_eq!(before.tls_port(), address.port());
        assert_eq!(sentinel.sentinel_tls_ports().len(), 3);
        for (port, password, other) in
            [(before.port(), "servers", "sentinels"), (sentinel.sentinel_ports()[0], "sentinels", "servers")]
        {
            let mut client = Client::connect(("127.0.0.1", port)).unwrap();
            assert!(client.auth("", other).error().starts_with("WRONGPASS"));
            client.auth("", password).ok();
        }
        before.command(&["SET", "key", "value"]).ok();
        reaches_the_replica(&sentinel, "key", "value");

        sentinel.failover();
        assert_ne!(sentinel.primary_address(), address);
        assert_eq!(role(sentinel.primary()), "master");
        sentinel.settled();
        assert_eq!(role(before), "slave");
        sentinel.primary().command(&["SET", "key", "other"]).ok();
        reaches_the_replica(&sentinel, "key", "other");
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_sentinel_that_is_gone_is_not_needed() {
        let sentinel = Sentinel::start();
        sentinel.kill_sentinel(2);
        let before = sentinel.kill_primary();
        sentinel.moved(before);
        sentinel.restart_sentinel(2);
        sentinel.moved(before);
    }

    #[test]
    #[ignore = "needs redis"]
    fn the_replica_of_a_node_that_is_gone_takes_over() {
        let cluster = Cluster::with(&Config::new(), 3, 1);
        let slot = cluster.slot("key");
        let owner = cluster.owner(slot);
        let replica = cluster.replica(owner);
        assert_eq!(
            (role(&cluster.nodes()[owner]).as_str(), role(&cluster.nodes()[replica]).as_str()),
            ("master", "slave")
        );
        let mut client = cluster.nodes()[owner].client();
        client.command(&["SET", "key", "value"]).ok();
        assert_eq!(client.command(&["WAIT", "1", "10000"]).integer(), 1);
        cluster.nodes()[owner].kill();
        cluster.promote(replica);
        assert_eq!(cluster.owner(slot), replica);
        assert_eq!(cluster.nodes()[replica].command(&["GET", "key"]).text(), "value");
        cluster.settled();
    }
}
