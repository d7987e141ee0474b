//! The work that is done under leases in the tests of the program: it leaves evidence.
//!
//! It writes what `src/witness.rs` says, and besides:
//!
//! ```text
//! began   LEASE TOKEN PROCESS GROUP PARENT TIME     a command has started
//! ended   LEASE TOKEN PROCESS TIME                  a command ended after SIGTERM
//! alive   LEASE TOKEN PROCESS TIME OTHER            process OTHER of the group given by `--after` still lived
//! tick    TIMER TOKEN PROCESS TICK MISSED TIME DUE LATE
//!                                                   a command has started for a tick. DUE: when it was due, by the
//!                                                   wall clock; LATE: how much later it is, in nanoseconds
//! ```
//!
//! ```text
//! witness work FILE [--after GROUP]... [--below] [--deaf] [--lingers MILLISECONDS]
//!                                                   works until SIGTERM; --below: lets a child do it; --deaf: SIGTERM
//!                                                   is not heard; --lingers: works so long after it
//! witness tick FILE MILLISECONDS [EACH LONGER]       works that long for a tick, LONGER for each EACH-th
//! witness session COMMAND ARGS...                   runs a command in a session of its own; its standard input
//!                                                   becomes the session's terminal
//! witness foreground                                tells whether it has the foreground of its terminal
//! ```

#[path = "../src/witness.rs"]
mod witness;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, getpgrp, getppid};
use witness::{Witness, now};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some("work") => work(arguments),
        Some("tick") => tick(arguments),
        Some("session") => session(&arguments.collect::<Vec<_>>()),
        Some("foreground") => foreground(),
        _ => Err(io::Error::other("work, tick, session or foreground?")),
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
    let (mut below, mut deaf, mut lingers) = (false, false, Duration::ZERO);
    let mut dead = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--below" => below = true,
            "--deaf" => deaf = true,
            "--lingers" => {
                let millis = arguments.next().and_then(|millis| millis.parse().ok());
                lingers = Duration::from_millis(millis.ok_or_else(|| io::Error::other("how long?"))?);
            }
            "--after" => {
                let group = arguments.next().and_then(|group| group.parse().ok());
                dead.push(group.ok_or_else(|| io::Error::other("after which group?"))?);
            }
            _ => return Err(io::Error::other(format!("{argument}?"))),
        }
    }
    // First of all, before it costs any time.
    let living: Vec<i32> = dead.into_iter().flat_map(living).collect();
    let witness = Witness::of_command(&path)?;
    for other in living {
        witness.say("alive", format_args!("{} {other}", now()))?;
    }
    let (group, parent) = (getpgrp(), Pid::as_raw(getppid()));
    witness.say("began", format_args!("{group} {parent} {}", now()))?;

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
    let mut ends_at = None;
    loop {
        if !deaf && told.load(Ordering::Relaxed) {
            let ends_at = *ends_at.get_or_insert_with(|| now() + lingers.as_nanos() as u64);
            if now() >= ends_at {
                break;
            }
        }
        // Whether or not somebody else is at work: of that, evidence was left.
        let _unit = witness.begin()?;
        std::thread::sleep(UNIT);
    }
    witness.say("ended", format_args!("{}", now()))
}

fn tick(mut arguments: impl Iterator<Item = String>) -> io::Result<()> {
    let (start, wall) = (now(), SystemTime::now());
    let path = PathBuf::from(arguments.next().ok_or_else(|| io::Error::other("which file?"))?);
    let numbers: Vec<u64> = arguments.map_while(|number| number.parse().ok()).collect();
    let variable = |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("no {name}")));
    let due = humantime::parse_rfc3339(&variable("TENURE_TICK_TIME")?).map_err(io::Error::other)?;
    // Early is less than zero.
    let late = match wall.duration_since(due) {
        Ok(late) => format!("{}", late.as_nanos()),
        Err(early) => format!("-{}", early.duration().as_nanos()),
    };
    let witness = Witness::new(&path, variable("TENURE_TIMER")?, variable("TENURE_TOKEN")?)?;
    let (tick, missed) = (variable("TENURE_TICK")?, variable("TENURE_MISSED")?);
    let due = due.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?.as_nanos();
    witness.say("tick", format_args!("{tick} {missed} {start} {due} {late}"))?;
    let span = match numbers[..] {
        [_, each, longer] if tick.parse::<u64>().is_ok_and(|tick| tick % each == 0) => longer,
        [span, ..] => span,
        [] => return Err(io::Error::other("how long?")),
    };
    let _unit = witness.begin()?;
    std::thread::sleep(Duration::from_millis(span));
    Ok(())
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
