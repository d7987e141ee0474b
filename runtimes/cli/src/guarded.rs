//! The command as its supervisor sees it: through the guardian, and without it if that is gone.

use std::ffi::OsString;
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
    /// Variables for its environment, besides our own.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// The lock that proves this process alive, if the store has one.
    pub(crate) liveness: Option<OwnedFd>,
    /// How long it may run at first.
    pub(crate) limits: Limits,
    /// How long what it leaves behind may take to end.
    pub(crate) grace: Duration,
}

/// A command that runs under a guardian.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Child,
    socket: UnixStream,
    frames: Frames,
    /// Used for what the guardian usually does, when it can't.
    tree: Tree,
    ended: bool,
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
        let guardian = program::again(program::GUARDIAN)
            .arg(getpid().to_string())
            .args(job.command)
            .envs(job.variables)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Apart from us, so that a stop sent to our group (by a shell: `kill -STOP %1`) leaves it working.
            .process_group(0)
            .spawn()?;
        let begin = Order::Begin { limits: job.limits, grace: job.grace };
        let stdin = io::stdin();
        let mut descriptors = vec![stdin.as_fd()];
        descriptors.extend(job.liveness.as_ref().map(AsFd::as_fd));
        // If this fails the guardian is gone already, which is seen as soon as we listen.
        let _ = send_with(&ours, &begin.frame(), &descriptors);
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        Ok(Self { guardian, socket, frames: Frames::default(), tree, ended: false })
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
            let _ = self.guardian.wait();
            return true;
        }
        // A guardian that broke off the conversation is of no use.
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
        while !self.tree.kill() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        last();
        self.tree.reap_all();
        false
    }

    /// A guardian that does not read is stopped or dead. Nothing is lost by not telling it: it kills by the last
    /// limits that it knew.
    fn order(&self, order: Order) {
        let sent = self.socket.try_write(&order.frame());
        if !matches!(sent, Ok(bytes) if bytes == order.frame().len()) {
            tracing::debug!(?order, ?sent, "the guardian does not read");
        }
    }
}
