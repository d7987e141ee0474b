//! Servers of NATS of one's own.

mod needs_nats {
    use tenure_servers::{Nats, NatsCluster, NatsConfig};

    const STREAM: &[u8] = br#"{"name":"s","subjects":["s.>"],"storage":"file","num_replicas":1}"#;

    #[test]
    #[ignore = "needs nats-server"]
    fn a_server_keeps_what_it_has_acknowledged_over_a_restart() {
        let server = Nats::start();
        let made = server.client().request("$JS.API.STREAM.CREATE.s", STREAM).expect("an answer");
        assert!(!String::from_utf8_lossy(&made).contains("\"error\""));
        for expected in 1..4 {
            let ack = server.client().publish("s.a", &["X: y"], b"text").expect("it is kept");
            assert!(String::from_utf8_lossy(&ack).contains(&format!("\"seq\":{expected}")));
            if expected % 2 == 0 {
                server.stop()
            } else {
                server.kill()
            }
            assert_eq!(server.pid(), None);
            server.restart();
        }
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn a_frozen_server_answers_nothing_until_it_goes_on() {
        let server = Nats::start();
        let mut client = server.client();
        assert!(client.request("$JS.API.INFO", b"").is_some());
        server.freeze();
        assert!(client.request("$JS.API.INFO", b"").is_none());
        server.thaw();
        assert!(server.client().request("$JS.API.INFO", b"").is_some());
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn nobody_answers_where_there_is_no_jetstream_and_nobody_is_let_in_without_a_password() {
        let server = Nats::with(NatsConfig::new().without_jetstream());
        assert!(server.client().request("$JS.API.INFO", b"").is_none());
        let users = "authorization { users: [ { user: a, password: b } ] }";
        let server = Nats::with(NatsConfig::new().lines(users));
        assert!(tenure_servers::NatsClient::connect(server.address(), None).is_none());
        assert!(server.client_of("a", "b").request("$JS.API.INFO", b"").is_some());
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn another_leads_when_the_leader_is_killed() {
        let cluster = NatsCluster::start();
        let stream = String::from_utf8_lossy(STREAM).replace("\"num_replicas\":1", "\"num_replicas\":3");
        cluster.servers()[0]
            .client()
            .request("$JS.API.STREAM.CREATE.s", stream.as_bytes())
            .expect("an answer");
        let leader = || cluster.leader("s");
        let before = tenure_servers::eventually("a leader", leader);
        cluster.servers()[before].kill();
        let after =
            tenure_servers::eventually("another leader", || leader().filter(|leader| *leader != before));
        assert_ne!(before, after);
    }
}
