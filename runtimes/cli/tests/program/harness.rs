//! Running programs, and the evidence that they leave.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::history::{History, Line};
pub(crate) use crate::place::{Place, block, stop};

/// Far more than anything here takes; a test that waits this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A program that ignores no signal, even if we were started in the background or under `nohup`.
pub(crate) fn attentive(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM,TSTP,TTIN,TTOU").arg(program);
    command
}

/// `tenure` without anything from our environment that it would look at.
pub(crate) fn bare_tenure() -> Command {
    let mut command = attentive(env!("CARGO_BIN_EXE_tenure"));
    for variable in ["TENURE_STORE", "TENURE_LOG", "TENURE_TOKEN", "XDG_STATE_HOME", "HOME"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The example `witness` of this crate.
pub(crate) fn witness_program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_tenure")).with_file_name("examples").join("witness");
    assert!(program.exists(), "run `cargo build -p tenure-cli --examples` first: {program:?} is missing");
    program
}

/// Waits for a condition.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(result) = condition() {
            return result;
        }
        assert!(now() - start < LIMIT.as_nanos() as u64, "waited {LIMIT:?} for {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The witness's clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    tenure::clock::now().as_nanos()
}

/// Nanoseconds as a duration, zero at least.
pub(crate) fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// A program that runs; killed if the test forgets it.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
    status: Option<ExitStatus>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stdout, stderr, status: None }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end and gives the exit code; `None` if a signal ended it.
    pub(crate) fn code(&mut self) -> Option<i32> {
        eventually("a program's end", || {
            self.status = self.child.try_wait().unwrap();
            self.status
        })
        .code()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it says on standard error that it waits for the lease.
    pub(crate) fn waits(&mut self) {
        self.stderr.wait_for("is held by");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("process {:?} said: {:#?}", self.pid(), self.stderr.so_far());
        }
        if self.status.is_none() {
            // The guardian kills what is below it.
            let _ = self.child.kill();
            let _ = kill_process(self.pid(), Signal::CONT);
            let _ = self.child.wait();
        }
    }
}

/// The lines that a program writes.
pub(crate) struct Lines {
    all: Arc<Mutex<Vec<String>>>,
    end: Receiver<()>,
    ended: bool,
}

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Self {
        let all = Arc::new(Mutex::new(Vec::new()));
        let (sender, end) = channel();
        let lines = Arc::clone(&all);
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
            drop(sender);
        });
        Self { all, end, ended: false }
    }

    /// Waits for a line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        eventually(&format!("a line with {text:?}; there are {:?}", self.so_far()), || {
            let found = self.so_far().into_iter().find(|line| line.contains(text));
            let ended = self.end.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            assert!(found.is_some() || !self.ended, "no line with {text:?} in {:#?}", self.so_far());
            self.ended = ended;
            found
        })
    }

    pub(crate) fn so_far(&self) -> Vec<String> {
        self.all.lock().unwrap().clone()
    }

    /// All lines, once the program and all that it started have closed it.
    pub(crate) fn to_the_end(&self) -> Vec<String> {
        let _ = self.end.recv_timeout(LIMIT);
        self.so_far()
    }
}

/// Runs a program to its end.
pub(crate) fn output(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A command that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Began {
    pub(crate) token: u64,
    pub(crate) process: Pid,
    pub(crate) group: Pid,
    /// The command's parent, which is the guardian.
    pub(crate) parent: Pid,
    pub(crate) at: u64,
}

/// A command that has begun to work for a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub(crate) n: u64,
    pub(crate) token: u64,
    /// How many ticks before it were missed, as it was told.
    pub(crate) missed: u64,
    pub(crate) start: u64,
    /// When it was due, by the wall clock.
    pub(crate) due: u64,
    /// How much later it began than the tick was due, in nanoseconds; less than zero if it was early.
    pub(crate) late: i64,
}

/// What the witnesses wrote.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The commands themselves; children that they let do the work are left out.
    pub(crate) began: Vec<Began>,
    pub(crate) history: History,
    /// Token and time.
    pub(crate) ended: Vec<(u64, u64)>,
    /// In the order in which they wrote.
    pub(crate) ticks: Vec<Tick>,
    /// What must not be: who still lived when the next one began.
    pub(crate) survivors: Vec<String>,
}

impl Evidence {
    pub(crate) fn read(path: &Path) -> Self {
        let mut evidence = Self::default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for text in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line = Line::parse(text).unwrap_or_else(|| panic!("{text:?}"));
            let (token, process) = (line.token, Pid::from_raw(line.process).unwrap());
            match (line.what, &line.details[..]) {
                ("began", [group, parent, at]) => {
                    let began =
                        Began { token, process, group: pid(group), parent: pid(parent), at: number(at) };
                    if began.process == began.group {
                        evidence.began.push(began);
                    }
                }
                ("unit", _) => evidence.history.units.push(line.unit().unwrap_or_else(|| panic!("{text:?}"))),
                ("overlap", _) => evidence.history.refused.extend(line.unit()),
                ("tick", [n, missed, start, due, late]) => evidence.ticks.push(Tick {
                    n: number(n),
                    token,
                    missed: number(missed),
                    start: number(start),
                    due: number(due),
                    late: late.parse().unwrap(),
                }),
                ("ended", [at]) => evidence.ended.push((token, number(at))),
                ("alive", _) => evidence.survivors.push(text.to_owned()),
                _ => panic!("{text:?}"),
            }
        }
        evidence
    }

    /// No two worked at the same time, nobody saw a survivor, and tokens rose with time.
    pub(crate) fn must_be_clean(&self) {
        assert!(self.survivors.is_empty(), "{:#?}", self.survivors);
        let breaches = self.history.check();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// Whether a process lives, that is, is there and no zombie.
pub(crate) fn lives(process: Pid) -> bool {
    state(process).is_some_and(|state| !"ZX".contains(state))
}

/// The state of a process as `ps` shows it, for example `T` for one that is stopped.
pub(crate) fn state(process: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// How often a test of crashes is repeated: `TENURE_TEST_ROUNDS`, or so many times.
pub(crate) fn rounds(default: usize) -> usize {
    std::env::var("TENURE_TEST_ROUNDS").ok().map_or(default, |rounds| rounds.parse().unwrap())
}

/// Prints figures, and gives the value below which `percent` of them lie.
pub(crate) fn figures<T: Copy + Ord + Debug>(what: &str, values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
    println!(
        "{what}: {} rounds, median {:?}, 95 % {:?}, longest {:?}",
        sorted.len(),
        at(50),
        at(95),
        at(100)
    );
    at(percent)
}

/// How fast the machine is while a test runs. On one that is busy, starting a program alone may take longer than
/// what is to be proven; limits on measured times then follow what starting one takes.
#[derive(Default)]
pub(crate) struct Pace(Vec<Duration>);

impl Pace {
    /// Measures once; to be called between the measurements that count.
    pub(crate) fn measure(&mut self) {
        let start = now();
        let mut command = bare_tenure();
        command.arg("--version");
        output(command);
        self.0.push(between(start, now()));
    }

    /// The limit that holds on an idle machine, or the time that so many starts of a program took at the median.
    pub(crate) fn limit(&self, idle: Duration, starts: u32) -> Duration {
        let start = figures("starting a program", &self.0, 50);
        let limit = idle.max(start * starts);
        println!("the limit is {limit:?}");
        limit
    }
}
