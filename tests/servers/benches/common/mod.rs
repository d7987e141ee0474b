//! What the benchmarks of all servers have in common.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream;
use tenure::store_contract::core::{Acquisition, Owner};
use tenure::store_contract::{Acquire, Acquired, Answer, Operation, Renew, Renewed, Replies};
use tenure::{Identity, Incarnation, Instant, LeaseName, Metadata, Store, Token, clock};

/// What this run is asked for.
pub(crate) struct Wanted {
    pub(crate) arguments: Vec<String>,
    /// `cargo bench` says so; all else is a test.
    measured: bool,
}

impl Wanted {
    pub(crate) fn new() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let measured = arguments.iter().any(|argument| argument == "--bench");
        Self { arguments, measured }
    }

    /// Whether this part is to be run: all are, unless some are named.
    pub(crate) fn part(&self, part: &str) -> bool {
        let arguments = &self.arguments;
        arguments.iter().all(|name| name.starts_with('-')) || arguments.iter().any(|name| name == part)
    }

    pub(crate) fn scale(&self, small: usize, large: usize) -> usize {
        if self.measured { large } else { small }
    }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, Into::into)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    with_threads("2")
}

/// With one thread there are no wake-ups of threads in a process, neither in ours nor in the raw one.
pub(crate) fn with_threads(threads: &str) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        "1" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Processes that end with this.
pub(crate) struct Processes(pub(crate) Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// --- hand-over -------------------------------------------------------------------------------------------

/// What a candidate and whoever gives the lease back do in a hand-over.
pub(crate) trait Hands: Sized {
    /// What keeps the lease.
    type Server;
    /// In a process of its own: waits for the lease, says when it got it, and gives it back.
    async fn take(&mut self) -> Instant;
    /// Takes the lease, which is free, and returns once the candidate that is called by then waits for it.
    async fn hold(&mut self, server: &Self::Server, call: impl FnOnce());
    /// Gives it back.
    async fn give(&mut self);
}

/// The process of the candidate: takes the lease once for each line that it is told, and tells when it got it.
pub(crate) async fn candidate(mut hands: impl Hands) {
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
pub(crate) struct Pair<H> {
    hands: H,
    to_child: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
    _child: Processes,
}

impl<H: Hands> Pair<H> {
    /// The candidate is this program again, with the arguments `--candidate`, the URL, what it is and its threads.
    pub(crate) async fn new(url: &str, threads: &str, what: &str, hands: H) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--candidate", url, what, threads]).stdin(Stdio::piped()).stdout(Stdio::piped());
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
    pub(crate) async fn hand_over(&mut self, server: &H::Server) -> Duration {
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

/// Of durations, in milliseconds.
pub(crate) struct Quantiles {
    pub(crate) half: f64,
    pub(crate) most: f64,
}

impl Quantiles {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
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
pub(crate) fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a line").split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in hundredths of a second.
    let ticks: u64 =
        fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number");
    Duration::from_millis(ticks * 10)
}

/// Leases of one owner in a store.
pub(crate) struct Owned<'a, S> {
    store: &'a S,
    pub(crate) owner: Owner,
    pub(crate) names: Vec<LeaseName>,
    pub(crate) tokens: Vec<Token>,
}

/// Longer than any benchmark takes.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// For an operation.
const TIMEOUT: Duration = Duration::from_secs(30);

impl<'a, S: Store> Owned<'a, S> {
    /// Takes so many, in so many batches at once; prints how fast that was.
    pub(crate) async fn acquire(store: &'a S, leases: usize, batches: usize) -> Self {
        let names = (0..leases).map(|n| LeaseName::new(format!("lease-{n}")).expect("a fine name")).collect();
        let identity = Identity::new("bench", Incarnation::new(1)).expect("a fine name");
        let owner = identity.owner(Acquisition(0));
        let mut this = Self { store, owner, names, tokens: Vec::new() };
        let acquires = this.names.iter().map(|name| {
            let (name, owner) = (name.clone(), this.owner.clone());
            let metadata = Metadata::new();
            let (floor, wait) = (Token::ZERO, false);
            Acquire { name, owner, ttl: TTL, floor, wait, metadata, timeout: TIMEOUT }.into()
        });
        let mut tokens = vec![Token::ZERO; leases];
        let begin = clock::now();
        execute(store, acquires.collect(), batches, |index, answer| match answer {
            Answer::Acquire(Acquired::Granted(token)) => tokens[index] = token,
            other => panic!("{other:?}"),
        })
        .await;
        let acquired = clock::now().saturating_since(begin);
        println!(
            "acquire: {:.0} per second, 16 at once in each of {batches} batches",
            leases as f64 / acquired.as_secs_f64()
        );
        this.tokens = tokens;
        this
    }

    /// What renews all of them.
    pub(crate) fn renewals(&self) -> Vec<Operation> {
        let named = self.names.iter().zip(&self.tokens);
        named
            .map(|(name, token)| {
                let (name, owner) = (name.clone(), self.owner.clone());
                Renew { name, owner, token: *token, ttl: TTL, timeout: TIMEOUT }.into()
            })
            .collect()
    }

    /// Renews all of them, in so many batches at once: how long it took, and how busy this process was.
    pub(crate) async fn renew(&self, renewals: &[Operation], batches: usize) -> (Duration, Duration) {
        let (begin, before) = (clock::now(), processor_time());
        let mut renewed = 0;
        execute(self.store, renewals.to_vec(), batches, |_, answer| {
            assert_eq!(answer, Answer::Renew(Renewed::Renewed));
            renewed += 1;
        })
        .await;
        assert_eq!(renewed, self.names.len());
        (clock::now().saturating_since(begin), processor_time() - before)
    }
}

/// Operations by batches as the driver makes them, so many of them at once.
async fn execute(
    store: &impl Store,
    operations: Vec<Operation>,
    at_once: usize,
    mut each: impl FnMut(usize, Answer),
) {
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
    .buffer_unordered(at_once);
    while let Some(outcomes) = running.next().await {
        for (index, answer) in outcomes {
            each(index, answer);
        }
    }
}

/// Prints how fast leases were renewed by the store and by the raw requests.
pub(crate) fn print_renewals(
    leases: usize,
    in_flight: &str,
    ours: Vec<Duration>,
    theirs: Vec<Duration>,
    busy: Duration,
) {
    let rounds = ours.len();
    let (ours, theirs) = (Quantiles::of(ours), Quantiles::of(theirs));
    let each = |millis: f64| leases as f64 / millis * 1e3;
    println!(
        "renewals of {leases} leases{in_flight}, medians of {rounds}: tenure {:.0} per second with {:.2} µs of the client's \
         processors each; raw {:.0} per second; {:.0} % of raw",
        each(ours.half),
        busy.as_secs_f64() * 1e6 / (leases * rounds) as f64,
        each(theirs.half),
        theirs.half / ours.half * 100.0
    );
}
