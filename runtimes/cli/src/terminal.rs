//! The terminal, lent to the command while it runs.
//!
//! The command has a process group of its own, and a terminal serves only its foreground group: the others are
//! stopped when they read. So the foreground is handed to the command's group before it begins, and taken
//! back, with the terminal's modes, after it has ended. A command whose input or output is something else gets it
//! when it is stopped for want of it: until then others may need it, such as a pager behind the command.
//!
//! Giving it away is easy, as we have it. A process that wants it back is stopped with SIGTTOU unless it ignores
//! that signal, and ignoring takes unsafe code. But a process *in* the foreground group may hand it on. The dead
//! leader of the command's group keeps the group's number until it is reaped, so a small process of ours can join
//! that group and hand the terminal to us.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::{exit, program, tree};

/// A terminal that controls our session.
#[derive(Debug)]
pub(crate) struct Terminal {
    descriptor: OwnedFd,
    /// The process group that the terminal is lent by: that of `tenure run`.
    home: Pid,
    /// The modes from before it was first given away.
    modes: Option<Termios>,
}

impl Terminal {
    /// That of our session, if it has one: commands ask there for passwords though their standard input is no
    /// terminal. `lender` is `tenure run`.
    pub(crate) fn of_session(lender: Pid) -> Option<Self> {
        let home = tree::group_of(lender)?;
        let descriptor = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { descriptor: descriptor.into(), home, modes: None })
    }

    /// Whether our process group has the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.descriptor) == Ok(self.home)
    }

    /// Hands the foreground to a process group if we have it; tells whether we had.
    pub(crate) fn give_to(&mut self, group: Pid) -> bool {
        if !self.is_ours() {
            return false;
        }
        if self.modes.is_none() {
            self.modes = tcgetattr(&self.descriptor).ok();
        }
        tcsetpgrp(&self.descriptor, group).is_ok()
    }

    /// Takes the foreground back from the command, and restores the modes if it was we who gave it away. The command
    /// has ended, and its process group's leader is not reaped yet. `adopter` is (or was) the parent of the command's
    /// orphans.
    ///
    /// If meanwhile somebody else was given the foreground (the shell takes it when it sees us stopped or dead),
    /// nothing is done: whoever took it knows what modes he wants.
    pub(crate) fn take_back(&self, command: Pid, adopter: Pid) {
        if let Ok(foreground) = tcgetpgrp(&self.descriptor)
            && foreground != self.home
        {
            let of_command = foreground == command
                || tree::parent(foreground).is_some_and(|parent| parent == adopter || parent == getpid());
            if !of_command || self.fetch_from(foreground).is_err() {
                return;
            }
        }
        if let Some(modes) = &self.modes
            && self.is_ours()
        {
            let _ = tcsetattr(&self.descriptor, OptionalActions::Now, modes);
        }
    }

    fn fetch_from(&self, foreground: Pid) -> io::Result<()> {
        let mut fetcher = program::again(program::FOREGROUND)
            .arg(self.home.to_string())
            .stdin(Stdio::from(self.descriptor.try_clone()?))
            .process_group(foreground.as_raw_pid())
            .spawn()?;
        // If it lost the foreground just now, it is stopped: that is no reason to stop as well.
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&fetcher)), options))?;
        let _ = fetcher.kill();
        fetcher.wait()?;
        Ok(())
    }
}

/// Runs as the one that hands the terminal back: the argument is the process group to get the foreground.
pub(crate) fn hand_back(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let home = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let Some(home) = home else {
        return exit::internal("this is a part of `tenure run`, not to be called by hand");
    };
    match tcsetpgrp(io::stdin(), home) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
