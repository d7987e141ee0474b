//! Several processes with one store: death, freezing, waking, and what is left behind.
//!
//! The other processes are this very program, started anew with one test chosen: it obeys commands that it
//! reads from its standard input, and answers each with a line.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tenure_sqlite::SqliteStore;
use tenure_store::core::{Token, Wake};
use tenure_store::{Acquired, Hint, Operation, Released, Renewed, Store, StoreErrorKind};

const TTL: Duration = Duration::from_secs(60);

/// The clock that all processes share.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// Another process with a store on the same file.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(folder: &Folder, query: &str, number: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env("TENURE_TEST_URL", format!("sqlite:{}{query}", folder.database().display()))
            .env("TENURE_TEST_NUMBER", number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next answer, split into words.
    fn answer(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the other process has ended");
            // The test harness says things too.
            if let Some(answer) = line.strip_prefix("> ") {
                return answer.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    fn ask(&mut self, command: &str) -> Vec<String> {
        self.send(command);
        self.answer()
    }

    fn acquire(&mut self, lease: &str, ttl: Duration) -> Token {
        let answer = self.ask(&format!("acquire {lease} {}", ttl.as_millis()));
        assert_eq!(answer[0], "granted", "{answer:?}");
        Token::new(answer[1].parse().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it without a chance to clean up.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it is the other process of the tests here, and does nothing by itself"]
fn the_other_process() {
    let (Ok(url), Ok(number)) = (std::env::var("TENURE_TEST_URL"), std::env::var("TENURE_TEST_NUMBER"))
    else {
        return;
    };
    let store = SqliteStore::from_url(&url).unwrap();
    let number: u64 = number.parse().unwrap();
    // The test harness has begun a line.
    println!();
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let millis = |word: &str| Duration::from_millis(word.parse().unwrap());
        match words[..] {
            ["acquire", lease, ttl] => {
                match try_acquire(&store, acquire(lease, owner(number, 0), millis(ttl))) {
                    Ok(Acquired::Granted(token)) => println!("> granted {token}"),
                    Ok(Acquired::Held(holder)) => println!("> held {}", holder.owner),
                    Err(error) => println!("> failed {error}"),
                }
            }
            ["wait", lease] => {
                let mut request = acquire(lease, owner(number, 0), TTL);
                request.wait = true;
                assert!(matches!(try_acquire(&store, request), Ok(Acquired::Held(_))));
                println!("> waiting");
            }
            ["renew", lease, token, ttl] => {
                let token = Token::new(token.parse().unwrap());
                println!("> {:?}", renew(&store, lease, owner(number, 0), token, millis(ttl)).unwrap());
            }
            ["release", lease] => {
                println!("> {:?}", release(&store, lease, owner(number, 0), None).unwrap());
            }
            ["watch", lease] => {
                let mut hints = store.hints().unwrap();
                block_on(store.watch(name(lease))).unwrap();
                println!("> watching");
                std::thread::spawn(move || {
                    while let Some(hint) = within(hints.next()) {
                        let at = now().as_nanos();
                        match hint {
                            Hint::Lease { wake: Wake::Free { chosen }, .. } => {
                                println!("> free {chosen} {at}")
                            }
                            Hint::Lease { wake: Wake::Held { token, .. }, .. } => println!("> held {token}"),
                            Hint::Resync => println!("> resync"),
                        }
                    }
                });
            }
            // Gives a copy of the lock to a process that lives on.
            ["guard"] => {
                let lock = block_on(store.liveness()).unwrap().unwrap();
                let guard =
                    Command::new("sleep").arg("1000").stdin(lock).stdout(Stdio::null()).spawn().unwrap();
                println!("> {}", guard.id());
                kept.push(Box::new(guard));
            }
            // Begins a transaction and does not end it.
            ["block"] => {
                let path = store.path().to_owned();
                let database = rusqlite::Connection::open(path).unwrap();
                database.execute_batch("BEGIN IMMEDIATE").unwrap();
                println!("> blocked");
                kept.push(Box::new(database));
            }
            ["unblock"] => {
                kept.clear();
                println!("> unblocked");
            }
            // Takes leases, renews and gives some back, as fast as it can, and tells what was acknowledged.
            ["spin", round] => spin(&store, number, round),
            // Takes the one lease again and again, and works under it.
            ["compete", times, witness] => compete(&store, number, times.parse().unwrap(), witness),
            _ => panic!("unknown command {line}"),
        }
        std::io::stdout().flush().unwrap();
    }
}

fn spin(store: &SqliteStore, number: u64, round: &str) {
    for n in 0.. {
        let lease = format!("{round}.{n}");
        let token = granted(store, &lease, owner(number, n), TTL);
        println!("> granted {lease} {token} {}", owner(number, n));
        assert_eq!(renew(store, &lease, owner(number, n), token, TTL), Ok(Renewed::Renewed));
        if n % 3 == 0 {
            release(store, &lease, owner(number, n), Some(token)).unwrap();
            println!("> released {lease} {token}");
        }
    }
}

fn compete(store: &SqliteStore, number: u64, times: u64, witness: &str) {
    let mut n = 0;
    while n < times {
        let request = acquire("x", owner(number, n), TTL);
        let Ok(Acquired::Granted(token)) = try_acquire(store, request) else {
            std::thread::yield_now();
            continue;
        };
        // Whoever works holds a lock that nobody may ever find taken.
        let mut file = fs::OpenOptions::new().append(true).open(witness).unwrap();
        file.try_lock().expect("nobody else works at this time");
        writeln!(file, "{token}").unwrap();
        file.unlock().unwrap();
        release(store, "x", owner(number, n), Some(token)).unwrap();
        n += 1;
    }
    println!("> done");
}

#[test]
fn a_lease_passes_on_at_once_when_its_holders_process_is_killed() {
    let mut delays = Vec::new();
    for _ in 0..10 {
        let folder = Folder::new();
        let store = folder.store();
        let mut holder = Other::start(&folder, "", 1);
        let first = holder.acquire("x", TTL);
        let mut hints = store.hints().unwrap();
        block_on(store.watch(name("x"))).unwrap();
        assert_eq!(held(&store, "x", owner(2, 0), TTL).token, Some(first));

        let killed = now();
        holder.signal(Signal::KILL);
        let told = within(hints.next());
        assert_eq!(told, Some(Hint::Lease { name: name("x"), wake: Wake::Free { chosen: true } }));
        let second = granted(&store, "x", owner(2, 0), TTL);
        delays.push(now() - killed);
        assert!(second > first);
        holder.kill();
    }
    delays.sort_unstable();
    println!("from the holder's death to the next grant: {delays:?}");
    assert!(delays[delays.len() / 2] < Duration::from_millis(250), "{delays:?}");
}

#[test]
fn a_lease_passes_on_by_its_ttl_alone_when_early_takeover_is_off_on_either_side() {
    for (theirs, ours) in [("?early=off", ""), ("", "?early=off"), ("?early=off", "?early=off")] {
        let folder = Folder::new();
        let store = SqliteStore::from_url(&format!("sqlite:{}{ours}", folder.database().display())).unwrap();
        let mut holder = Other::start(&folder, theirs, 1);
        let begun = now();
        holder.acquire("x", Duration::from_secs(1));
        holder.kill();
        until("the lease passes on", || {
            matches!(try_acquire(&store, acquire("x", owner(2, 0), TTL)), Ok(Acquired::Granted(_)))
        });
        assert!(now() - begun >= Duration::from_secs(1), "{theirs} {ours}: too early");
        let lock = block_on(store.liveness()).unwrap();
        assert_eq!(lock.is_none(), ours == "?early=off");
    }
}

#[test]
fn a_lease_stays_while_anybody_has_a_copy_of_the_lock_of_its_dead_holder() {
    let folder = Folder::new();
    let store = folder.store();
    let mut holder = Other::start(&folder, "", 1);
    let first = holder.acquire("x", TTL);
    let guard = Pid::from_raw(holder.ask("guard")[0].parse().unwrap()).unwrap();
    holder.kill();
    assert_eq!(held(&store, "x", owner(2, 0), TTL).token, Some(first), "its guard still lives");
    kill_process(guard, Signal::KILL).unwrap();
    until("the lease passes on with the death of the guard", || {
        matches!(try_acquire(&store, acquire("x", owner(2, 0), TTL)), Ok(Acquired::Granted(_)))
    });
}

#[test]
fn a_frozen_holder_keeps_its_lease_until_the_ttl_and_finds_it_lost_when_it_wakes_up() {
    let folder = Folder::new();
    let store = folder.store();
    let mut holder = Other::start(&folder, "", 1);
    let begun = now();
    let first = holder.acquire("x", Duration::from_secs(1));
    holder.signal(Signal::STOP);
    let mut second = Token::ZERO;
    until("the lease runs out", || match try_acquire(&store, acquire("x", owner(2, 0), TTL)).unwrap() {
        Acquired::Granted(token) => {
            second = token;
            true
        }
        Acquired::Held(_) => false,
    });
    assert!(now() - begun >= Duration::from_secs(1), "frozen is not dead");
    holder.signal(Signal::CONT);
    assert_eq!(holder.ask(&format!("renew x {first} 1000")), ["NotYours"]);
    assert!(second > first);
}

#[test]
fn a_process_that_is_frozen_in_a_transaction_makes_others_wait_no_longer_than_they_said() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("block"), ["blocked"]);
    other.signal(Signal::STOP);

    let mut short = acquire("y", owner(1, 1), TTL);
    short.timeout = Duration::from_millis(100);
    let begun = now();
    let error = try_acquire(&store, short.clone()).unwrap_err();
    assert!(now() - begun >= Duration::from_millis(100), "it waited as long as it might");
    assert_eq!(error.kind, StoreErrorKind::Transient, "nothing was done: {error}");
    assert!(error.to_string().contains("stopped in the middle of a transaction"), "{error}");
    assert_eq!(error.lease, Some(name("y")));
    assert_eq!(
        block_on(store.inspect(name("x"))).unwrap().unwrap().holder.token,
        Some(token),
        "reading is not held up"
    );

    // In one batch each operation waits as long as it may, and no longer.
    let mut long = acquire("z", owner(1, 2), TTL);
    long.timeout = LIMIT;
    let waiting = {
        let store = store.clone();
        std::thread::spawn(move || execute(&store, vec![Operation::Acquire(short), Operation::Acquire(long)]))
    };
    let fresh = folder.store();
    let mut opening = acquire("w", owner(1, 3), TTL);
    opening.timeout = Duration::from_millis(200);
    let error = try_acquire(&fresh, opening).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Transient, "opening is bounded as well: {error}");
    other.signal(Signal::CONT);
    assert_eq!(other.ask("unblock"), ["unblocked"]);
    let outcomes = waiting.join().unwrap();
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind, StoreErrorKind::Transient);
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
}

#[test]
fn a_full_queue_refuses_at_once_and_what_was_accepted_is_done_though_nobody_waits_for_it() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("block"), ["blocked"]);
    let (sender, outcomes) = mpsc::channel();
    let mut accepted: u64 = 0;
    let refused = loop {
        let sender = sender.clone();
        let n = accepted + 1;
        let replies = tenure_store::Replies::new(1, move |_, outcome| sender.send((n, outcome)).unwrap());
        let batch = vec![Operation::Acquire(acquire(&format!("lease {n}"), owner(1, n), TTL))];
        let mut future = Box::pin(store.execute(batch, replies));
        // Polled once, then dropped.
        let _ = futures::FutureExt::now_or_never(&mut future);
        drop(future);
        match outcomes.try_recv() {
            Ok(refused) => break refused,
            Err(_) => accepted = n,
        }
        assert!(accepted < 10_000, "the queue is bounded");
    };
    let (n, Err(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(n, accepted + 1, "the last one, at once");
    assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
    assert!(error.to_string().contains("waiting already"), "{error}");
    assert_eq!(other.ask("unblock"), ["unblocked"]);
    for _ in 0..accepted {
        let (n, outcome) = outcomes.recv_timeout(LIMIT).unwrap();
        assert!(outcome.is_ok(), "{n}: {outcome:?}");
    }
    let listed = block_on(store.list(None, 100_000)).unwrap().len();
    assert_eq!(listed as u64, accepted + 1);
}

#[test]
fn a_release_reaches_a_waiter_in_another_process_in_milliseconds() {
    let folder = Folder::new();
    let store = folder.store();
    let mut waiter = Other::start(&folder, "", 2);
    let mut delays = Vec::new();
    for n in 0..50 {
        let token = granted(&store, "x", owner(1, n), TTL);
        if n == 0 {
            assert_eq!(waiter.ask("watch x"), ["watching"]);
        } else {
            assert_eq!(waiter.answer(), ["held", &token.to_string()]);
            assert_eq!(waiter.ask("wait x"), ["waiting"]);
        }
        let begun = now();
        assert_eq!(
            release(&store, "x", owner(1, n), Some(token)),
            Ok(Released::Released { others_chosen: true })
        );
        let answer = waiter.answer();
        assert_eq!(answer[..2], ["free", "true"]);
        delays.push(Duration::from_nanos(answer[2].parse().unwrap()).saturating_sub(begun));
    }
    delays.sort_unstable();
    let median = delays[delays.len() / 2];
    println!(
        "from the call of release to the waiter: median {median:?}, worst {:?}",
        delays[delays.len() - 1]
    );
    assert!(median < Duration::from_millis(50), "{delays:?}");
}

#[test]
fn processes_that_compete_for_a_lease_never_hold_it_together_and_tokens_rise() {
    const PROCESSES: u64 = 4;
    const TIMES: u64 = 100;
    let folder = Folder::new();
    let witness = folder.path().join("witness");
    fs::write(&witness, "").unwrap();
    let mut others: Vec<Other> = (0..PROCESSES).map(|number| Other::start(&folder, "", number)).collect();
    for other in &mut others {
        other.send(&format!("compete {TIMES} {}", witness.display()));
    }
    for other in &mut others {
        assert_eq!(other.answer(), ["done"]);
    }
    let tokens: Vec<u64> =
        fs::read_to_string(&witness).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len() as u64, PROCESSES * TIMES);
    assert!(tokens.is_sorted_by(|a, b| a < b), "each above all before it");
}

#[test]
fn nothing_acknowledged_is_lost_and_no_token_goes_down_over_sixty_kills_in_the_middle_of_writing() {
    let folder = Folder::new();
    let store = folder.store();
    let mut highest = Token::ZERO;
    for round in 0..60 {
        let mut other = Other::start(&folder, "", round);
        other.send(&format!("spin {round}"));
        let mut kept: Vec<(String, Token, String)> = Vec::new();
        let mut released: Vec<String> = Vec::new();
        let mut take = |answer: Vec<String>| {
            let token = Token::new(answer[2].parse().unwrap());
            assert!(token > highest || answer[0] == "released", "{answer:?} after {highest}");
            highest = highest.max(token);
            match answer[0].as_str() {
                "granted" => kept.push((answer[1].clone(), token, answer[3].clone())),
                _ => released.push(answer[1].clone()),
            }
        };
        // At another point of its work each time.
        for _ in 0..1 + round % 23 {
            take(other.answer());
        }
        other.signal(Signal::KILL);
        // What it had said before it died counts too; the last line may be torn.
        let mut rest = String::new();
        let _ = std::io::Read::read_to_string(&mut other.output, &mut rest);
        for line in rest.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            if let Some(answer) = line.strip_prefix("> ") {
                take(answer.split_whitespace().map(str::to_owned).collect());
            }
        }
        other.kill();
        kept.retain(|(lease, ..)| !released.contains(lease));
        // The one before last may have been released, and only the word about it lost.
        let last = kept.pop();
        for (lease, token, owner) in kept {
            let holder = block_on(store.inspect(name(&lease))).unwrap().expect(&lease).holder;
            assert_eq!((holder.token, holder.owner), (Some(token), owner), "{lease}");
        }
        if let Some((lease, token, _)) = last
            && let Some(record) = block_on(store.inspect(name(&lease))).unwrap()
        {
            assert_eq!(record.holder.token, Some(token));
        }
        let token = granted(&store, &format!("check {round}"), owner(1000, round), TTL);
        assert!(token > highest);
        highest = token;
    }
    let database = rusqlite::Connection::open(folder.database()).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn the_files_of_dead_processes_are_removed_once_their_leases_are_over() {
    let folder = Folder::new();
    for round in 0..3 {
        let mut other = Other::start(&folder, "", round);
        other.acquire(&format!("short-{round}"), Duration::from_millis(50));
        other.kill();
    }
    let mut holder = Other::start(&folder, "", 7);
    holder.acquire("long", TTL);
    holder.kill();
    let files = || {
        let live = format!("{}.live", folder.database().display());
        fs::read_dir(live).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != "bell").count()
    };
    let store = folder.store();
    until("the short leases are over", || {
        (0..3).all(|round| block_on(store.inspect(name(&format!("short-{round}")))).unwrap().is_none())
    });
    // Cleaning comes with the first batch; other processes may have done a part of it with theirs.
    assert!(files() >= 2);
    granted(&store, "y", owner(9, 0), TTL);
    assert_eq!(files(), 2, "one that a lease still names, and this store's own");
    granted(&store, "long", owner(9, 1), TTL);
}
