//! Who may do what, by which certificates, and that no secret is shown.

mod common;

use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Candidate, Runtime, hears, run};
use nkeys::KeyPair;
use tenure_nats::{NatsOptions, NatsStore};
use tenure_servers::{Nats, NatsConfig};
use tenure_store::StoreErrorKind::Rejected;
use tenure_store::core::{Identity, Incarnation, Labels, LeaseName, TimerName};
use tenure_store::{
    Heartbeat, Hint, Metadata, Operation, Renewed, Store, StoreError, TimerAct, TimerRequest,
};

async fn fails(store: &NatsStore) -> StoreError {
    let mut request = Candidate::new("a", 1).acquire();
    request.timeout = Duration::from_secs(5);
    let error = run(store, request.into()).await.expect_err("it may not");
    let shown = format!("{error:?} {error} {:?} {store:?} {}", store.options(), store.options());
    assert!(!shown.contains("s3cret"), "{shown}");
    error
}

/// All that a program does.
async fn works(store: &NatsStore) {
    let mut hints = store.hints().expect("nobody listens yet");
    let holder = Candidate::new("a", 1);
    let token = holder.gets(store).await;
    store.watch(LeaseName::new("a").unwrap()).await.expect("watching works");
    hears(&mut hints, "the beginning", |hint| (*hint == Hint::Resync).then_some(())).await;
    assert_eq!(holder.renews(store, token).await, Renewed::Renewed);
    Candidate::new("a", 2).is_refused(store).await;
    holder.releases(store, token).await;
    store.unwatch(LeaseName::new("a").unwrap()).await;
    let act = TimerAct::Read { schedule: "every 1s".into(), last: None };
    let timer = TimerRequest { name: TimerName::new("a").unwrap(), act, timeout: Duration::from_secs(5) };
    run(store, Operation::Timer(timer)).await.expect("reading a timer works");
    let beat = Heartbeat {
        identity: Identity::new("a", Incarnation::new(1)).unwrap(),
        sequence: 1,
        joined: None,
        draining: false,
        marked: false,
        digests: [].into(),
        labels: Labels::default(),
        known: None,
        ttl: Duration::from_secs(60),
        metadata: Metadata::new(),
        timeout: Duration::from_secs(5),
    };
    run(store, Operation::Heartbeat(beat)).await.expect("a heartbeat works");
    assert_eq!(store.members(None, 10).await.expect("listing works").len(), 1);
    assert_eq!(store.timers(None, 10).await.expect("listing works").len(), 1);
    assert_eq!(store.list(None, 10).await.expect("listing works").len(), 0);
    assert_eq!(store.jobs(None, 10).await.expect("listing works").len(), 0);
}

/// The permissions that the documentation names, and no others; where the bucket is there, the one to make it is not
/// needed.
const PERMISSIONS: &str = r#"authorization { users: [
    { user: "maker", password: "s3cret", permissions: {
        publish: ["$JS.API.STREAM.INFO.KV_tenure", "$JS.API.STREAM.MSG.GET.KV_tenure", "$KV.tenure.>", "tenure.tenure.>",
            "$JS.API.STREAM.CREATE.KV_tenure"],
        subscribe: ["_INBOX.>", "tenure.tenure.>"] } }
    { user: "user", password: "s3cret", permissions: {
        publish: ["$JS.API.STREAM.INFO.KV_tenure", "$JS.API.STREAM.MSG.GET.KV_tenure", "$KV.tenure.>", "tenure.tenure.>"],
        subscribe: ["_INBOX_user.>", "tenure.tenure.>"] } }
    { user: "silent", password: "s3cret", permissions: {
        publish: ["$JS.API.STREAM.INFO.KV_tenure", "$JS.API.STREAM.MSG.GET.KV_tenure", "$KV.tenure.>"],
        subscribe: ["_INBOX.>"] } }
] }"#;

/// A token of NATS about `subject`, by this issuer.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let (iss, sub) = (issuer.public_key(), subject.public_key());
    let claims = format!(r#"{{"jti":"x","iat":1,"iss":"{iss}","name":"test","sub":"{sub}","nats":{nats}}}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

mod needs_nats {
    use super::*;

    /// A file as `nsc` writes it, at a server that trusts an operator.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_file_with_credentials_lets_in_whom_it_is_for() {
        let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
        let (user, other) = (KeyPair::new_user(), KeyPair::new_user());
        let limits = r#""subs":-1,"data":-1,"payload":-1"#;
        let of_operator = jwt(&operator, &operator, r#"{"type":"operator","version":2}"#);
        let of_account = |storage: &str| {
            format!(
                r#"{{"limits":{{{limits},"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1{storage}}},
                    "type":"account","version":2}}"#
            )
        };
        // JetStream is not for the account of the system itself.
        let system = KeyPair::new_account();
        let of_system = jwt(&operator, &system, &of_account(""));
        let storage = r#","mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1"#;
        let of_account = jwt(&operator, &account, &of_account(storage));
        let of_user = jwt(&account, &user, &format!(r#"{{{limits},"type":"user","version":2}}"#));
        let server = Nats::with(NatsConfig::new().lines(&format!(
            "operator: {of_operator}\nsystem_account: {system}\nresolver: MEMORY\n\
             resolver_preload: {{ {system}: {of_system}, {}: {of_account} }}",
            account.public_key(),
            system = system.public_key(),
        )));
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::tokio();
        for (pair, right) in [(&user, true), (&other, false)] {
            let file = folder.path().join("user.creds");
            let seed = pair.seed().unwrap();
            let text = format!(
                "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
                 ************************* IMPORTANT *************************\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            );
            fs::write(&file, text).unwrap();
            let options = NatsOptions::new([server.address().to_string()]).unwrap().credentials_file(&file);
            let store = NatsStore::new(options);
            if right {
                runtime.block_on(works(&store));
            } else {
                let error = runtime.block_on(fails(&store));
                assert!(error.kind == Rejected && !error.message.contains(&seed), "{error}");
            }
        }
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn the_permissions_that_are_documented_are_enough() {
        let server = Nats::with(NatsConfig::new().lines(PERMISSIONS));
        let url = |user: &str, more: &str| format!("nats://{user}:s3cret@{}{more}", server.address());
        let store = |user, more| NatsStore::from_url(&url(user, more)).unwrap();
        let runtime = Runtime::tokio();
        let error = runtime.block_on(fails(&store("user", "?inbox_prefix=_INBOX_user")));
        assert!(
            error.kind == Rejected && error.message.contains("STREAM.CREATE"),
            "there is no bucket yet: {error}"
        );
        runtime.block_on(works(&store("maker", "")));
        runtime.block_on(works(&store("user", "?inbox_prefix=_INBOX_user")));
        let error = runtime.block_on(fails(&store("user", "")));
        assert!(error.kind == Rejected && error.message.contains("_INBOX"), "{error}");
        let error = runtime.block_on(fails(&store("maker", "?bucket=other")));
        assert!(error.kind == Rejected && error.message.contains("KV_other"), "{error}");
    }

    /// Who may not listen to hints may still hold leases; watching says why it can't.
    #[test]
    #[ignore = "needs nats-server"]
    fn who_may_not_listen_can_still_hold_leases() {
        let server = Nats::with(NatsConfig::new().lines(PERMISSIONS));
        let store =
            |user: &str| NatsStore::from_url(&format!("nats://{user}:s3cret@{}", server.address())).unwrap();
        Runtime::tokio().block_on(async {
            works(&store("maker")).await;
            let silent = store("silent");
            let holder = Candidate::new("b", 1);
            let token = holder.gets(&silent).await;
            let error = silent.watch(holder.name.clone()).await.expect_err("it may not listen");
            assert!(error.kind == Rejected && error.message.contains("tenure.tenure.>"), "{error}");
            assert_eq!(holder.renews(&silent, token).await, Renewed::Renewed);
            holder.releases(&silent, token).await;
        });
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn a_wrong_password_or_key_is_rejected_and_the_right_one_is_read_where_it_is() {
        let pair = KeyPair::new_user();
        let users = format!(
            "authorization {{ users: [ {{ user: a, password: s3cret-1 }}, {{ nkey: {} }} ] }}",
            pair.public_key()
        );
        let server = Nats::with(NatsConfig::new().lines(&users));
        let folder = tempfile::tempdir().unwrap();
        let (password, seed) = (folder.path().join("password"), folder.path().join("seed"));
        fs::write(&password, "s3cret-1\n").unwrap();
        fs::write(&seed, format!("{}\n", pair.seed().unwrap())).unwrap();
        let at = format!("nats://{}", server.address());
        let store = |query: &str| NatsStore::from_url(&format!("{at}?{query}")).unwrap();
        let runtime = Runtime::tokio();
        for (query, right) in [
            (format!("username=a&password_file={}", password.display()), true),
            (format!("nkey={}", seed.display()), true),
            (format!("username=b&password_file={}", password.display()), false),
            (format!("nkey={}", password.display()), false),
            (format!("creds={}", seed.display()), false),
            ("nkey=/nowhere".to_owned(), false),
            (String::new(), false),
        ] {
            let store = store(&query);
            if right {
                runtime.block_on(works(&store));
                // With the others it is the first member of another bucket.
                let _ = server.client_of("a", "s3cret-1").request("$JS.API.STREAM.DELETE.KV_tenure", b"");
            } else {
                let error = runtime.block_on(fails(&store));
                assert_eq!(error.kind, Rejected, "{query}: {error}");
            }
        }
        // What is in the file counts at the next connect.
        let store = store(&format!("username=a&password_file={}", password.display()));
        fs::write(&password, "s3cret-2").unwrap();
        assert_eq!(runtime.block_on(fails(&store)).kind, Rejected);
        fs::write(&password, "s3cret-1").unwrap();
        runtime.block_on(works(&store));
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn connections_are_encrypted_and_certificates_are_checked() {
        let server = Nats::with(NatsConfig::new().mutual_tls());
        let certificates = server.certificates();
        let options = || NatsOptions::new([server.address().to_string()]).unwrap();
        let whole = || {
            options().ca_file(&certificates.ca).identity_files(&certificates.client, &certificates.client_key)
        };
        let runtime = Runtime::tokio();
        runtime.block_on(works(&NatsStore::new(whole())));
        let error = runtime.block_on(fails(&NatsStore::new(options().tls())));
        assert_eq!(error.kind, Rejected, "its authority is nobody's: {error}");
        let error = runtime.block_on(fails(&NatsStore::new(options().ca_file("/nowhere"))));
        assert_eq!(error.kind, Rejected, "{error}");
        // Without a certificate of its own it is let in by the handshake of TLS 1.3, and thrown out after it.
        let _ = runtime.block_on(fails(&NatsStore::new(options().ca_file(&certificates.ca))));

        // A server without TLS is not spoken to by those who want it.
        let plain = Nats::start();
        let store = NatsStore::from_url(&format!("tls://{}", plain.address())).unwrap();
        let _ = runtime.block_on(fails(&store));
    }
}
