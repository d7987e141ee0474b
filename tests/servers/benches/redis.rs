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

mod common;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{
    Hands, Owned, Pair, Processes, Quantiles, TTL, Wanted, candidate, print_renewals, processor_time,
    processors, runtime, with_threads,
};
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind};
use tenure::{Instant, Lease, RedisStore, Store as _, Tenure, clock};
use tenure_servers::Redis;

const RENEW: &str = include_str!("../../../adapters/redis/src/scripts/renew.lua");

fn main() {
    let wanted = Wanted::new();
    if let [verb, url, candidates] = &wanted.arguments[..]
        && verb == "--candidates"
    {
        let candidates = candidates.parse().expect("a number");
        return runtime().block_on(async {
            contend(&connect(url), candidates).await;
        });
    }
    if let [verb, url, what, threads] = &wanted.arguments[..]
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
    let server = Redis::start();
    println!("redis {}, {} processors", server.info("redis_version"), processors());
    if wanted.part("handover") {
        for threads in ["1", "2"] {
            with_threads(threads).block_on(hand_over(&server, threads, wanted.scale(20, 2_000)));
            server.flush();
        }
    }
    if wanted.part("renewals") {
        runtime().block_on(renewals(&server, wanted.scale(1_000, 100_000), wanted.scale(1, 5)));
        server.flush();
    }
    if wanted.part("held") {
        runtime().block_on(held(&server, wanted.scale(500, 100_000), wanted.scale(1, 20)));
        server.flush();
    }
    if wanted.part("waiters") {
        processes(&server, wanted.scale(2, 10), wanted.scale(5, 100), wanted.scale(10, 300));
        server.flush();
        handles(&server, wanted.scale(20, 1_000), wanted.scale(10, 300));
    }
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

struct Ours {
    tenure: Tenure,
    lease: Option<Lease>,
}

impl Hands for Ours {
    type Server = Redis;

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
    type Server = Redis;

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
    type Server = Redis;

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

async fn hand_over(server: &Redis, threads: &str, rounds: usize) {
    let tenure = connect(&server.url());
    let ours = Ours { tenure: tenure.clone(), lease: None };
    let mut ours = Pair::new(&server.url(), threads, "tenure", ours).await;
    let mut raw = Pair::new(&server.url(), threads, "raw", Raw::new(&server.url()).await).await;
    let mut scripts = Pair::new(&server.url(), threads, "scripts", Scripts::new(&server.url()).await).await;
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

// --- renewals --------------------------------------------------------------------------------------------

async fn renewals(server: &Redis, leases: usize, rounds: usize) {
    /// As many requests of the raw side as the store makes of its batches.
    const BATCHES: usize = 32;
    let store = RedisStore::from_url(&server.url()).expect("a fine URL");
    let owned = Owned::acquire(&store, leases, BATCHES).await;
    let renewals = owned.renewals();
    let (connection, _pushes) = raw(&server.url()).await;
    let hash = redis::Script::new(RENEW).get_hash().to_owned();
    let _: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(RENEW)
        .query_async(&mut connection.clone())
        .await
        .expect("loaded");
    let owner = &owned.owner;
    let chunks = owned.names.chunks(100).zip(owned.tokens.chunks(100));
    let calls: Vec<Cmd> = chunks
        .map(|(names, tokens)| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(&hash).arg(names.len());
            for name in names {
                call.arg(format!("tenure:{name}"));
            }
            for token in tokens {
                call.arg(TTL.as_millis() as u64).arg(format!("{token}:{owner}\n"));
            }
            call
        })
        .collect();
    let (mut ours, mut theirs, mut busy) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..rounds {
        let (took, processors) = owned.renew(&renewals, BATCHES).await;
        ours.push(took);
        busy += processors;

        let begin = clock::now();
        let mut running = stream::iter(&calls)
            .map(|call| {
                let mut connection = connection.clone();
                async move {
                    let lost: Vec<i64> = call.query_async(&mut connection).await.expect("the server works");
                    assert_eq!(lost, [0_i64; 0]);
                }
            })
            .buffer_unordered(BATCHES);
        while running.next().await.is_some() {}
        theirs.push(clock::now().saturating_since(begin));
    }
    print_renewals(leases, "", ours, theirs, busy);
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
