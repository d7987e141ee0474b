//! Another process with a store on the same file.
//!
//! It is this very program, started anew with one test chosen: it obeys commands that it reads from its
//! standard input, and answers each with a line.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use futures::executor::block_on;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tenure_sqlite::SqliteStore;
use tenure_store::core::{Token, Wake};
use tenure_store::{Acquired, DrainMark, Hint, Hints, Renewed, Store, TimerAnswer};

use crate::common::*;

/// Longer than any test.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// The clock that all processes share.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// Another process with a store on the same file.
pub(crate) struct Other {
    pub(crate) child: Child,
    input: ChildStdin,
    pub(crate) output: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(folder: &Folder, query: &str, number: u64) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), folder, query, number)
    }

    /// Started by a command that ends with this program.
    pub(crate) fn start_by(mut command: Command, folder: &Folder, query: &str, number: u64) -> Self {
        let mut child = command
            .args(["other::the_other_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
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

    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next answer, split into words.
    pub(crate) fn answer(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the other process has ended");
            // The test harness says things too.
            if let Some(answer) = line.strip_prefix("> ") {
                return answer.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    pub(crate) fn ask(&mut self, command: &str) -> Vec<String> {
        self.send(command);
        self.answer()
    }

    pub(crate) fn acquire(&mut self, lease: &str, ttl: Duration) -> Token {
        let answer = self.ask(&format!("acquire {lease} {}", ttl.as_millis()));
        assert_eq!(answer[0], "granted", "{answer:?}");
        Token::new(answer[1].parse().unwrap())
    }

    /// Kills it, and gives the answers that it had still given; the last line may be torn.
    pub(crate) fn kill_and_take_the_rest(mut self) -> Vec<Vec<String>> {
        self.signal(Signal::KILL);
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut self.output, &mut rest);
        self.child.wait().unwrap();
        String::from_utf8_lossy(&rest)
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n')?.strip_prefix("> "))
            .map(|answer| answer.split_whitespace().map(str::to_owned).collect())
            .collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it without a chance to clean up.
    pub(crate) fn kill(mut self) {
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
            ["claim", timer, tick, ttl] => {
                read_timer(&store, timer);
                match claim(&store, timer, tick.parse().unwrap(), owner(number, 0), millis(ttl)) {
                    TimerAnswer::Granted(token) => println!("> granted {token}"),
                    other => println!("> {other:?}"),
                }
            }
            ["report", job] => {
                report(&store, job, &owner(number, 0), TTL);
                println!("> reported");
            }
            ["watch", lease] => {
                let hints = store.hints().unwrap();
                block_on(store.watch(name(lease))).unwrap();
                println!("> watching");
                std::thread::spawn(|| tell(hints));
            }
            // Sends heartbeat `n` of this process of an instance, and tells whom it sees; once it listens, also hints.
            ["beat", instance, n, ttl] => {
                let beat = beat(instance, number, n.parse().unwrap(), millis(ttl));
                let seen: Vec<String> = seen(&store, beat).iter().map(ToString::to_string).collect();
                println!("> {}", seen.join(" "));
            }
            ["mark", instance] => {
                let mark = DrainMark { instance: instance.into(), incarnation: None, drain: true };
                let marked = block_on(store.mark(mark)).unwrap();
                println!("> {}", marked.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            }
            ["listen"] => {
                let hints = store.hints().unwrap();
                println!("> listening");
                std::thread::spawn(|| tell(hints));
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
            // Takes and gives back many leases with many handles, and counts what that leaves behind.
            ["leaks"] => {
                let (files, threads) = leaks(&store, number);
                println!("> {files} {threads}");
            }
            // Takes the one lease again and again, and writes down from when to when it had it.
            ["history", file] => history(&store, number, file),
            // Takes the one lease again and again, and works under it.
            ["compete", times, witness] => compete(&store, number, times.parse().unwrap(), witness),
            _ => panic!("unknown command {line}"),
        }
        std::io::stdout().flush().unwrap();
    }
}

fn tell(mut hints: Hints) {
    while let Some(hint) = within(hints.next()) {
        let at = now().as_nanos();
        match hint {
            Hint::Lease { wake: Wake::Free { chosen }, .. } => println!("> free {chosen} {at}"),
            Hint::Lease { wake: Wake::Held { token, .. }, .. } => println!("> held {token}"),
            Hint::Resync => println!("> resync"),
            Hint::Members => println!("> members {at}"),
        }
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

/// How many more open files and threads there are after some use than after a little.
fn leaks(store: &SqliteStore, number: u64) -> (usize, usize) {
    let count = |folder| fs::read_dir(folder).unwrap().count();
    let counts = || (count("/proc/self/fd"), count("/proc/self/task"));
    let use_it = |times: u64| {
        let other = SqliteStore::open(store.path()).unwrap();
        let hints = other.hints();
        for n in 0..times {
            let lease = format!("lease {}", n % 7);
            let token = granted(store, &lease, owner(number, n), TTL);
            block_on(other.watch(name(&lease))).unwrap();
            held(&other, &lease, owner(number + 1000, n), TTL);
            release(store, &lease, owner(number, n), Some(token)).unwrap();
            block_on(other.unwatch(name(&lease)));
        }
        drop(hints);
        block_on(other.close());
    };
    use_it(10);
    let before = counts();
    for _ in 0..10 {
        use_it(30);
    }
    // A thread that was told to end takes a moment.
    until("the threads have ended", || counts().1 <= before.1);
    let after = counts();
    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
}

fn history(store: &SqliteStore, number: u64, file: &str) {
    let mut file = fs::File::create_new(file).unwrap();
    for n in 0.. {
        let request = acquire("x", owner(number, n), TTL);
        let Ok(Acquired::Granted(token)) = try_acquire(store, request) else {
            std::thread::yield_now();
            continue;
        };
        file.write_all(format!("from {token} {}\n", now().as_nanos()).as_bytes()).unwrap();
        std::thread::yield_now();
        file.write_all(format!("until {token} {}\n", now().as_nanos()).as_bytes()).unwrap();
        release(store, "x", owner(number, n), Some(token)).unwrap();
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
