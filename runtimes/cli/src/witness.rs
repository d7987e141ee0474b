//! Work that leaves evidence: when it was done and by whom, and whether somebody else was at it.
//!
//! Every unit of work takes a lock on a file without waiting. If another process has it, two of them worked at the
//! same time, which is what leases are there to prevent. Then it adds a line to the file of the evidence:
//!
//! ```text
//! unit    LEASE TOKEN PROCESS START END             a unit of work was done
//! overlap LEASE TOKEN PROCESS TIME                  somebody else was at work
//! ```
//!
//! Times are nanoseconds of a clock that all processes share and that counts suspends. Other kinds of lines are
//! those of the programs that work. [`history`](crate::history) reads them.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use rustix::process::getpid;

/// Writes the evidence of work under one grant of a lease.
#[derive(Debug)]
pub(crate) struct Witness {
    evidence: File,
    lock: File,
    lease: String,
    token: String,
}

impl Witness {
    /// Leaves the evidence in this file; the lock is beside it.
    pub(crate) fn new(path: &Path, lease: String, token: String) -> io::Result<Self> {
        let open = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { evidence: open(path)?, lock: open(&path.with_extension("lock"))?, lease, token })
    }

    /// For a command of `tenure run`.
    pub(crate) fn of_command(path: &Path) -> io::Result<Self> {
        let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "-".to_owned());
        Self::new(path, variable("TENURE_LEASE"), variable("TENURE_TOKEN"))
    }

    /// Begins a unit of work; `None` if somebody else is at work, of which evidence is left.
    pub(crate) fn begin(&self) -> io::Result<Option<Unit<'_>>> {
        let start = now();
        match self.lock.try_lock() {
            Ok(()) => Ok(Some(Unit { witness: self, start })),
            Err(TryLockError::WouldBlock) => {
                self.say("overlap", format_args!("{start}"))?;
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Adds a line.
    pub(crate) fn say(&self, what: &str, details: fmt::Arguments<'_>) -> io::Result<()> {
        let Self { lease, token, .. } = self;
        // One write, so that lines of several processes don't mix.
        (&self.evidence).write_all(format!("{what} {lease} {token} {} {details}\n", getpid()).as_bytes())
    }
}

/// A unit of work that goes on. It ends when this is dropped, and then leaves its evidence.
#[derive(Debug)]
#[must_use = "the work ends when this is dropped"]
pub(crate) struct Unit<'a> {
    witness: &'a Witness,
    start: u64,
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        // A disk that is full shows when the next line is written.
        let _ = self.witness.say("unit", format_args!("{} {}", self.start, now()));
        let _ = self.witness.lock.unlock();
    }
}

/// The clock of the evidence, in nanoseconds.
pub(crate) fn now() -> u64 {
    tenure::clock::now().as_nanos()
}
