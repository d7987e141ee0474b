//! The members of the demo's fleet: what they work on, and those that hold their leases through the library.

use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, getppid};
use tenure::{AcquireError, LeaseConfig, Progress, Signal, SqliteStore, Tenure};
use tokio::sync::watch;

use crate::demo::notes::{WAITS, note};
use crate::demo::trouble::{Troubled, Weather};
use crate::demo::{GRACE, SHARED, evidence_of, store_in};
use crate::witness::{Witness, now};
use crate::{exit, program, tree};

/// How long a unit of work takes: short, so that the last one before a hand-over tells when that was.
const UNIT: Duration = Duration::from_millis(20);

/// Runs as what becomes a member: the arguments are the demo's process id and the member's own arguments.
///
/// The binding belongs to the process and outlasts `exec`. A member that is stopped is killed by it, too; the end of
/// its standard input it would not see.
pub(crate) fn bound(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let demo = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let Some(demo) = demo else { return not_by_hand() };
    // The demo may have died before we were bound to it.
    if tree::signal_on_death_of_parent(rustix::process::Signal::KILL).is_err() || getppid() != Some(demo) {
        return exit::internal("the demo is gone; its member was not started");
    }
    let error = Command::new(program::path()).arg0("tenure").args(arguments).exec();
    exit::internal(&format!("a member of the demo could not be started: {error}"))
}

/// Runs as the command of a `tenure run`: the arguments are the demo's folder and the member's name. Works until
/// SIGTERM, or until standard input ends, and with it the demo.
pub(crate) fn work(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let [folder, name] = &arguments.collect::<Vec<_>>()[..] else { return not_by_hand() };
    let name = name.to_string_lossy();
    match work_as_command(Path::new(folder), &name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::internal(&format!("member {name} of the demo can't work: {error}")),
    }
}

fn not_by_hand() -> ExitCode {
    exit::internal("this is a part of `tenure demo`, not to be called by hand")
}

fn work_as_command(folder: &Path, name: &str) -> io::Result<()> {
    let lease = std::env::var(crate::run::LEASE_VARIABLE).unwrap_or_default();
    let witness = Witness::of_command(&evidence_of(folder, &lease))?;
    let told = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&told))?;
    let orphaned = Arc::clone(&told);
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        orphaned.store(true, Ordering::Relaxed);
    });
    witness.say("began", format_args!("{} {name}", now()))?;
    while !told.load(Ordering::Relaxed) {
        // Whether or not somebody else is at work: of that, evidence was left.
        let _unit = witness.begin()?;
        std::thread::sleep(UNIT);
    }
    witness.say("ended", format_args!("{}", now()))
}

/// Runs as a member that uses the library: the arguments are the demo's folder, the member's name and the TTL in
/// milliseconds. Standard input says what the network is like; the member ends when it ends.
pub(crate) fn member(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let [folder, name, ttl] = &arguments.collect::<Vec<_>>()[..] else { return not_by_hand() };
    let Some(ttl) = ttl.to_str().and_then(|ttl| ttl.parse().ok()) else { return not_by_hand() };
    let member = Member { folder: folder.into(), name: name.to_string_lossy().into_owned() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(member.run(Duration::from_millis(ttl))),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::internal(&format!("member {} of the demo failed: {error}", member.name)),
    }
}

struct Member {
    folder: PathBuf,
    name: String,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Member {
    async fn run(&self, ttl: Duration) -> Result<(), Failed> {
        let (change, weather) = watch::channel(Weather::Clear);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if let Some(weather) = Weather::parse(&line) {
                    let _ = change.send(weather);
                }
            }
            // The demo is gone.
            std::process::exit(i32::from(exit::INTERNAL));
        });
        let store = Troubled::new(SqliteStore::open(store_in(&self.folder))?, weather);
        let tenure =
            tenure::builder().store(store).instance(&self.name).lease(LeaseConfig::new(ttl)).start()?;
        tenure
            .scope(async |tenure| {
                let [one, other] = SHARED;
                tokio::try_join!(self.hold(&tenure, one), self.hold(&tenure, other)).map(|_| ())
            })
            .await?
    }

    /// Works under a lease whenever it has it.
    async fn hold(&self, tenure: &Tenure, name: &'static str) -> Result<(), Failed> {
        loop {
            let wait = tenure.acquire(name).grace(GRACE).on_progress(move |progress| {
                if matches!(progress, Progress::Waiting { .. }) {
                    note(WAITS, name);
                }
            });
            let lease = match wait.await {
                Ok(lease) => lease,
                Err(AcquireError::ShuttingDown { .. } | AcquireError::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let path = evidence_of(&self.folder, name);
            let witness = Witness::new(&path, name.to_owned(), lease.token().to_string())?;
            // Dropped at the end of the lease's time, wherever it is then; the unit ends with it.
            let worked = lease.run(self.work(&witness, lease.signal())).await;
            witness.say("ended", format_args!("{}", now()))?;
            let _ = lease.release().await;
            if let Ok(done) = worked {
                done?;
            }
        }
    }

    async fn work(&self, witness: &Witness, signal: Signal) -> io::Result<()> {
        witness.say("began", format_args!("{} {}", now(), self.name))?;
        while !signal.is_stopping() {
            let _unit = witness.begin()?;
            tokio::time::sleep(UNIT).await;
        }
        Ok(())
    }
}
