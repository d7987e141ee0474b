//! What Tenure on Redis costs, side by side with the raw commands on the same server.
//!
//! `cargo bench -p tenure-servers --bench redis` measures; `cargo test` runs it once with small numbers, to see that
//! it works. Nothing fails by being slow: it prints figures and ratios.
//!
//! - **Hand-over**: from the call that gives a lease back until a candidate in another process has it; raw: a script that
//!   deletes what is its own and publishes, a subscriber, SET NX; and our scripts by themselves.
//! - **Renewals** of 100,000 leases by a handle of the store; raw: the same script over as many keys, encoded beforehand.
//! - **Held**: a whole `Tenure` that holds 100,000 leases, the processor time that it needs, and what a lease needs at
//!   the server.
//! - **Waiters**: how many acquires reach the server for each hand-over while 1,000 wait, in few processes and in as many
//!   handles.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind};
use tenure::store_contract::core::Acquisition;
use tenure::store_contract::{Acquire, Acquired, Answer, Operation, Renew, Renewed, Replies};
use tenure::{
    Identity, Incarnation, Instant, Lease, LeaseName, Metadata, RedisStore, Store, Tenure, Token, clock,
};
use tenure_servers::Redis;

const RENEW: &str = include_str!("../../../adapters/redis/src/scripts/renew.lua");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, url, candidates] = &arguments[..]
        && verb == "--candidates"
    {
        let candidates = candidates.parse().expect("a number");
        return runtime().block_on(async {
            contend(&connect(url), candidates).await;
        });
    }
    if let [verb, url, what, threads] = &arguments[..]
        && verb == "--candidate"
    {
        return with_threads(threads).block_on(async {
            match &**what {
                "tenure" => candidate(Ours { tenure: connect(url), lease: None }).await,
                "scripts" => candidate(Scripts::new(url).await).await,
                _ => candidate(Raw::new(url).await).await,
            }
        });
    }
    // `cargo bench` says so; all else is a test.
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let wanted = |part: &str| {
        arguments.iter().all(|name| name.starts_with('-')) || arguments.iter().any(|name| name == part)
    };
    let scale = |small: usize, large: usize| if measured { large } else { small };
    let server = Redis::start();
    println!(
        "redis {}, {} processors",
        server.info("redis_version"),
        std::thread::available_parallelism().map_or(0, Into::into)
    );
    if wanted("handover") {
        for threads in ["1", "2"] {
            with_threads(threads).block_on(hand_over(&server, threads, scale(20, 2_000)));
            server.flush();
        }
    }
    if wanted("renewals") {
        runtime().block_on(renewals(&server, scale(1_000, 100_000), scale(1, 5)));
        server.flush();
    }
    if wanted("held") {
        runtime().block_on(held(&server, scale(500, 100_000), scale(1, 20)));
        server.flush();
    }
    if wanted("waiters") {
        processes(&server, scale(2, 10), scale(5, 100), scale(10, 300));
        server.flush();
        handles(&server, scale(20, 1_000), scale(10, 300));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    with_threads("2")
}

/// With one thread there are no wake-ups of threads in a process, neither in ours nor in the raw one.
fn with_threads(threads: &str) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        "1" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

fn connect(url: &str) -> Tenure {
    let store = RedisStore::from_url(url).expect("the URL of a server");
    tenure::builder().store(store).start().expect("within a runtime")
}

/// A connection of the library's own, with what the server pushes.
async fn raw(url: &str) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
    let (sender, pushes) = mpsc::unbounded();
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1_024)
        .set_push_sender(move |push| sender.unbounded_send(push));
    let info = redis::IntoConnectionInfo::into_connection_info(url).expect("a fine URL");
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client =
        redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp)).expect("a fine URL");
    (client.get_multiplexed_async_connection_with_config(&config).await.expect("the server is there"), pushes)
}

// --- hand-over -------------------------------------------------------------------------------------------

/// What a candidate and whoever gives the lease back do in a hand-over.
trait Hands: Sized {
    /// In a process of its own: waits for the lease, says when it got it, and gives it back.
    async fn take(&mut self) -> Instant;
    /// Takes the lease, which is free, and returns once the candidate that is called by then waits for it.
    async fn hold(&mut self, server: &Redis, call: impl FnOnce());
    /// Gives it back.
    async fn give(&mut self);
}

struct Ours {
    tenure: Tenure,
    lease: Option<Lease>,
}

impl Hands for Ours {
    async fn take(&mut self) -> Instant {
        let lease = self.tenure.acquire("handover").await.expect("it is given back");
        let got = clock::now();
        lease.release().await.expect("the driver runs");
        got
    }

    async fn hold(&mut self, server: &Redis, call: impl FnOnce()) {
        self.lease = Some(self.tenure.acquire("handover").await.expect("it is free"));
        call();
        // Registered with the server; its second look is over soon.
        while server.command(&["ZCARD", "tenure!waiters:handover"]).integer() == 0
            || server.command(&["PUBSUB", "NUMSUB", "tenure!wake:handover"]).array()[1].clone().integer() == 0
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn give(&mut self) {
        let lease = self.lease.take().expect("it is held");
        lease.release().await.expect("the driver runs");
    }
}

/// A lock as many write it: a script that deletes it if it is theirs and tells so, a subscriber, SET NX.
struct Raw {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    take: Cmd,
    release: redis::Script,
}

impl Raw {
    async fn new(url: &str) -> Self {
        let (mut connection, pushes) = raw(url).await;
        redis::cmd("SUBSCRIBE").arg("raw:free").exec_async(&mut connection).await.expect("subscribed");
        let mut take = redis::cmd("SET");
        take.arg("raw:lease").arg(std::process::id()).arg("NX").arg("PX").arg(15_000);
        let release = redis::Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[2] then return -1 end \
             redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[1], 'free')",
        );
        Self { connection, pushes, take, release }
    }

    async fn take_now(&mut self) {
        let taken: Option<String> =
            self.take.query_async(&mut self.connection).await.expect("the server is there");
        assert_eq!(taken.as_deref(), Some("OK"));
    }
}

impl Hands for Raw {
    async fn take(&mut self) -> Instant {
        while self.pushes.next().await.expect("the connection lives").kind != PushKind::Message {}
        self.take_now().await;
        let got = clock::now();
        redis::cmd("DEL").arg("raw:lease").exec_async(&mut self.connection).await.expect("deleted");
        got
    }

    async fn hold(&mut self, _server: &Redis, call: impl FnOnce()) {
        self.take_now().await;
        call();
    }

    async fn give(&mut self) {
        let mut call = self.release.key("raw:lease");
        let call = call.arg("raw:free").arg(std::process::id());
        let heard: i64 = call.invoke_async(&mut self.connection).await.expect("released");
        assert_eq!(heard, 2, "both subscribers hear");
    }
}

/// Our scripts, sent without Tenure: what is left of the difference is the client's.
struct Scripts {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    acquire: redis::Script,
    release: redis::Script,
}

macro_rules! script {
    ($($file:literal)+) => {
        redis::Script::new(concat!($(include_str!(concat!("../../../adapters/redis/src/scripts/", $file))),+))
    };
}

impl Scripts {
    async fn new(url: &str) -> Self {
        let (mut connection, pushes) = raw(url).await;
        redis::cmd("SUBSCRIBE").arg("scripts!wake").exec_async(&mut connection).await.expect("subscribed");
        let acquire = script!("common.lua" "waiters.lua" "acquire.lua");
        let release = script!("common.lua" "free.lua" "release.lua");
        Self { connection, pushes, acquire, release }
    }

    async fn take_now(&mut self) {
        let mut call = self.acquire.key("scripts:lease");
        call.key("scripts!token").key("scripts!waiters").arg(std::process::id()).arg(15_000).arg(0);
        call.arg(r#","ttl":15000,"host":"here","pid":1}"#)
            .arg(std::process::id())
            .arg("scripts!wake")
            .arg("");
        let (what, _token): (String, u64) =
            call.invoke_async(&mut self.connection).await.expect("the server is there");
        assert_eq!(what, "granted");
    }
}

impl Hands for Scripts {
    async fn take(&mut self) -> Instant {
        let is_free = |push: &PushInfo| match &push.data[..] {
            [_, redis::Value::BulkString(message)] => message.starts_with(b"free"),
            _ => false,
        };
        while !is_free(&self.pushes.next().await.expect("the connection lives")) {}
        self.take_now().await;
        let got = clock::now();
        redis::cmd("DEL").arg("scripts:lease").exec_async(&mut self.connection).await.expect("deleted");
        got
    }

    async fn hold(&mut self, server: &Redis, call: impl FnOnce()) {
        self.take_now().await;
        server.command(&["ZADD", "scripts!waiters", "9007199254740991", "candidate"]).integer();
        call();
    }

    async fn give(&mut self) {
        let mut call = self.release.key("scripts:lease");
        call.key("scripts!waiters")
            .arg(std::process::id())
            .arg("")
            .arg(std::process::id())
            .arg("scripts!wake");
        let chosen: i64 = call.invoke_async(&mut self.connection).await.expect("released");
        assert_eq!(chosen, 1, "the candidate waits");
    }
}

/// The process of the candidate: takes the lease once for each line that it is told, and tells when it got it.
async fn candidate(mut hands: impl Hands) {
    let (told, mut lines) = mpsc::unbounded();
    std::thread::spawn(move || {
        std::io::stdin().lines().all(|line| line.is_ok() && told.unbounded_send(()).is_ok())
    });
    println!("ready");
    while lines.next().await.is_some() {
        println!("{}", hands.take().await.as_nanos());
    }
}

/// One that gives the lease back here, and a candidate in another process.
struct Pair<H> {
    hands: H,
    to_child: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
    _child: Processes,
}

impl<H: Hands> Pair<H> {
    async fn new(server: &Redis, threads: &str, what: &str, hands: H) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--candidate", &server.url(), what, threads])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program again");
        let to_child = child.stdin.take().expect("a pipe");
        let from_child = BufReader::new(child.stdout.take().expect("a pipe"));
        let (told, mut lines) = mpsc::unbounded();
        std::thread::spawn(move || {
            from_child.lines().map_while(Result::ok).all(|line| told.unbounded_send(line).is_ok())
        });
        assert_eq!(lines.next().await.as_deref(), Some("ready"));
        Self { hands, to_child, lines, _child: Processes(vec![child]) }
    }

    /// From the call that gives the lease back to when the other process has it.
    async fn hand_over(&mut self, server: &Redis) -> Duration {
        let call = || writeln!(self.to_child, "take").expect("the candidate lives");
        self.hands.hold(server, call).await;
        // All rest, and processors and caches get cold.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let begin = clock::now();
        self.hands.give().await;
        let got = self.lines.next().await.expect("the candidate lives").parse().expect("a number");
        Instant::from_nanos(got).saturating_since(begin)
    }
}

async fn hand_over(server: &Redis, threads: &str, rounds: usize) {
    let tenure = connect(&server.url());
    let ours = Ours { tenure: tenure.clone(), lease: None };
    let mut ours = Pair::new(server, threads, "tenure", ours).await;
    let mut raw = Pair::new(server, threads, "raw", Raw::new(&server.url()).await).await;
    let mut scripts = Pair::new(server, threads, "scripts", Scripts::new(&server.url()).await).await;
    let (mut with_tenure, mut with_raw, mut with_scripts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        with_tenure.push(ours.hand_over(server).await);
        with_raw.push(raw.hand_over(server).await);
        with_scripts.push(scripts.hand_over(server).await);
    }
    tenure.shutdown().await.expect("all given back");
    let (with_tenure, with_raw) = (Quantiles::of(with_tenure), Quantiles::of(with_raw));
    let with_scripts = Quantiles::of(with_scripts);
    println!(
        "hand-over between processes, threads of each: {threads}, {rounds} rounds: tenure {with_tenure}; raw {with_raw}; our \
         scripts alone {with_scripts}; medians {:.2} : 1 : {:.2}",
        with_tenure.half / with_raw.half,
        with_scripts.half / with_raw.half
    );
}

/// Of durations, in milliseconds.
struct Quantiles {
    half: f64,
    most: f64,
}

impl Quantiles {
    fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at =
            |part: usize| samples[(samples.len() * part / 100).min(samples.len() - 1)].as_secs_f64() * 1e3;
        Self { half: at(50), most: at(99) }
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:.3} ms, p99 {:.3} ms", self.half, self.most)
    }
}

// --- renewals --------------------------------------------------------------------------------------------

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a line").split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in hundredths of a second.
    let ticks: u64 =
        fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number");
    Duration::from_millis(ticks * 10)
}

/// Operations by batches as the driver makes them, so many of them at once.
async fn execute(store: &RedisStore, operations: Vec<Operation>, mut each: impl FnMut(usize, Answer)) {
    const BATCHES: usize = 32;
    let size = store.limits().batch;
    let mut batches = Vec::new();
    let mut operations = operations.into_iter().peekable();
    while operations.peek().is_some() {
        batches.push(operations.by_ref().take(size).collect::<Vec<_>>());
    }
    let mut running = stream::iter(batches.into_iter().enumerate().map(|(number, batch)| async move {
        let outcomes = Arc::new(Mutex::new(Vec::with_capacity(batch.len())));
        let sink = Arc::clone(&outcomes);
        let replies = Replies::new(batch.len(), move |index, outcome| {
            sink.lock().expect("no panic").push((number * size + index, outcome.expect("the server works")));
        });
        store.execute(batch, replies).await;
        let mut outcomes = outcomes.lock().expect("no panic");
        std::mem::take(&mut *outcomes)
    }))
    .buffer_unordered(BATCHES);
    while let Some(outcomes) = running.next().await {
        for (index, answer) in outcomes {
            each(index, answer);
        }
    }
}

async fn renewals(server: &Redis, leases: usize, rounds: usize) {
    let store = RedisStore::from_url(&server.url()).expect("a fine URL");
    let ttl = Duration::from_secs(600);
    let timeout = Duration::from_secs(30);
    let identity = Identity::new("bench", Incarnation::new(1)).expect("a fine name");
    let names: Vec<LeaseName> =
        (0..leases).map(|n| LeaseName::new(format!("lease-{n}")).expect("a fine name")).collect();
    let acquires = names.iter().map(|name| {
        let (name, owner) = (name.clone(), identity.owner(Acquisition(0)));
        Acquire { name, owner, ttl, floor: Token::ZERO, wait: false, metadata: Metadata::new(), timeout }
            .into()
    });
    let mut tokens = vec![Token::ZERO; leases];
    let begin = clock::now();
    execute(&store, acquires.collect(), |index, answer| match answer {
        Answer::Acquire(Acquired::Granted(token)) => tokens[index] = token,
        other => panic!("{other:?}"),
    })
    .await;
    let acquired = clock::now().saturating_since(begin);
    println!(
        "acquire: {:.0} per second, 16 at once in each of 32 batches",
        leases as f64 / acquired.as_secs_f64()
    );

    let renewals: Vec<Operation> = names
        .iter()
        .zip(&tokens)
        .map(|(name, token)| {
            let owner = identity.owner(Acquisition(0));
            Renew { name: name.clone(), owner, token: *token, ttl, timeout }.into()
        })
        .collect();
    let (connection, _pushes) = raw(&server.url()).await;
    let hash = redis::Script::new(RENEW).get_hash().to_owned();
    let _: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(RENEW)
        .query_async(&mut connection.clone())
        .await
        .expect("loaded");
    let calls: Vec<Cmd> = names
        .chunks(100)
        .zip(tokens.chunks(100))
        .map(|(names, tokens)| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(&hash).arg(names.len());
            for name in names {
                call.arg(format!("tenure:{name}"));
            }
            for token in tokens {
                call.arg(ttl.as_millis() as u64).arg(format!("{token}:{}\n", identity.owner(Acquisition(0))));
            }
            call
        })
        .collect();
    let (mut ours, mut theirs, mut busy) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..rounds {
        let (begin, before) = (clock::now(), processor_time());
        let mut renewed = 0;
        execute(&store, renewals.clone(), |_, answer| {
            assert_eq!(answer, Answer::Renew(Renewed::Renewed));
            renewed += 1;
        })
        .await;
        assert_eq!(renewed, leases);
        ours.push(clock::now().saturating_since(begin));
        busy += processor_time() - before;

        let begin = clock::now();
        let mut running = stream::iter(&calls)
            .map(|call| {
                let mut connection = connection.clone();
                async move {
                    let lost: Vec<i64> = call.query_async(&mut connection).await.expect("the server works");
                    assert_eq!(lost, [0_i64; 0]);
                }
            })
            .buffer_unordered(32);
        while running.next().await.is_some() {}
        theirs.push(clock::now().saturating_since(begin));
    }
    let (ours, theirs) = (Quantiles::of(ours), Quantiles::of(theirs));
    let each = |millis: f64| leases as f64 / millis * 1e3;
    println!(
        "renewals of {leases} leases, medians of {rounds}: tenure {:.0} per second with {:.2} µs of the client's processors \
         each; raw {:.0} per second; {:.0} % of raw",
        each(ours.half),
        busy.as_secs_f64() * 1e6 / (leases * rounds) as f64,
        each(theirs.half),
        theirs.half / ours.half * 100.0
    );
    store.close().await;
}

// --- held ------------------------------------------------------------------------------------------------

async fn held(server: &Redis, leases: usize, seconds: usize) {
    let memory = |server: &Redis| server.info("used_memory").parse::<f64>().expect("a number");
    let before = memory(server);
    let tenure = connect(&server.url());
    let begin = clock::now();
    let mut all = stream::iter(0..leases)
        .map(|n| {
            let tenure = tenure.clone();
            async move { tenure.acquire(format!("lease-{n}")).await.expect("it is free") }
        })
        .buffer_unordered(1_000);
    let mut kept = Vec::with_capacity(leases);
    while let Some(lease) = all.next().await {
        kept.push(lease);
    }
    println!("acquiring {leases} leases took {:.1} s", clock::now().saturating_since(begin).as_secs_f64());
    let bytes = (memory(server) - before) / leases as f64;
    let (renewed, busy) = (tenure.stats().renewed, processor_time());
    let served = |server: &Redis| {
        let cpu = |field: &str| server.info(field).parse::<f64>().expect("a number");
        cpu("used_cpu_user") + cpu("used_cpu_sys")
    };
    let server_busy = served(server);
    tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
    let time = seconds as f64;
    let stats = tenure.stats();
    println!(
        "{leases} leases of 15 s held for {seconds} s: {:.0} renewals per second, client {:.0} % of a processor, server {:.0} %; \
         {} lost; {bytes:.0} bytes each at the server, its key and what the client's connection needs included",
        (stats.renewed - renewed) as f64 / time,
        (processor_time() - busy).as_secs_f64() / time * 100.0,
        (served(server) - server_busy) / time * 100.0,
        leases - kept.iter().filter(|lease| lease.is_valid()).count(),
    );
    stream::iter(kept)
        .for_each_concurrent(1_000, |lease| async {
            let _ = lease.release().await;
        })
        .await;
    tenure.shutdown().await.expect("all given back");
}

// --- waiters ---------------------------------------------------------------------------------------------

/// So many candidates of one process want the same lease. Whoever has it gives it back, and does not come again.
async fn contend(tenure: &Tenure, candidates: usize) {
    let candidate = async || {
        let lease = tenure.acquire("crowd").await.expect("the server works");
        lease.release().await.expect("the driver runs");
        std::future::pending::<()>().await;
    };
    futures::future::join_all((0..candidates).map(|_| candidate())).await;
}

/// What goes on at the server.
#[derive(Default)]
struct Traffic {
    acquires: AtomicU64,
    ends: AtomicU64,
    over: AtomicBool,
}

/// Counts from when the first holder gives the lease back until so many hand-overs were seen.
fn count(server: &Redis, first: First<'_>, handles: usize, hand_overs: usize, who: &str) {
    let traffic = Traffic::default();
    // No other script has as many keys.
    let acquire = "\"evalsha\" \"";
    let of_three = "\" \"3\" \"tenure:crowd\"";
    let mut monitor = server.client();
    first.release_once_all_wait(handles);
    monitor.command(&["MONITOR"]).ok();
    let begin = clock::now();
    while traffic.ends.load(Relaxed) < hand_overs as u64 {
        let line = monitor.read().expect("the server works").text().to_ascii_lowercase();
        if line.contains(acquire) && line.contains(of_three) {
            traffic.acquires.fetch_add(1, Relaxed);
        } else if line.contains("lua] \"del\" \"tenure:crowd\"") {
            traffic.ends.fetch_add(1, Relaxed);
        }
    }
    traffic.over.store(true, Relaxed);
    let took = clock::now().saturating_since(begin).as_secs_f64();
    let each = traffic.acquires.load(Relaxed) as f64 / hand_overs as f64;
    println!(
        "{who}: {each:.2} acquires for each of {hand_overs} hand-overs, {:.2} ms each",
        took * 1e3 / hand_overs as f64
    );
}

struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A holder that is none of ours, until so many wait; then it gives the lease back.
struct First<'a>(&'a Redis);

impl<'a> First<'a> {
    fn hold(server: &'a Redis) -> Self {
        server.command(&["SET", "tenure:crowd", "somebody", "PX", "600000"]).ok();
        Self(server)
    }

    fn release_once_all_wait(self, waiters: usize) {
        let Self(server) = self;
        let begin = clock::now();
        while server.command(&["ZCARD", "tenure!waiters:crowd"]).integer() < waiters as i64 {
            assert!(clock::now().saturating_since(begin) < Duration::from_secs(120), "not all wait");
            std::thread::sleep(Duration::from_millis(10));
        }
        // What those do that came last is over.
        std::thread::sleep(Duration::from_secs(1));
        server.command(&["DEL", "tenure:crowd"]).integer();
    }
}

fn processes(server: &Redis, processes: usize, candidates: usize, hand_overs: usize) {
    let program = std::env::current_exe().expect("this program");
    let start = |_| {
        let mut command = Command::new(&program);
        command.args(["--candidates", &server.url(), &candidates.to_string()]).stdin(Stdio::null());
        command.spawn().expect("this program again")
    };
    let first = First::hold(server);
    let _children = Processes((0..processes).map(start).collect());
    count(
        server,
        first,
        processes,
        hand_overs,
        &format!("{} waiters in {processes} processes", processes * candidates),
    );
}

fn handles(server: &Redis, handles: usize, hand_overs: usize) {
    let runtime = runtime();
    let guard = runtime.enter();
    let all: Vec<Tenure> = (0..handles).map(|_| connect(&server.url())).collect();
    drop(guard);
    let first = First::hold(server);
    for tenure in all {
        runtime.spawn(async move { contend(&tenure, 1).await });
    }
    count(
        server,
        first,
        handles,
        hand_overs,
        &format!("{handles} waiters, each with a handle and a connection of its own"),
    );
    runtime.shutdown_timeout(Duration::from_secs(5));
}
