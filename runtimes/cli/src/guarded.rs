//! The command as its supervisor sees it: through the guardian, and without it if that is gone.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::net::UnixStream;

use crate::program;
use crate::protocol::{Frames, Limits, Order, Report, send_with};
use crate::tree::{self, Tree};

/// What a command needs to be run.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    /// What it runs under, for messages.
    pub(crate) held: String,
    /// Variables for its environment, besides our own.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Where it runs.
    pub(crate) surroundings: Surroundings,
    /// The lock that proves this process alive, if the store has one.
    pub(crate) liveness: Option<OwnedFd>,
    /// How long it may run at first.
    pub(crate) limits: Limits,
    /// How long what it leaves behind may take to end.
    pub(crate) grace: Duration,
}

/// What a command has to do with the terminal, and the standard input, of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surroundings {
    /// It has them.
    Ours,
    /// It is in a session of its own, which has no terminal, and its standard input is empty: a command that starts by
    /// itself has no business with what somebody does at a terminal, and can't be stopped for want of it.
    Apart,
}

/// A command that runs under a guardian. Dropping it kills the command, and waits until nothing of it lives.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Child,
    socket: UnixStream,
    frames: Frames,
    /// Used for what the guardian usually does, when it can't.
    tree: Tree,
    ended: bool,
    buried: bool,
}

/// News of a guarded command.
#[derive(Debug)]
pub(crate) enum News {
    /// What the guardian says.
    Report(Report),
    /// The guardian died before its time. The command is to be killed with [`Guarded::bury`].
    Unguarded,
}

/// While the dying are waited for without a guardian, we look this often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Guarded {
    /// Starts a guardian and lets it start the command, which waits for [`Guarded::go`].
    ///
    /// To be called on the thread that lives as long as the program: the guardian is told when that one ends.
    ///
    /// # Errors
    /// The operating system's, if there is no socket or no process to be had.
    pub(crate) fn start(job: Job<'_>) -> io::Result<Self> {
        let tree = Tree::new();
        tree::adopt_orphans()?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        let (ours_stdin, no_stdin) = (io::stdin(), File::open("/dev/null")?);
        let (role, stdin) = match job.surroundings {
            Surroundings::Ours => (program::GUARDIAN, ours_stdin.as_fd()),
            Surroundings::Apart => (program::APART_GUARDIAN, no_stdin.as_fd()),
        };
        let mut command = program::again(role);
        command
            .arg(getpid().to_string())
            .arg(job.held)
            .args(job.command)
            .envs(job.variables)
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        if job.surroundings == Surroundings::Ours {
            // Apart from us, so that a stop sent to our group (by a shell: `kill -STOP %1`) leaves it working. With a
            // session of its own it has a group of its own, too.
            command.process_group(0);
        }
        let guardian = tree::start_guardian(|| command.spawn())?;
        let begin = Order::Begin { limits: job.limits, grace: job.grace };
        let mut descriptors = vec![stdin];
        descriptors.extend(job.liveness.as_ref().map(AsFd::as_fd));
        // There is room for the first message. If this fails the guardian is gone, which is seen as soon as we listen.
        let _ = send_with(&socket, &begin.frame(), &descriptors);
        Ok(Self { guardian, socket, frames: Frames::default(), tree, ended: false, buried: false })
    }

    /// The guardian's process id.
    pub(crate) fn guardian(&self) -> Pid {
        Pid::from_child(&self.guardian)
    }

    /// The command's process group, once it was started.
    pub(crate) const fn group(&self) -> Option<Pid> {
        self.tree.group()
    }

    /// Waits for news. May be dropped at any time without losing any.
    pub(crate) async fn news(&mut self) -> News {
        loop {
            if let Some(frame) = self.frames.next() {
                let Some(report) = Report::parse(&frame) else { return News::Unguarded };
                match report {
                    Report::Started { group } => self.tree.plant(group),
                    Report::Ended => self.ended = true,
                    _ => {}
                }
                return News::Report(report);
            }
            if self.socket.readable().await.is_err() {
                return News::Unguarded;
            }
            let mut buffer = [0; 1024];
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return News::Unguarded,
                Ok(bytes) => self.frames.push(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return News::Unguarded,
            }
        }
    }

    /// Lets the command begin.
    pub(crate) fn go(&self) {
        self.order(Order::Go);
    }

    /// Sets new limits.
    pub(crate) fn limit(&self, limits: Limits) {
        self.order(Order::Until(limits));
    }

    /// Passes a signal on to the command's process group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal));
    }

    /// Kills the command and all that it has started; also if the guardian is stopped.
    pub(crate) fn kill(&self) {
        if self.ended {
            return;
        }
        self.order(Order::Kill);
        // The group's number is the group's until we let the guardian leave.
        self.tree.signal_group(Signal::KILL);
        // A guardian that was stopped is of use again, to see the command's end and tell us.
        let _ = kill_process(self.guardian(), Signal::CONT);
    }

    /// After [`Report::Ended`] or [`News::Unguarded`]: waits until nothing of the command lives, calls `last` while
    /// its process group is still reserved, and buries the dead. Tells whether the guardian did its work to the end.
    pub(crate) async fn bury(mut self, last: impl FnOnce()) -> bool {
        if self.ended {
            last();
            self.order(Order::Leave);
            let _ = kill_process(self.guardian(), Signal::CONT);
            tree::bury_guardian(&mut self.guardian);
            self.buried = true;
            return true;
        }
        self.give_up_guardian();
        while !self.tree.kill() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        last();
        std::mem::take(&mut self.tree).reap_all();
        self.buried = true;
        false
    }

    /// A guardian that broke off the conversation is of no use.
    fn give_up_guardian(&mut self) {
        let _ = self.guardian.kill();
        tree::bury_guardian(&mut self.guardian);
    }

    /// A guardian that does not read is stopped or dead. Nothing is lost by not telling it: it kills by the last
    /// limits that it knew.
    fn order(&self, order: Order) {
        let sent = self.socket.try_write(&order.frame());
        if !matches!(sent, Ok(bytes) if bytes == order.frame().len()) {
            tracing::debug!(event = "guardian.deaf", ?order, ?sent, "the guardian does not read");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.buried {
            return;
        }
        self.give_up_guardian();
        while !self.tree.kill() {
            std::thread::sleep(LOOK_AGAIN);
        }
        std::mem::take(&mut self.tree).reap_all();
    }
}
