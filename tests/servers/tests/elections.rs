//! A cluster of NATS whose bucket loses its leader, while two handles hold many leases and wait for each other's.

#![cfg(unix)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Instant, Lease, LeaseConfig, Progress, Tenure, Token, clock};
use tenure_nats::NatsStore;
use tenure_servers::{LIMIT, NatsCluster};
use tokio::task::JoinSet;

const LEASES: usize = 100;
const TTL: Duration = Duration::from_secs(15);
/// The attempt that was under way as the election was over is given up after 2.1 s, and the next one is answered.
const ATTEMPT: Duration = Duration::from_secs(3);
const STREAM: &str = "KV_tenure";

/// One stretch of work under one grant.
#[derive(Clone, Debug)]
struct Span {
    lease: usize,
    who: usize,
    token: Token,
    begin: Instant,
    end: Instant,
}

/// What is known of a lease now.
#[derive(Default)]
struct State {
    /// Somebody works under it.
    busy: AtomicBool,
    /// Somebody was told that it is held.
    waited_for: AtomicBool,
    /// How often it was renewed.
    renewed: AtomicU64,
}

/// What all who work leave behind, and what tells them to end.
struct Witness {
    leases: Vec<State>,
    spans: Mutex<Vec<Span>>,
    /// What was lost, and when.
    losses: Mutex<Vec<(String, Instant)>>,
    /// What must not happen, as text.
    wrong: Mutex<Vec<String>>,
    enough: AtomicBool,
}

impl Witness {
    fn new() -> Self {
        Self {
            leases: (0..LEASES).map(|_| State::default()).collect(),
            spans: Mutex::default(),
            losses: Mutex::default(),
            wrong: Mutex::default(),
            enough: AtomicBool::new(false),
        }
    }

    fn is_wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// Works under a lease until it is enough, or the lease is over.
    async fn work(&self, lease: usize, who: usize, held: Lease) {
        let (token, begin) = (held.token(), clock::now());
        if self.leases[lease].busy.swap(true, SeqCst) {
            self.is_wrong(format!("{who} works under {lease}, and somebody else, too"));
        }
        let mut renewals = held.renewals();
        let work = async {
            while !self.enough.load(SeqCst) {
                // A little at a time.
                match tokio::time::timeout(Duration::from_millis(5), renewals.next()).await {
                    Ok(Some(_)) => drop(self.leases[lease].renewed.fetch_add(1, SeqCst)),
                    Ok(None) => std::future::pending().await,
                    Err(_) => {}
                }
            }
        };
        let over = held.run(work).await;
        self.leases[lease].busy.store(false, SeqCst);
        let end = clock::now();
        self.spans.lock().unwrap().push(Span { lease, who, token, begin, end });
        if let Err(lost) = over {
            self.losses.lock().unwrap().push((format!("{who} lost {lease}: {lost}"), end));
        }
        let _ = held.release().await;
    }

    /// Each lease was held by both, one after the other, with a higher token the second time; and nothing else was wrong.
    fn must_be_clean(&self) {
        let mut spans = self.spans.lock().unwrap().clone();
        spans.sort_by_key(|span| (span.lease, span.begin));
        assert_eq!(spans.len(), 2 * LEASES, "{spans:#?}");
        for pair in spans.chunks(2) {
            let [first, second] = pair else { unreachable!() };
            assert_eq!(first.lease, second.lease, "{first:?} {second:?}");
            assert_ne!(first.who, second.who, "{first:?} {second:?}");
            assert!(first.end <= second.begin, "{first:?} {second:?}");
            assert!(first.token < second.token, "{first:?} {second:?}");
        }
    }

    /// Where the election took longer than a lease had, it was lost; where there was time for another renewal, never.
    fn must_have_kept_what_time_was_left_for(&self, trouble: Instant, over: Instant) {
        let losses = self.losses.lock().unwrap();
        for (what, at) in &*losses {
            println!("{what}, {:?} after the trouble began", at.saturating_since(trouble));
            assert!((trouble..over + ATTEMPT).contains(at), "there was time: {what}");
        }
    }

    fn must_have_gone_well(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Waits until there is something. Whoever looks may block for a while.
async fn eventually<T: Send + 'static>(
    witness: &Witness,
    what: &str,
    condition: impl Fn() -> Option<T> + Clone + Send + 'static,
) -> T {
    let limit = clock::now() + LIMIT;
    loop {
        let condition = condition.clone();
        if let Some(found) = tokio::task::spawn_blocking(condition).await.expect("no panic") {
            return found;
        }
        witness.must_have_gone_well();
        assert!(clock::now() < limit, "waited {LIMIT:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until this is so of each lease.
async fn all(
    witness: &Arc<Witness>,
    what: &str,
    is_so: impl Fn(&State, usize) -> bool + Clone + Send + Sync + 'static,
) {
    let seen = Arc::clone(witness);
    eventually(witness, what, move || {
        seen.leases.iter().enumerate().all(|(lease, state)| is_so(state, lease)).then_some(())
    })
    .await;
}

/// Waits until each lease was renewed from now on.
async fn all_are_renewed(witness: &Arc<Witness>, since: &str) {
    let before: Vec<u64> = witness.leases.iter().map(|state| state.renewed.load(SeqCst)).collect();
    let more = move |state: &State, lease: usize| state.renewed.load(SeqCst) > before[lease];
    all(witness, &format!("renewals of all leases {since}"), more).await;
}

/// Starts the candidate of a handle for a lease.
fn campaign(tasks: &mut JoinSet<()>, witness: &Arc<Witness>, tenure: &Tenure, who: usize, lease: usize) {
    let (witness, tenure, progress) = (Arc::clone(witness), tenure.clone(), Arc::clone(witness));
    tasks.spawn(async move {
        let acquire = tenure.acquire(format!("lease-{lease}")).on_progress(move |news| {
            if matches!(news, Progress::Waiting { .. }) {
                progress.leases[lease].waited_for.store(true, SeqCst);
            }
        });
        match acquire.await {
            Ok(held) => witness.work(lease, who, held).await,
            Err(error) => witness.is_wrong(format!("{who} does not get {lease}: {error}")),
        }
    });
}

/// Takes the leader of the bucket away and gives it back. Its clients are those that hold half of the leases.
async fn outlives(trouble: impl FnOnce(&NatsCluster, usize), end: impl FnOnce(&NatsCluster, usize)) {
    let cluster = Arc::new(NatsCluster::start());
    let connect = |server: usize| {
        let url = format!("{}?replicas=3&connect_timeout=20s", cluster.servers()[server].url());
        let store = NatsStore::from_url(&url).unwrap();
        tenure::builder().store(store).lease(LeaseConfig::new(TTL)).start().unwrap()
    };
    let witness = Arc::new(Witness::new());
    let leader_is = |what: &'static str, wanted: fn(usize, usize) -> bool, old: usize| {
        let (cluster, witness) = (Arc::clone(&cluster), Arc::clone(&witness));
        async move {
            let leader = move || cluster.leader(STREAM).filter(|leader| wanted(*leader, old));
            eventually(&witness, what, leader).await
        }
    };
    // With it there is a bucket.
    let maker = connect(0);
    maker.leases().await.expect("the bucket is made");
    let leader = leader_is("a leader", |_, _| true, 0).await;
    let tenures = [connect(leader), connect((leader + 1) % 3)];
    let mut tasks = JoinSet::new();
    for lease in 0..LEASES {
        campaign(&mut tasks, &witness, &tenures[lease % 2], lease % 2, lease);
    }
    all(&witness, "all leases to be held", |state, _| state.busy.load(SeqCst)).await;
    for lease in 0..LEASES {
        campaign(&mut tasks, &witness, &tenures[(lease + 1) % 2], (lease + 1) % 2, lease);
    }
    all(&witness, "all candidates to wait", |state, _| state.waited_for.load(SeqCst)).await;
    all_are_renewed(&witness, "at first").await;

    let since = clock::now();
    trouble(&cluster, leader);
    let next = leader_is("another leader", |leader, old| leader != old, leader).await;
    let over = clock::now();
    println!("n{next} leads after n{leader}, {:?} later", over.saturating_since(since));
    all_are_renewed(&witness, "by another leader").await;
    println!("all renewed {:?} after the trouble", clock::now().saturating_since(since));
    end(&cluster, leader);
    all_are_renewed(&witness, "after the end of the trouble").await;

    witness.enough.store(true, SeqCst);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    witness.must_have_gone_well();
    witness.must_be_clean();
    witness.must_have_kept_what_time_was_left_for(since, over);
    for tenure in tenures.into_iter().chain([maker]) {
        tenure.shutdown().await.expect("all given back");
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

mod needs_nats {
    use super::*;

    #[test]
    #[ignore = "needs nats-server"]
    fn no_lease_is_lost_as_the_leader_is_killed_and_comes_back() {
        block_on(outlives(
            |cluster, leader| cluster.servers()[leader].kill(),
            |cluster, leader| cluster.servers()[leader].restart(),
        ));
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn no_lease_is_lost_as_the_leader_is_frozen_and_goes_on() {
        block_on(outlives(
            |cluster, leader| cluster.servers()[leader].freeze(),
            |cluster, leader| cluster.servers()[leader].thaw(),
        ));
    }
}
