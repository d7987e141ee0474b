//! The command's parent: it keeps the command within the lease's time, whatever becomes of its supervisor.
//!
//! The supervisor (`tenure run`, `every` or `worker`) holds the lease and may be killed, stopped or starved at any moment. So the
//! command is the child of this small process, which knows by itself when the command must have ended. It
//! kills the command's process group, and whatever has left it, at `kill_at` by its own clock, and at once when
//! its supervisor is gone. It holds the lock that proves the supervisor alive until nothing of the command lives,
//! so that the next holder's command does not start before. Should the guardian itself be killed, the
//! command dies with it (see [`shim`](crate::shim)), and the supervisor clears up behind it.
//!
//! What this does not cover: supervisor and guardian killed in the same moment, while the command has children. The
//! command itself dies, its children do not. They keep the lock, which the command inherits, so that the next
//! holder has to wait for the TTL; beyond that, only the token tells them apart. And processes that changed their
//! user can't be killed by an ordinary one: the guardian waits for their end, and the lease is kept meanwhile.
//!
//! It has one thread, since the command's death signal follows the thread that started it, and does not block but
//! in one place. After every wake-up, be it from a stop of days, it takes in what it was told, looks at the clock,
//! and kills if it has to, before anything else.
//!
//! ```text
//!             Go            ask_at             kill_at, Kill, end of the supervisor
//!  waiting ─────────> running ─────> asked ──────────────────> killing ──> ended ──> (Leave) gone
//!                        └── the command ends, others live ──> asked
//! ```

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, waitid};
use tenure::Instant;

use crate::alarm::Alarm;
use crate::clock;
use crate::exit;
use crate::guarded::Surroundings;
use crate::protocol::{Ending, Frame, Frames, Limits, Order, Report, receive_with, send_with};
use crate::terminal::Terminal;
use crate::tree::{self, Tree};
use crate::{program, say, signals};

/// Runs as the guardian: the arguments are the supervisor's process id, what it holds, and the command. Our standard
/// input is the socket to the supervisor.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>, surroundings: Surroundings) -> ExitCode {
    let supervisor = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let (Some(supervisor), Some(held)) = (supervisor, arguments.next()) else {
        return exit::internal("this is a part of `tenure run`, not to be called by hand");
    };
    let held = held.to_string_lossy().into_owned();
    match Guardian::new(supervisor, held, arguments.collect(), surroundings) {
        Ok(mut guardian) => {
            guardian.watch();
            ExitCode::SUCCESS
        }
        Err(error) => exit::internal(&format!("the command's guardian could not start: {error}")),
    }
}

/// Sent when the supervisor dies, to wake us up. The end of the socket says the same; this is for the case that
/// another process came by a copy of its other end.
const SUPERVISOR_DIED: Signal = Signal::USR1;
/// Signals that people send to all processes of a job. Ours is to outlast the command.
const OUTLASTED: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP];
/// While the dying are waited for we look this often, besides being told of deaths.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Orders read at one wake-up before the clock is looked at.
const MOST_READ_BYTES: usize = 4096;

struct Guardian {
    supervisor: Pid,
    /// What the command runs under, for messages.
    held: String,
    /// No supervisor any more: nobody listens, and nothing may live on.
    alone: bool,
    socket: OwnedFd,
    frames: Frames,
    /// What the supervisor has not had room for yet. Bounded: see [`Guardian::report`].
    unsent: VecDeque<Frame>,
    signals: UnixStream,
    alarm: Alarm,
    limits: Limits,
    /// How long what the command leaves behind may take to end.
    grace: Duration,
    /// The command's terminal, to be handed back should the supervisor not live to do it.
    terminal: Option<Terminal>,
    /// The command's standard input, and our end of the socket to the shim, until the word to go.
    waiting: Option<(OwnedFd, UnixStream)>,
    tree: Tree,
    /// The command itself has ended.
    exited: bool,
    /// It was asked to end because of its limits.
    asked: bool,
    /// What has left the command's process group, and was asked to end after the command's end.
    asked_strays: Vec<Pid>,
    /// When what the command left behind is killed.
    leftovers_until: Option<Instant>,
    killing: bool,
    /// Nothing of the command lives any more.
    ended: bool,
    /// The supervisor knows that all has ended and allowed us to leave.
    dismissed: bool,
    /// Proves the supervisor alive to other processes; given up only by our end.
    _liveness: Option<OwnedFd>,
}

impl Guardian {
    fn new(
        supervisor: Pid,
        held: String,
        command: Vec<OsString>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        if surroundings == Surroundings::Apart {
            rustix::process::setsid()?;
        }
        let (signals, wake) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        let caught = OUTLASTED.into_iter().filter(|signal| !signals::is_ignored(*signal));
        for signal in caught.chain([Signal::CHILD, SUPERVISOR_DIED]) {
            signal_hook::low_level::pipe::register(signal.as_raw(), wake.try_clone()?)?;
        }
        tree::adopt_orphans()?;
        tree::signal_on_death_of_parent(SUPERVISOR_DIED)?;

        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (frame, descriptors) = receive_with(&socket)?;
        let Some(Order::Begin { limits, grace }) = Order::parse(&frame) else {
            return Err(io::Error::other("the first message is not an order to begin"));
        };
        let mut descriptors = descriptors.into_iter();
        let stdin = descriptors.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        let liveness = descriptors.next();

        let mut guardian = Self {
            supervisor,
            held,
            alone: false,
            socket,
            frames: Frames::default(),
            unsent: VecDeque::new(),
            signals,
            alarm: Alarm::new()?,
            limits,
            grace,
            terminal: Terminal::of_session(supervisor),
            waiting: None,
            tree: Tree::new(),
            exited: false,
            asked: false,
            asked_strays: Vec::new(),
            leftovers_until: None,
            killing: false,
            ended: false,
            dismissed: false,
            _liveness: liveness,
        };
        match guardian.start(&command) {
            Ok((group, shim)) => {
                guardian.tree.plant(group);
                guardian.waiting = Some((stdin, shim));
                guardian.report(Report::Started { group });
            }
            Err(error) => {
                guardian.report(Report::Unstarted { errno: error.raw_os_error().unwrap_or(0) });
                guardian.killing = true;
            }
        }
        Ok(guardian)
    }

    /// Starts the shim, which becomes the command, in a process group of its own.
    fn start(&self, command: &[OsString]) -> io::Result<(Pid, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        // The command inherits the lock as well: should we and the supervisor be killed at the same moment, it
        // is not free before the command is dead, too.
        if let Some(liveness) = &self._liveness {
            rustix::io::fcntl_setfd(liveness, FdFlags::empty())?;
        }
        let shim = program::again(program::SHIM)
            .arg(getpid().to_string())
            .args(command)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        Ok((Pid::from_child(&shim), ours))
    }

    /// The life of the guardian.
    fn watch(&mut self) {
        loop {
            self.take_orders();
            self.keep_limits();
            self.ended = if self.killing { self.tree.kill() } else { self.look_after_command() };
            if self.ended {
                break;
            }
            self.sleep();
        }
        self.see_end();
        if self.alone {
            say::line(format_args!("the supervisor of {} is gone; its command was killed", self.held));
        }
        self.report(Report::Ended);
        while !self.dismissed && !self.alone {
            self.sleep();
            self.take_orders();
        }
        if self.alone
            && !self.dismissed
            && let (Some(terminal), Some(command)) = (&self.terminal, self.tree.group())
        {
            terminal.take_back(command, getpid());
        }
        std::mem::take(&mut self.tree).reap_all();
    }

    /// Takes in what the supervisor has said by now, without waiting.
    ///
    /// It comes before the look at the clock: the limits in it are absolute, so however old they are they can
    /// only be right, and a guardian that was kept from running does not kill for want of reading.
    fn take_orders(&mut self) {
        let mut buffer = [0; MOST_READ_BYTES];
        while !self.alone {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.alone = true,
                Ok((_, bytes)) => {
                    self.frames.push(&buffer[..bytes]);
                    if bytes < MOST_READ_BYTES {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.alone = true,
            }
        }
        while let Some(frame) = self.frames.next() {
            match Order::parse(&frame) {
                Some(Order::Until(limits)) => self.limits = limits,
                Some(Order::Go) => self.go(),
                Some(Order::Signal(signal)) => {
                    self.tree.signal_group(signal);
                    // The stopped could not handle it.
                    self.tree.signal_group(Signal::CONT);
                }
                Some(Order::Kill) => self.killing = true,
                Some(Order::Leave) => self.dismissed = true,
                Some(Order::Begin { .. }) | None => self.alone = true,
            }
        }
        if getppid() != Some(self.supervisor) {
            self.alone = true;
        }
        if self.alone {
            self.killing = true;
        }
    }

    /// Lets the command begin, unless it is too late for that.
    fn go(&mut self) {
        let Some((stdin, shim)) = self.waiting.take() else { return };
        let too_late = clock::now() >= self.limits.ask_at.min(self.limits.kill_at);
        // Without the word to go, the shim sees the end of its socket and leaves.
        if !too_late && send_with(&shim, &Order::Go.frame(), &[stdin.as_fd()]).is_err() {
            self.killing = true;
        }
    }

    fn keep_limits(&mut self) {
        if self.killing {
            return;
        }
        let now = clock::now();
        if now >= self.limits.kill_at {
            self.killing = true;
            self.report(Report::Killed);
        } else if self.leftovers_until.is_some_and(|until| now >= until) {
            self.killing = true;
        } else if now >= self.limits.ask_at && !self.asked {
            self.asked = true;
            self.ask_to_end();
            self.report(Report::Asked);
        }
    }

    fn ask_to_end(&self) {
        self.tree.signal_all(Signal::TERM);
        self.tree.signal_all(Signal::CONT);
    }

    /// Sees what has become of the command; true if nothing of it lives any more.
    fn look_after_command(&mut self) -> bool {
        let Some(command) = self.tree.group() else { return true };
        if self.exited {
            self.ask_strays();
            return self.tree.has_ended();
        }
        if !self.see_end() {
            self.continue_stopped(command);
            self.tree.reap_orphans();
            return false;
        }
        if self.tree.has_ended() {
            return true;
        }
        self.leftovers_until = Some(clock::now() + self.grace);
        self.report(Report::Leftovers { count: self.tree.living().len() as u64 });
        self.tree.signal_group(Signal::TERM);
        self.tree.signal_group(Signal::CONT);
        self.ask_strays();
        false
    }

    /// Asks those to end who have left the command's group: they become ours one after the other, as their parents
    /// end.
    fn ask_strays(&mut self) {
        for stray in self.tree.strays() {
            if !self.asked_strays.contains(&stray) {
                tree::signal_one(stray, Signal::TERM);
                tree::signal_one(stray, Signal::CONT);
                self.asked_strays.push(stray);
            }
        }
    }

    /// Whether the command itself has ended; tells the supervisor how, the first time that it is seen.
    fn see_end(&mut self) -> bool {
        if let Some(command) = self.tree.group()
            && !self.exited
        {
            let ending = match tree::ending(command) {
                Ok(None) => return false,
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ending::Code(code),
                    (None, signal) => Ending::Signal(signal.unwrap_or(0)),
                },
                // Somebody else has buried it: that it has ended is all that is known.
                Err(_) => Ending::Signal(0),
            };
            self.exited = true;
            self.report(Report::Exited(ending));
        }
        self.exited
    }

    /// A command that was stopped from the keyboard would hold the lease for nothing, and nobody could give the
    /// terminal back to the shell: it has to go on.
    fn continue_stopped(&mut self, command: Pid) {
        let stopped = waitid(WaitId::Pid(command), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let Ok(Some(status)) = stopped else { return };
        if let Some(signal) = status.stopping_signal().and_then(Signal::from_named_raw) {
            if signal == Signal::TSTP {
                self.tree.signal_group(Signal::CONT);
            }
            self.report(Report::Stopped(signal));
        }
    }

    /// Tells the supervisor, at once or when it reads again (it may be stopped). If it is gone, that changes nothing
    /// here. Each report is made once, but that of a stop, which is left out where others wait.
    fn report(&mut self, report: Report) {
        if !matches!(report, Report::Stopped(_)) || self.unsent.is_empty() {
            self.unsent.push_back(report.frame());
        }
        self.send_reports();
    }

    fn send_reports(&mut self) {
        while let Some(frame) = self.unsent.front() {
            match rustix::io::retry_on_intr(|| send(&self.socket, frame, SendFlags::DONTWAIT)) {
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => self.unsent.pop_front(),
            };
        }
    }

    /// Sleeps until there is something to see to: an order, a signal, a deadline.
    fn sleep(&mut self) {
        let asking = if self.asked { Instant::MAX } else { self.limits.ask_at };
        let leftovers = self.leftovers_until.unwrap_or(Instant::MAX);
        let timeout = match (self.ended, self.killing) {
            (true, _) => self.alarm.set(Instant::MAX),
            (false, true) => {
                // A deadline that has passed would wake us again and again.
                self.alarm.set(Instant::MAX);
                Some(LOOK_AGAIN)
            }
            (false, false) => self.alarm.set(self.limits.kill_at.min(asking).min(leftovers)),
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut sources = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if !self.alone {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, !self.unsent.is_empty());
            sources.push(PollFd::new(&self.socket, wanted));
        }
        if let Some(timer) = self.alarm.descriptor() {
            sources.push(PollFd::from_borrowed_fd(timer, PollFlags::IN));
        }
        // Whatever wakes us, or fails: all is looked at afterwards.
        let _ = poll(&mut sources, timeout.as_ref());
        let mut buffer = [0; 64];
        while matches!(recv(&self.signals, &mut buffer, RecvFlags::DONTWAIT), Ok((_, bytes)) if bytes > 0) {}
        self.send_reports();
    }
}
