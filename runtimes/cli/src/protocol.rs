//! What the supervisor and its guardian say to each other, over one stream socket.
//!
//! Every message is one frame of four little-endian 64-bit words: a tag and up to three values. Both ends are
//! the same executable, so there is no version; a frame that makes no sense ends the conversation, which the
//! guardian takes as the end of its supervisor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal};
use tenure::Instant;

/// The size of every message, in bytes.
pub(crate) const FRAME_BYTES: usize = 32;

/// A message on the wire.
pub(crate) type Frame = [u8; FRAME_BYTES];

/// Until when the command may run, on the clock of [`clock`](crate::clock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From here on it is asked to end. Not before [`kill_at`](Self::kill_at): it is killed outright.
    pub(crate) ask_at: Instant,
    /// From here on it is killed.
    pub(crate) kill_at: Instant,
}

/// What the supervisor wants of its guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Always first: start the command's process, but let it wait for [`Order::Go`]. The frame carries the
    /// command's standard input and, if the store has one, the lock that proves this process alive.
    Begin {
        /// Until when the command may run.
        limits: Limits,
        /// How long what the command leaves behind may take to end by itself.
        grace: Duration,
    },
    /// Let the command begin.
    Go,
    /// The lease was renewed: new limits.
    Until(Limits),
    /// Pass this signal on to the command's process group.
    Signal(Signal),
    /// Kill the command and all that it started.
    Kill,
    /// The answer to [`Report::Ended`]: the dead may be buried.
    Leave,
}

/// What the guardian tells its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command's process is there, in a process group of its own, and waits for [`Order::Go`].
    Started {
        /// The process group; the command is its leader.
        group: Pid,
    },
    /// The command's process could not be made.
    Unstarted {
        /// The operating system's error number.
        errno: i32,
    },
    /// The command was stopped by a signal; after SIGTSTP it has already been continued.
    Stopped(Signal),
    /// The limits told the guardian to ask the command to end.
    Asked,
    /// The limits told the guardian to kill.
    Killed,
    /// The command ended.
    Exited(Ending),
    /// Processes that the command started live on after its end; they were asked to end.
    Leftovers {
        /// How many are there, as far as is known: at least one.
        count: u64,
    },
    /// Nothing of the command lives any more. Its process group stays reserved until [`Order::Leave`].
    Ended,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By this signal (a number: real-time signals have no name).
    Signal(i32),
}

impl Ending {
    /// The exit code as a shell reports it: the command's own, or 128 plus the signal's number.
    pub(crate) fn code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code & 0xff,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl Order {
    /// The order as sent.
    pub(crate) fn frame(self) -> Frame {
        match self {
            Self::Begin { limits, grace } => {
                let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                frame(1, limits.ask_at.as_nanos(), limits.kill_at.as_nanos(), grace)
            }
            Self::Go => frame(2, 0, 0, 0),
            Self::Until(limits) => frame(3, limits.ask_at.as_nanos(), limits.kill_at.as_nanos(), 0),
            Self::Signal(signal) => frame(4, word(signal.as_raw()), 0, 0),
            Self::Kill => frame(5, 0, 0, 0),
            Self::Leave => frame(6, 0, 0, 0),
        }
    }

    /// The order in a frame; `None` if it makes no sense.
    pub(crate) fn parse(frame: &Frame) -> Option<Self> {
        let [tag, a, b, c] = words(frame);
        let limits = Limits { ask_at: Instant::from_nanos(a), kill_at: Instant::from_nanos(b) };
        Some(match tag {
            1 => Self::Begin { limits, grace: Duration::from_millis(c) },
            2 => Self::Go,
            3 => Self::Until(limits),
            4 => Self::Signal(Signal::from_named_raw(number(a)?)?),
            5 => Self::Kill,
            6 => Self::Leave,
            _ => return None,
        })
    }
}

impl Report {
    /// The report as sent.
    pub(crate) fn frame(self) -> Frame {
        match self {
            Self::Started { group } => frame(1, word(group.as_raw_pid()), 0, 0),
            Self::Unstarted { errno } => frame(2, word(errno), 0, 0),
            Self::Stopped(signal) => frame(3, word(signal.as_raw()), 0, 0),
            Self::Asked => frame(4, 0, 0, 0),
            Self::Killed => frame(5, 0, 0, 0),
            Self::Exited(Ending::Code(code)) => frame(6, word(code), 0, 0),
            Self::Exited(Ending::Signal(signal)) => frame(7, word(signal), 0, 0),
            Self::Leftovers { count } => frame(8, count, 0, 0),
            Self::Ended => frame(9, 0, 0, 0),
        }
    }

    /// The report in a frame; `None` if it makes no sense.
    pub(crate) fn parse(frame: &Frame) -> Option<Self> {
        let [tag, a, ..] = words(frame);
        Some(match tag {
            1 => Self::Started { group: Pid::from_raw(number(a)?)? },
            2 => Self::Unstarted { errno: number(a)? },
            3 => Self::Stopped(Signal::from_named_raw(number(a)?)?),
            4 => Self::Asked,
            5 => Self::Killed,
            6 => Self::Exited(Ending::Code(number(a)?)),
            7 => Self::Exited(Ending::Signal(number(a)?)),
            8 => Self::Leftovers { count: a },
            9 => Self::Ended,
            _ => return None,
        })
    }
}

fn frame(tag: u64, a: u64, b: u64, c: u64) -> Frame {
    let mut frame = [0; FRAME_BYTES];
    for (bytes, value) in frame.chunks_exact_mut(8).zip([tag, a, b, c]) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    frame
}

fn words(frame: &Frame) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(frame.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    }
    words
}

fn word(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

fn number(word: u64) -> Option<i32> {
    u32::try_from(word).ok().map(u32::cast_signed)
}

/// Bytes that came in and are not yet a whole frame.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Takes in what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let frame = *self.bytes.first_chunk::<FRAME_BYTES>()?;
        self.bytes.drain(..FRAME_BYTES);
        Some(frame)
    }
}

/// The most descriptors that a message carries.
const MOST_DESCRIPTORS: usize = 2;

/// Received descriptors are closed on exec from the first moment, where that can be had.
#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Sends one frame together with descriptors. (A peer that is gone is an error, no signal: Rust programs ignore
/// SIGPIPE.)
pub(crate) fn send_with(socket: impl AsFd, frame: &Frame, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(frame)], &mut control, SendFlags::empty())
    })?;
    if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Waits for one frame and the descriptors that it carries.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the other end is gone.
pub(crate) fn receive_with(socket: impl AsFd) -> io::Result<(Frame, Vec<OwnedFd>)> {
    let mut frame = [0; FRAME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut frame)], &mut control, CLOSE_ON_EXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    if received.bytes == FRAME_BYTES {
        Ok((frame, descriptors))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_survives_the_wire() {
        let limits = Limits { ask_at: Instant::from_nanos(1 << 60), kill_at: Instant::MAX };
        for order in [
            Order::Begin { limits, grace: Duration::from_millis(12_345) },
            Order::Go,
            Order::Until(limits),
            Order::Signal(Signal::TERM),
            Order::Kill,
            Order::Leave,
        ] {
            assert_eq!(Order::parse(&order.frame()), Some(order));
        }
    }

    #[test]
    fn every_report_survives_the_wire() {
        for report in [
            Report::Started { group: Pid::INIT },
            Report::Unstarted { errno: 11 },
            Report::Stopped(Signal::TSTP),
            Report::Asked,
            Report::Killed,
            Report::Exited(Ending::Code(255)),
            Report::Exited(Ending::Signal(9)),
            Report::Leftovers { count: 3 },
            Report::Ended,
        ] {
            assert_eq!(Report::parse(&report.frame()), Some(report));
        }
    }

    #[test]
    fn a_frame_of_unknown_meaning_is_refused() {
        assert_eq!(Order::parse(&frame(99, 0, 0, 0)), None);
        assert_eq!(Report::parse(&frame(99, 0, 0, 0)), None);
        assert_eq!(Order::parse(&frame(4, u64::MAX, 0, 0)), None, "no such signal");
        assert_eq!(Report::parse(&frame(1, 0, 0, 0)), None, "no such process");
    }

    #[test]
    fn frames_are_found_however_the_bytes_were_cut() {
        let sent = [Order::Go.frame(), Order::Kill.frame()].concat();
        for cut in 0..sent.len() {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for part in [&sent[..cut], &sent[cut..]] {
                frames.push(part);
                while let Some(frame) = frames.next() {
                    seen.push(Order::parse(&frame));
                }
            }
            assert_eq!(seen, [Some(Order::Go), Some(Order::Kill)], "cut at {cut}");
        }
    }

    #[test]
    fn an_exit_code_is_the_commands_own_or_128_and_the_signal() {
        assert_eq!(Ending::Code(0).code(), 0);
        assert_eq!(Ending::Code(255).code(), 255);
        assert_eq!(Ending::Signal(15).code(), 143);
        assert_eq!(Ending::Signal(64).code(), 192);
    }
}
