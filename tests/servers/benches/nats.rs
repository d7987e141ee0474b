//! What Tenure on NATS costs, side by side with raw requests on the same bucket: on a server alone, and on three.
//!
//! `cargo bench -p tenure-servers --bench nats` measures; `cargo test` runs it once with small numbers, to see that
//! it works. Nothing fails by being slow: it prints figures and ratios.
//!
//! - **Hand-over**: from the call that gives a lease back until a candidate in another process has it; raw: a purge and a
//!   write, each on the condition that it is the next one, and a plain message between them.
//! - **Renewals** of 20,000 leases by a handle of the store; raw: conditional writes with a TTL of records of the same
//!   length, as many of them under way.
//! - **Take-over**: how long after the TTL a candidate has the lease of a process that was killed.

mod common;

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use async_nats::{HeaderMap, Request, Subscriber};
use common::{
    Hands, Owned, Pair, Processes, Quantiles, Wanted, candidate, print_renewals, processors, runtime,
    with_threads,
};
use futures::StreamExt as _;
use futures::channel::oneshot;
use futures::stream;
use tenure::{Instant, Lease, Progress, Store as _, Tenure, clock};
use tenure_nats::NatsStore;
use tenure_servers::{Nats, NatsClient, NatsCluster, NatsConfig};

fn main() {
    let wanted = Wanted::new();
    if let [verb, url, what, threads] = &wanted.arguments[..]
        && verb == "--candidate"
    {
        return with_threads(threads).block_on(async {
            match &**what {
                "tenure" => candidate(Ours { tenure: connect(url), lease: None }).await,
                _ => candidate(Raw::new(url).await).await,
            }
        });
    }
    if let [verb, url] = &wanted.arguments[..]
        && verb == "--holder"
    {
        return runtime().block_on(hold_for_good(url));
    }
    if !NatsConfig::new().is_installed() {
        return println!("no nats-server: nothing is measured");
    }
    println!("{} processors", processors());
    let (server, cluster) = (Nats::start(), NatsCluster::start());
    for (server, replicas) in [(&server, 1), (&cluster.servers()[0], 3)] {
        let place = Place::new(server, replicas);
        match replicas {
            1 => println!("a server alone:"),
            _ => println!("three servers, with clients at n0 and the leader n{}:", leader(&cluster)),
        }
        if wanted.part("handover") {
            for threads in ["1", "2"] {
                with_threads(threads).block_on(hand_over(&place, threads, wanted.scale(10, 1_000)));
            }
        }
        if wanted.part("renewals") {
            for batches in [1, 4] {
                let (leases, rounds) = (wanted.scale(1_000, 20_000), wanted.scale(1, 5));
                runtime().block_on(renewals(&place, batches, leases, rounds));
            }
        }
        if wanted.part("takeover") {
            runtime().block_on(take_over(&place, wanted.scale(1, 20)));
        }
    }
}

fn leader(cluster: &NatsCluster) -> usize {
    cluster.leader(STREAM).expect("it has one")
}

const STREAM: &str = "KV_tenure";
/// Where the raw side has its records, in the same bucket.
const RAW: &str = "$KV.tenure.raw";

/// A server, and what keeps records there.
struct Place {
    /// As the store has it.
    url: String,
    control: RefCell<NatsClient>,
}

impl Place {
    /// With a bucket.
    fn new(server: &Nats, replicas: u8) -> Self {
        let url = format!("{}?replicas={replicas}&connect_timeout=20s", server.url());
        let this = Self { control: RefCell::new(server.client()), url };
        runtime().block_on(async {
            let tenure = connect(&this.url);
            tenure.leases().await.expect("a bucket");
            tenure.shutdown().await.expect("nothing to give back");
        });
        this
    }

    fn read(&self, which: &str) -> String {
        let answer =
            self.control.borrow_mut().request(&format!("$JS.API.STREAM.MSG.GET.{STREAM}"), which.as_bytes());
        String::from_utf8(answer.expect("an answer")).expect("text")
    }

    /// The number of the last write to a subject; zero if there is none.
    fn last(&self, subject: &str) -> u64 {
        number(&self.read(&format!("{{\"last_by_subj\":\"{subject}\"}}"))).unwrap_or_default()
    }

    /// Whether somebody is registered who waits for a lease, not just the trace of one.
    fn is_waited_for(&self, lease: &str) -> bool {
        let mut from = 1;
        loop {
            let next = format!("{{\"seq\":{from},\"next_by_subj\":\"$KV.tenure.wait.k{lease}.*\"}}");
            let found = self.read(&next);
            match number(&found) {
                Some(_) if found.contains("\"data\":") => return true,
                Some(number) => from = number + 1,
                None => return false,
            }
        }
    }
}

/// The number of a write in an answer of the server.
fn number(answer: &str) -> Option<u64> {
    let (_, rest) = answer.split_once("\"seq\":")?;
    rest.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

fn connect(url: &str) -> Tenure {
    let store = NatsStore::from_url(url).expect("the URL of a server");
    tenure::builder().store(store).start().expect("within a runtime")
}

// --- hand-over -------------------------------------------------------------------------------------------

struct Ours {
    tenure: Tenure,
    lease: Option<Lease>,
}

impl Hands for Ours {
    type Server = Place;

    async fn take(&mut self) -> Instant {
        let lease = self.tenure.acquire("handover").await.expect("it is given back");
        let got = clock::now();
        lease.release().await.expect("the driver runs");
        got
    }

    async fn hold(&mut self, place: &Place, call: impl FnOnce()) {
        self.lease = Some(self.tenure.acquire("handover").await.expect("it is free"));
        call();
        // Its second look is over soon.
        while !place.is_waited_for("handover") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn give(&mut self) {
        let lease = self.lease.take().expect("it is held");
        lease.release().await.expect("the driver runs");
    }
}

/// A lock as one writes it who knows how: each write says which one it follows, and a message tells the waiter of the last.
struct Raw {
    client: async_nats::Client,
    told: Subscriber,
    last: u64,
}

/// As long as the record of a lease.
const RECORD: &str = r#"{"v":1,"owner":"localhost/0123456789abcdef0123456789abcdef.17","ttl":15000000000,"since":1796130328619953000,"host":"localhost","pid":12345}"#;

fn after(last: u64, ttl: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
    headers.insert("Nats-TTL", ttl);
    headers
}

/// Writes, and tells the number of it.
async fn write(client: &async_nats::Client, subject: String, headers: HeaderMap, data: &'static str) -> u64 {
    let request = Request::new().headers(headers).payload(data.into());
    let answer = client.send_request(subject, request).await.expect("the server works");
    let answer = str::from_utf8(&answer.payload).expect("text");
    number(answer).filter(|_| !answer.contains("\"error\"")).unwrap_or_else(|| panic!("{answer}"))
}

impl Raw {
    async fn new(url: &str) -> Self {
        let client = raw(url).await;
        let told = client.subscribe("raw.free").await.expect("the server works");
        client.flush().await.expect("the server works");
        Self { client, told, last: 0 }
    }

    async fn take_now(&mut self) {
        self.last = write(&self.client, format!("{RAW}.lease"), after(self.last, "15s"), RECORD).await;
    }

    async fn end(&mut self) {
        let mut headers = after(self.last, "10s");
        headers.insert("KV-Operation", "PURGE");
        headers.insert("Nats-Rollup", "sub");
        self.last = write(&self.client, format!("{RAW}.lease"), headers, "").await;
    }
}

async fn raw(url: &str) -> async_nats::Client {
    let (address, _) = url.split_once('?').expect("it has parameters");
    async_nats::ConnectOptions::new().no_echo().connect(address).await.expect("the server is there")
}

impl Hands for Raw {
    type Server = Place;

    async fn take(&mut self) -> Instant {
        let told = self.told.next().await.expect("the connection lives");
        self.last = str::from_utf8(&told.payload).expect("text").parse().expect("a number");
        self.take_now().await;
        let got = clock::now();
        self.end().await;
        got
    }

    async fn hold(&mut self, place: &Place, call: impl FnOnce()) {
        self.last = place.last(&format!("{RAW}.lease"));
        self.take_now().await;
        call();
    }

    async fn give(&mut self) {
        self.end().await;
        self.client.publish("raw.free", self.last.to_string().into()).await.expect("the connection lives");
    }
}

async fn hand_over(place: &Place, threads: &str, rounds: usize) {
    let tenure = connect(&place.url);
    let ours = Ours { tenure: tenure.clone(), lease: None };
    let mut ours = Pair::new(&place.url, threads, "tenure", ours).await;
    let mut raw = Pair::new(&place.url, threads, "raw", Raw::new(&place.url).await).await;
    let (mut with_tenure, mut with_raw) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with_tenure.push(ours.hand_over(place).await);
        with_raw.push(raw.hand_over(place).await);
    }
    tenure.shutdown().await.expect("all given back");
    let (with_tenure, with_raw) = (Quantiles::of(with_tenure), Quantiles::of(with_raw));
    println!(
        "hand-over between processes, threads of each: {threads}, {rounds} rounds: tenure {with_tenure}; raw {with_raw}; \
         medians {:.2} : 1",
        with_tenure.half / with_raw.half
    );
}

// --- renewals --------------------------------------------------------------------------------------------

async fn renewals(place: &Place, batches: usize, leases: usize, rounds: usize) {
    let store = NatsStore::from_url(&place.url).expect("a fine URL");
    let in_flight = batches * store.limits().batch;
    let owned = Owned::acquire(&store, leases, batches).await;
    let renewals = owned.renewals();
    let client = raw(&place.url).await;
    let subjects: Vec<String> = (0..leases).map(|n| format!("{RAW}.lease-{n}")).collect();
    let mut last: Vec<u64> = subjects.iter().map(|subject| place.last(subject)).collect();
    let (mut ours, mut theirs, mut busy) = (Vec::new(), Vec::new(), Duration::ZERO);
    // The first round makes the raw records, and counts for neither.
    for round in 0..=rounds {
        let (took, processors) = owned.renew(&renewals, batches).await;
        let writes: Vec<(usize, String, HeaderMap)> = subjects
            .iter()
            .zip(&last)
            .enumerate()
            .map(|(n, (subject, last))| (n, subject.clone(), after(*last, "600s")))
            .collect();
        let begin = clock::now();
        let mut running = stream::iter(writes)
            .map(|(n, subject, headers)| {
                let client = &client;
                async move { (n, write(client, subject, headers, RECORD).await) }
            })
            .buffer_unordered(in_flight);
        while let Some((n, number)) = running.next().await {
            last[n] = number;
        }
        drop(running);
        if round > 0 {
            theirs.push(clock::now().saturating_since(begin));
            ours.push(took);
            busy += processors;
        }
    }
    print_renewals(leases, &format!(", {in_flight} in flight"), ours, theirs, busy);
    store.close().await;
}

// --- take-over -------------------------------------------------------------------------------------------

const SHORT: Duration = Duration::from_secs(1);

/// The process that is killed.
async fn hold_for_good(url: &str) {
    let tenure = connect(url);
    let lease = tenure.acquire("takeover").ttl(SHORT).await.expect("it is free");
    // It lives when it is killed.
    lease.renewals().next().await.expect("a renewal");
    println!("renewed");
    std::future::pending::<()>().await;
}

async fn take_over(place: &Place, rounds: usize) {
    let tenure = connect(&place.url);
    let mut late = Vec::new();
    for _ in 0..rounds {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--holder", &place.url]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program again");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let holder = Processes(vec![child]);
        assert_eq!(lines.next().expect("it lives").expect("text"), "renewed");
        let (told, waits) = oneshot::channel();
        let mut told = Some(told);
        let acquire = tenure.acquire("takeover").ttl(SHORT).on_progress(move |progress| {
            if let (Progress::Waiting { .. }, Some(told)) = (progress, told.take()) {
                let _ = told.send(());
            }
        });
        let candidate = tokio::spawn(async move { (acquire.await.expect("it ends"), clock::now()) });
        waits.await.expect("the lease is held");
        drop(holder);
        let record = tenure.inspect("takeover").await.expect("the server works").expect("it is not over yet");
        let end = clock::now() + record.holder.remaining.expect("it has an end");
        let (lease, got) = candidate.await.expect("no panic");
        late.push(got.saturating_since(end));
        lease.release().await.expect("the driver runs");
    }
    tenure.shutdown().await.expect("all given back");
    println!(
        "take-over from a process that was killed, {rounds} rounds: {} after the TTL of {SHORT:?}",
        Quantiles::of(late)
    );
}
