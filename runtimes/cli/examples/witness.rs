//! The work that is done under leases in the tests of the program: it leaves evidence.
//!
//! Every unit of work takes a lock on the witness file without waiting. If another process has it, two of them
//! worked at the same time, which is what leases are there to prevent. Then it adds a line to the file:
//!
//! ```text
//! began   LEASE TOKEN PROCESS GROUP PARENT TIME     a command has started
//! unit    LEASE TOKEN PROCESS START END             a unit of work was done
//! ended   LEASE TOKEN PROCESS TIME                  a command ended after SIGTERM
//! overlap LEASE TOKEN PROCESS TIME                  somebody else was at work
//! alive   LEASE TOKEN PROCESS TIME OTHER            process OTHER of the group given by `--after` still lived
//! ```
//!
//! Times are nanoseconds of a clock that all processes share and that counts suspends.
//!
//! ```text
//! witness work FILE [--after GROUP]... [--below] [--deaf]
//!                                                   works until SIGTERM; --below: lets a child do it; --deaf: SIGTERM
//!                                                   is not heard
//! witness session COMMAND ARGS...                   runs a command in a session of its own; its standard input
//!                                                   becomes the session's terminal
//! witness foreground                                tells whether it has the foreground of its terminal
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, getpgrp, getpid, getppid};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some("work") => work(arguments),
        Some("session") => session(&arguments.collect::<Vec<_>>()),
        Some("foreground") => foreground(),
        _ => Err(io::Error::other("work, session or foreground?")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("witness: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How long a unit of work takes: short, so that the last one before a death tells when that was.
const UNIT: Duration = Duration::from_millis(4);

fn work(mut arguments: impl Iterator<Item = String>) -> io::Result<()> {
    let path = PathBuf::from(arguments.next().ok_or_else(|| io::Error::other("which file?"))?);
    let (mut below, mut deaf) = (false, false);
    let mut dead = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--below" => below = true,
            "--deaf" => deaf = true,
            "--after" => {
                let group = arguments.next().and_then(|group| group.parse().ok());
                dead.push(group.ok_or_else(|| io::Error::other("after which group?"))?);
            }
            _ => return Err(io::Error::other(format!("{argument}?"))),
        }
    }
    // First of all, before it costs any time.
    let living: Vec<i32> = dead.into_iter().flat_map(living).collect();
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    for other in living {
        say(&mut file, "alive", &format!("{} {other}", now()))?;
    }
    let (group, parent) = (getpgrp(), Pid::as_raw(getppid()));
    say(&mut file, "began", &format!("{group} {parent} {}", now()))?;

    let told = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&told))?;
    if below {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("work")
            .arg(&path)
            .args(deaf.then_some("--deaf"))
            .spawn()?;
        child.wait()?;
        return Ok(());
    }
    let lock = OpenOptions::new().create(true).append(true).open(with_lock(&path))?;
    while deaf || !told.load(Ordering::Relaxed) {
        let start = now();
        match lock.try_lock() {
            Ok(()) => {
                std::thread::sleep(UNIT);
                say(&mut file, "unit", &format!("{start} {}", now()))?;
                lock.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {
                say(&mut file, "overlap", &start.to_string())?;
                std::thread::sleep(UNIT);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    say(&mut file, "ended", &now().to_string())
}

fn with_lock(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

fn say(file: &mut File, what: &str, details: &str) -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "-".to_owned());
    let (lease, token) = (variable("TENURE_LEASE"), variable("TENURE_TOKEN"));
    // One write, so that lines of several processes don't mix.
    file.write_all(format!("{what} {lease} {token} {} {details}\n", getpid()).as_bytes())
}

fn now() -> u64 {
    #[cfg(target_os = "linux")]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The processes of a group that live, that is, are no zombies.
fn living(group: i32) -> Vec<i32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
            matches!(fields[..], [state, _, of, ..] if of.parse() == Ok(group) && !"ZX".contains(state))
        })
        .collect()
}

fn session(command: &[String]) -> io::Result<()> {
    let [program, arguments @ ..] = command else { return Err(io::Error::other("which command?")) };
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(io::stdin())?;
    Err(Command::new(program).args(arguments).exec())
}

fn foreground() -> io::Result<()> {
    let has = rustix::termios::tcgetpgrp(io::stdin())? == getpgrp();
    println!("foreground: {}", if has { "yes" } else { "no" });
    Ok(())
}
