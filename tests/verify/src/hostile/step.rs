//! What is done to the node, read from bytes: so that a fuzzer, a generator and a file on disk all speak of the same.

use std::time::Duration;

use tenure_core::{Exit, Failure, Missed, Overlap, Rebalance, Reply, Restart, Token, WaitLimit, Wake};

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
    StartTimer {
        name: u8,
        tick: TickOptions,
    },
    StopTimer(u8),
    StartPeriodic {
        name: u8,
        tick: TickOptions,
        attempts: u32,
        overlap: Overlap,
        under_lease: bool,
    },
    DrainPeriodic(u8),
    StopPeriodic(u8),
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
    /// A timer's record with any content.
    TimerRead {
        command: u8,
        view: Shape,
    },
    /// The same for an id that another node gave out.
    ForgedRead {
        machine: u8,
        view: Shape,
    },
    /// The store's wall clock is set.
    SetWall {
        back: bool,
        by: Duration,
    },
    Hint {
        name: u8,
        wake: Wake,
    },
    Join {
        short: bool,
    },
    StartCoordinator {
        /// One bit for each of the names.
        workloads: u8,
        share: ShareOptions,
    },
    AddWorkload {
        index: u8,
        name: u8,
    },
    RemoveWorkload {
        index: u8,
        name: u8,
    },
    DrainCoordinator(u8),
    StopCoordinator(u8),
    DrainAll,
    Resume,
    /// An operator's wish, at the store that agrees.
    Mark {
        drain: bool,
    },
    /// An answer to a heartbeat with any content.
    Present {
        command: u8,
        view: Shape,
    },
    /// The same for an id that another node gave out.
    ForgedPresent {
        machine: u8,
        view: Shape,
    },
    MembersHint,
    /// The store that agrees loses its members.
    ForgetMembers,
    Resync,
    Shutdown,
    /// The clock jumps.
    Forward(Duration),
    Backward(Duration),
    Poll,
}

/// What a timer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "all that is chosen")]
pub struct TickOptions {
    /// Which of a few schedules.
    pub schedule: u8,
    /// What becomes of missed ticks.
    pub missed: Missed,
    /// The limit of lateness.
    pub late_limit: Option<Duration>,
}

/// What a coordinator is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "all that is chosen")]
pub struct ShareOptions {
    /// Which of a few rules.
    pub rule: u8,
    /// When a member counts.
    pub hold_down: Duration,
    /// What becomes of work that belongs elsewhere.
    pub rebalance: Rebalance,
    /// When workloads are started again.
    pub when: Restart,
}

/// What a forged record of a timer, or a view of the members, is made of, byte by byte.
pub type Shape = [u8; 12];

impl Step {
    /// The step that the first of these bytes stand for, as many as it needs; zeros follow them.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        Bytes(bytes).step()
    }

    /// No step needs more bytes.
    pub const LENGTH: usize = 16;
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
        match self.below(100) {
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
            44..=48 => Step::StartPeriodic {
                name: self.below(2),
                tick: self.tick(),
                attempts: [1, 1, 2, u32::MAX][usize::from(self.below(4))],
                overlap: [Overlap::Skip, Overlap::Queue, Overlap::Allow][usize::from(self.below(3))],
                under_lease: self.below(4) == 0,
            },
            49 => Step::StartTimer { name: self.below(2), tick: self.tick() },
            50 => Step::StopTimer(self.byte()),
            51 => Step::DrainPeriodic(self.byte()),
            52 => Step::StopPeriodic(self.byte()),
            53..=55 => Step::TimerRead { command: self.byte(), view: self.shape() },
            56 => Step::ForgedRead { machine: self.byte(), view: self.shape() },
            57 => Step::SetWall { back: self.flag(), by: self.any_time() },
            58..=59 => Step::Yes(self.byte()),
            60..=65 => Step::Due,
            66..=71 => Step::Poll,
            72..=74 => Step::Join { short: self.flag() },
            75..=78 => Step::StartCoordinator { workloads: self.byte(), share: self.share() },
            79 => Step::AddWorkload { index: self.byte(), name: self.below(6) },
            80 => Step::RemoveWorkload { index: self.byte(), name: self.below(6) },
            81 if self.flag() => Step::DrainCoordinator(self.byte()),
            81 => Step::StopCoordinator(self.byte()),
            82 => Step::DrainAll,
            83..=84 => Step::Resume,
            85 => Step::Mark { drain: true },
            86..=87 => Step::Mark { drain: false },
            88..=91 => Step::Present { command: self.byte(), view: self.shape() },
            92 => Step::ForgedPresent { machine: self.byte(), view: self.shape() },
            93 => Step::MembersHint,
            94 if self.below(4) == 0 => Step::ForgetMembers,
            95..=97 => Step::Yes(self.byte()),
            _ => Step::Poll,
        }
    }

    fn tick(&mut self) -> TickOptions {
        let schedule = self.byte();
        let missed = match self.below(4) {
            0 => Missed::CatchUp { at_most: 3 },
            1 => Missed::CatchUp { at_most: u32::MAX },
            _ => Missed::Skip,
        };
        let late_limit = (self.below(4) == 0).then(|| self.milliseconds());
        TickOptions { schedule, missed, late_limit }
    }

    fn share(&mut self) -> ShareOptions {
        let rule = self.below(3);
        let hold_down = match self.below(4) {
            0 => Duration::ZERO,
            1 => self.any_time(),
            _ => Duration::from_millis(500),
        };
        let rebalance = [Rebalance::Stop, Rebalance::Drain][usize::from(self.below(2))];
        ShareOptions { rule, hold_down, rebalance, when: self.restart() }
    }

    fn shape(&mut self) -> Shape {
        [(); 12].map(|()| self.byte())
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
            12 if self.flag() => Reply::TickTaken,
            12 => [Reply::Watching, Reply::TickOverlaps, Reply::Left][usize::from(self.below(3))],
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
