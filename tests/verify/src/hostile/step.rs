//! What is done to the node, read from bytes: so that a fuzzer, a generator and a file on disk all speak of the same.

use std::time::Duration;

use tenure_core::{Exit, Failure, Reply, Restart, Token, WaitLimit, Wake};

/// Something that is done to the node. Small numbers pick one of the names, leases, workers or commands so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "all that can be done")]
#[expect(missing_docs, reason = "they are named after what is called or told")]
pub enum Step {
    Acquire {
        name: u8,
        wait: WaitLimit,
        max_hold: bool,
    },
    Release(u8),
    Drain(u8),
    StartWorker {
        name: u8,
        when: Restart,
    },
    DrainWorker(u8),
    StopWorker(u8),
    /// Whether or not anything ran.
    Exited {
        index: u8,
        exit: Exit,
    },
    Timeout,
    /// The clock goes on to the next deadline.
    Due,
    Reply {
        command: u8,
        reply: Reply,
    },
    /// The answer of a store that agrees.
    Yes(u8),
    /// A reply to an id that another node gave out.
    Forged {
        machine: u8,
        reply: Reply,
    },
    Hint {
        name: u8,
        wake: Wake,
    },
    Resync,
    Shutdown,
    /// The clock jumps.
    Forward(Duration),
    Backward(Duration),
    Poll,
}

impl Step {
    /// The step that the first of these bytes stand for, as many as it needs; zeros follow them.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        Bytes(bytes).step()
    }

    /// No step needs more bytes.
    pub const LENGTH: usize = 8;
}

/// The steps that these bytes stand for; any bytes will do.
#[must_use]
pub fn steps(bytes: &[u8]) -> Vec<Step> {
    let mut bytes = Bytes(bytes);
    let mut steps = Vec::new();
    while !bytes.0.is_empty() {
        steps.push(bytes.step());
    }
    steps
}

/// Bytes that are read from the front; zeros follow them.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn step(&mut self) -> Step {
        match self.below(48) {
            0..=2 => Step::Acquire { name: self.below(3), wait: self.wait(), max_hold: self.flag() },
            3 => Step::Release(self.byte()),
            4 => Step::Drain(self.byte()),
            5..=6 => Step::StartWorker { name: self.below(3), when: self.restart() },
            7 => Step::DrainWorker(self.byte()),
            8 => Step::StopWorker(self.byte()),
            9..=11 => Step::Exited { index: self.byte(), exit: self.exit() },
            12..=14 => Step::Timeout,
            15..=20 => Step::Due,
            21..=26 => Step::Reply { command: self.byte(), reply: self.reply() },
            27..=33 => Step::Yes(self.byte()),
            34 => Step::Forged { machine: self.byte(), reply: self.reply() },
            35..=36 => Step::Hint { name: self.below(3), wake: self.wake() },
            37 => Step::Resync,
            // Rare, since nothing can be begun after it.
            38 if self.byte() == 255 => Step::Shutdown,
            38..=41 => Step::Forward(self.milliseconds()),
            // Not beyond some years: nothing is ever due at the end of time.
            42 => Step::Forward(self.any_time().min(Duration::from_secs(1 << 25))),
            43 => Step::Backward(self.milliseconds()),
            _ => Step::Poll,
        }
    }

    fn wait(&mut self) -> WaitLimit {
        match self.below(3) {
            0 => WaitLimit::Forever,
            1 => WaitLimit::AtMost(Duration::from_millis(700)),
            _ => WaitLimit::No,
        }
    }

    fn restart(&mut self) -> Restart {
        match self.below(4) {
            0 => Restart::OnFailure,
            1 => Restart::Never,
            _ => Restart::Always,
        }
    }

    fn exit(&mut self) -> Exit {
        match self.below(4) {
            0 => Exit::Completed,
            1 => Exit::Failed,
            2 => Exit::Stopped,
            _ => Exit::NotStarted,
        }
    }

    fn reply(&mut self) -> Reply {
        match self.below(16) {
            0..=3 => Reply::Granted { token: self.token() },
            4..=5 => Reply::Held {
                token: self.flag().then(|| self.token()),
                remaining: self.flag().then(|| self.milliseconds()),
            },
            6..=8 => Reply::Renewed,
            9 => Reply::NotYours,
            10..=11 => Reply::Released { others_chosen: self.flag() },
            12 => Reply::Watching,
            13 => Reply::Failed(Failure::Unknown),
            14 => Reply::Failed(Failure::NotExecuted),
            _ => Reply::Failed(Failure::Refused),
        }
    }

    fn wake(&mut self) -> Wake {
        match self.below(3) {
            0 => Wake::Free { chosen: false },
            1 => Wake::Free { chosen: true },
            _ => Wake::Held { token: self.token(), ttl: self.any_time() },
        }
    }

    /// Mostly one of a few, so that they meet.
    fn token(&mut self) -> Token {
        match self.below(64) {
            0 => Token::new(u64::MAX - u64::from(self.below(2))),
            few => Token::new(u64::from(few % 20)),
        }
    }

    fn milliseconds(&mut self) -> Duration {
        Duration::from_millis(u64::from(u16::from_le_bytes([self.byte(), self.byte()]) % 3_000))
    }

    /// From nothing to the end of time, each order of magnitude as often as the others.
    fn any_time(&mut self) -> Duration {
        let (mantissa, exponent) = (u64::from(self.byte()), u32::from(self.below(57)));
        if exponent == 56 { Duration::MAX } else { Duration::from_nanos(mantissa << exponent) }
    }
}
