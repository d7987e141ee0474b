//! What goes wrong around the nodes.

use std::time::Duration;

use tenure_core::{Event, Token, Wake};

use super::super::store::Absence;
use super::{Condition, Fault, Fleet, Happening, Part, Phase, SECOND, STEP, What, drift};

/// What strikes now and then; the other faults concern single messages and users.
pub(super) const STRIKES: [Fault; 18] = [
    Fault::Partition,
    Fault::Crash,
    Fault::Pause,
    Fault::Drift,
    Fault::WildDrift,
    Fault::Restart,
    Fault::Wipe,
    Fault::Step,
    Fault::WildStep,
    Fault::Slow,
    Fault::Lies,
    Fault::Wall,
    Fault::Flapping,
    Fault::Drains,
    Fault::Workloads,
    Fault::Silence,
    Fault::Forgets,
    Fault::Bursts,
];
/// The longest time between two strikes of a kind.
const LULL: u64 = 6 * SECOND;
/// The most that a clock is set too far.
const WILD_STEP: u64 = 2 * SECOND;

impl Fleet {
    pub(super) fn plan_strike(&mut self, fault: Fault) {
        if self.faults.has(fault) {
            let at = self.world.now + LULL - self.tape.of(fault).below(LULL - SECOND / 50);
            self.plan(at, Happening::Strike { fault });
        }
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        if self.world.phase != Phase::Trouble {
            return;
        }
        self.plan_strike(fault);
        let lane = self.tape.of(fault);
        let (happens, member) = (lane.below(4) > 0, lane.pick(self.world.members.len()));
        if !happens {
            return;
        }
        let now = self.world.now;
        match fault {
            Fault::Partition => self.cut_off(member),
            Fault::Crash => self.crash(member),
            Fault::Pause => {
                let length = 1 + self.tape.of(fault).below(4 * SECOND);
                self.pause(member, now + length);
            }
            Fault::Drift => self.set_rate(member, false),
            Fault::WildDrift => self.set_rate(member, true),
            Fault::Restart => self.store_down(),
            Fault::Wipe if self.tape.of(fault).one_in(3) => self.wipe(),
            Fault::Step => self.step(),
            Fault::WildStep if self.tape.of(fault).one_in(3) => self.step_too_far(),
            Fault::Slow => {
                self.world.store.slow_until = now + self.tape.of(fault).below(2 * SECOND);
                self.struck(None, What::StoreSlow);
            }
            Fault::Lies => self.lie(member),
            Fault::Wall => self.upset_timers(),
            Fault::Drains => self.strike_drain(member),
            Fault::Workloads => self.strike_workloads(),
            Fault::Flapping if self.tape.of(fault).one_in(2) => {
                let times = 1 + self.tape.of(fault).below(4);
                self.flap(member, times);
            }
            Fault::Silence => self.silence(member),
            Fault::Forgets => self.forget_members(),
            Fault::Bursts if self.tape.of(fault).one_in(3) => self.burst(),
            _ => {}
        }
    }

    fn cut_off(&mut self, member: usize) {
        let (asks, hears, what) =
            [(false, false, What::CutOff), (false, true, What::Mute), (true, false, What::Deaf)]
                [self.tape.of(Fault::Partition).pick(3)];
        let node = &mut self.world.members[member];
        (node.asks, node.hears) = (asks, hears);
        self.struck(member, what);
        let at = self.world.now + self.tape.of(Fault::Partition).below(3 * SECOND);
        self.plan(at, Happening::Link { member });
    }

    pub(super) fn link(&mut self, member: usize) {
        let node = &mut self.world.members[member];
        (node.asks, node.hears) = (true, true);
        self.struck(member, What::Linked);
        self.resync(member);
    }

    /// Whoever may have missed hints is told so.
    pub(super) fn resync(&mut self, member: usize) {
        self.input(member, Event::Resync);
    }

    /// A process is gone, and its work with it. Another one comes in its place.
    pub(super) fn crash(&mut self, member: usize) {
        if self.world.members[member].condition == Condition::Down {
            return;
        }
        self.struck(member, What::Crash);
        let node = &mut self.world.members[member];
        node.condition = Condition::Down;
        node.candidacies.clear();
        node.workers.clear();
        node.jobs.clear();
        node.timers.clear();
        node.part = Part::default();
        node.interrupted = false;
        node.inbox.clear();
        node.alarm = None;
        if !self.by_hand {
            let at = self.world.now + self.tape.at(Fault::Crash, member).below(2 * SECOND);
            self.plan(at, Happening::Start { member });
        }
    }

    pub(super) fn start(&mut self, member: usize) {
        if self.world.members[member].condition != Condition::Down || self.world.phase != Phase::Trouble {
            return;
        }
        self.start_anew(member);
    }

    pub(super) fn start_anew(&mut self, member: usize) {
        let (life, node) = self.born(member);
        // The store notices by now that the one before is gone.
        for waiters in self.world.store.model.waiters.values_mut() {
            waiters.retain(|(place, _)| *place != member);
        }
        let place = &mut self.world.members[member];
        (place.life, place.node, place.condition, place.shut) = (life, node, Condition::Up, false);
        self.struck(member, What::Start);
        if !self.by_hand {
            self.campaign(member);
        }
    }

    pub(super) fn pause(&mut self, member: usize, until: u64) {
        if self.world.members[member].is_up() {
            self.world.members[member].condition = Condition::Paused { until };
            self.struck(member, What::Pause);
            if until < u64::MAX {
                self.plan(until, Happening::Resume { member });
            }
        }
    }

    pub(super) fn resume(&mut self, member: usize) {
        let now = self.world.now;
        if self.world.members[member].condition != (Condition::Paused { until: now }) {
            return;
        }
        self.struck(member, What::Resume);
        let node = &mut self.world.members[member];
        node.condition = Condition::Up;
        // What is found to be due only now begins now.
        node.candidacies.iter_mut().for_each(|candidacy| candidacy.stop_by = None);
        let interrupted = node.interrupted;
        let mut inbox = std::mem::take(&mut node.inbox);
        // What a process sees first after a pause is anybody's guess.
        if !inbox.is_empty() && self.tape.at(Fault::Pause, member).one_in(2) {
            inbox.rotate_right(1);
        }
        // What it had not yet carried out comes first, or what it hears now does.
        if interrupted && !self.tape.at(Fault::Interruption, member).one_in(2) {
            self.pump(member, None);
        }
        for event in inbox {
            match self.world.members[member].condition {
                Condition::Up => self.handle(member, event),
                Condition::Paused { .. } => self.world.members[member].inbox.push(event),
                Condition::Down => {}
            }
        }
        if self.world.members[member].is_up() {
            self.handle(member, Event::Timeout);
        }
    }

    /// A clock runs at another rate; the store's as well, once in a while.
    fn set_rate(&mut self, member: usize, wild: bool) {
        let now = self.world.now;
        let outlived = self.outlived();
        let lane = self.tape.of(if wild { Fault::WildDrift } else { Fault::Drift });
        let (of_store, choice) = (lane.one_in(4), lane.pick(5));
        let rate = if wild {
            [0, 300_000, -300_000, 50_000, -50_000][choice]
        } else {
            drift(&mut self.tape, self.faults, member)
        };
        let (clock, trusted_from) = if of_store {
            (&mut self.world.store.clock, &mut self.world.trusted_from)
        } else {
            let node = &mut self.world.members[member];
            (&mut node.clock, &mut node.trusted_from)
        };
        clock.set_rate(now, rate);
        if rate.abs() > 10_000 {
            *trusted_from = u64::MAX;
        } else if *trusted_from == u64::MAX {
            *trusted_from = now + outlived;
        }
        self.rearm(member);
    }

    /// A timer that was set by the old rate is set anew.
    pub(super) fn rearm(&mut self, member: usize) {
        self.input(member, Event::Timeout);
    }

    /// Until then everything that was believed before is over, in true time.
    pub(super) fn outlived(&self) -> u64 {
        (self.world.timing.outlived_after() * 21 / 20).as_nanos() as u64
    }

    fn store_down(&mut self) {
        let lane = self.tape.of(Fault::Restart);
        let at = self.world.now + 1 + lane.below(3 * SECOND / 2);
        self.world.store.absence = [Absence::Mixed, Absence::Refuses, Absence::Swallows][lane.pick(3)];
        self.world.store.down_until = at;
        self.struck(None, What::StoreDown);
        self.plan(at, Happening::StoreUp);
    }

    pub(super) fn store_up(&mut self) {
        if self.world.now < self.world.store.down_until {
            return;
        }
        self.world.store.restart();
        self.struck(None, What::StoreUp);
        for member in 0..self.world.members.len() {
            if self.world.members[member].hears {
                self.resync(member);
            }
        }
    }

    /// The store comes again with nothing. Its wall clock keeps the tokens rising, unless that is wrong as well.
    fn wipe(&mut self) {
        self.world.store.model.records.clear();
        self.world.store.model.timers.clear();
        self.forget_members();
        self.world.forgotten.fill(true);
        self.world.trusted_from = self.world.trusted_from.max(self.world.now + self.outlived());
        self.struck(None, What::StoreWiped);
        let forgets = self.tape.of(Fault::Wipe).below(3);
        if forgets > 0 {
            self.world.store.model.high_water = Token::ZERO;
            self.world.store.ignores_floor = forgets == 2;
            self.world.tokens_kept = false;
            self.struck(None, What::StoreForgotTokens);
        }
        self.world.store.down_until = self.world.now;
        self.store_up();
    }

    /// Another replica answers, whose clock is off, as far as is assumed.
    fn step(&mut self) {
        let offset = self.tape.of(Fault::Step).below(STEP.as_nanos() as u64 + 1) as i64;
        self.world.store.clock.step(offset - self.offset);
        self.offset = offset;
        self.struck(None, What::StoreSet);
    }

    fn step_too_far(&mut self) {
        let lane = self.tape.of(Fault::WildStep);
        let (by, back) = (lane.below(WILD_STEP) as i64, lane.one_in(2));
        self.world.store.clock.step(if back { -by } else { by });
        self.world.trusted_from = self.world.trusted_from.max(self.world.now + self.outlived());
        self.struck(None, What::StoreSetTooFar);
        // Set back, it keeps records for longer.
        self.hurts_until = self.hurts_until.max(self.world.now) + if back { by as u64 * 21 / 20 } else { 0 };
    }

    fn lie(&mut self, member: usize) {
        let lane = self.tape.of(Fault::Lies);
        let name = lane.pick(self.world.names.len());
        let wake = match lane.below(5) {
            0 => Wake::Free { chosen: false },
            1 => Wake::Free { chosen: true },
            2 => {
                let ttl = Duration::from_nanos(lane.below(3 * SECOND));
                Wake::Held { token: Token::new(lane.below(100)), ttl }
            }
            3 => return self.input(member, Event::MembersHint),
            _ => return self.resync(member),
        };
        self.input(member, Event::Hint { name: self.world.names[name].clone(), wake });
    }
}
