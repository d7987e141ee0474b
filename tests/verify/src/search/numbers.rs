//! Gathering the numbers in a machine, and giving them new ones.

use std::time::Duration;

use tenure_core::model::Visitor;
use tenure_core::{Acquisition, Identity, Instant, RestartPolicy, Tick, Timestamp, Token};

use super::canonical::{Process, Tables};
use super::config::TICK;
use super::world::{START, WALL, identity};

/// What a machine has forgotten, or never had.
const NOBODYS: Acquisition = Acquisition(0);

/// Nothing is that far ahead but a timer's next look at its record, and when a failed run counts as the first one.
const FAR: Duration = Duration::from_secs(2);

/// Gathers what a process sees.
pub(super) struct Survey<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) place: usize,
    /// The numbers of commands and machines are in sight if the node remembers them, not if they are under way.
    pub(super) in_flight: bool,
}

impl Survey<'_> {
    fn process(&mut self) -> &mut Process {
        &mut self.tables.processes[self.place]
    }
}

impl Visitor for Survey<'_> {
    fn now(&mut self, _: &mut Instant) {}

    fn deadline(&mut self, at: &mut Instant) {
        let process = self.process();
        if *at < process.clock {
            process.passed.push(*at);
        }
    }

    fn emitted(&mut self, at: &mut Instant) {
        let horizon = self.tables.horizon;
        let process = self.process();
        process.emissions.push(*at);
        if *at + horizon <= process.clock {
            process.old.push(*at);
        }
    }

    fn valid_until(&mut self, _: &mut Instant) {}

    fn token(&mut self, token: &mut Token) {
        if *token != Token::ZERO {
            self.tables.tokens.push(*token);
            self.process().grants.push(*token);
        }
    }

    fn floor(&mut self, _: &mut Token) {}

    fn acquisition(&mut self, n: &mut Acquisition) {
        if *n != NOBODYS {
            self.process().acquisitions.push(*n);
        }
    }

    fn last_acquisition(&mut self, _: &mut Acquisition) {}

    fn machine(&mut self, number: &mut u64) {
        if !self.in_flight {
            self.process().machines.push(*number);
        }
    }

    fn last_machine(&mut self, _: &mut u64) {}

    fn sequence(&mut self, machine: u64, number: &mut u64) {
        if !self.in_flight {
            self.process().sequences.push((machine, *number));
        }
    }

    fn next_sequence(&mut self, _: u64, _: &mut u64) {}

    fn failures(&mut self, _: &mut u32) {}

    fn failed_runs(&mut self, _: &mut u32, _: RestartPolicy) {}

    fn unresolved(&mut self, _: &mut u32, _: u32) {}

    fn tick(&mut self, tick: &mut Tick) {
        self.tables.ticks.push(tick.n);
    }

    fn tick_number(&mut self, n: &mut u64) {
        self.tables.ticks.push(*n);
    }

    fn revision(&mut self, _: &mut u64) {}

    fn reading(&mut self, _: &mut Timestamp, _: &mut Instant, _: &mut Instant) {}

    fn store_time(&mut self, _: &mut Timestamp) {}

    fn late(&mut self, _: &mut Duration, _: &mut u64) {}

    fn identity(&mut self, _: &mut Identity) {}

    fn answerable(&mut self, machine: u64, sequence: u64) -> bool {
        self.process().answerable.contains(&(machine, sequence))
    }
}

/// Gives each number the place that it has among those in sight. Zero is kept for what is in sight of nobody; the
/// numbers of machines begin at two, since one stands for a machine that once was.
pub(super) struct Rewrite<'a> {
    pub(super) tables: &'a Tables,
    pub(super) place: usize,
}

impl Rewrite<'_> {
    fn process(&self) -> &Process {
        &self.tables.processes[self.place]
    }

    /// How long ago, or how far ahead, on a clock that shows [`START`].
    fn shifted(&self, at: Instant) -> Instant {
        let clock = self.process().clock;
        START.saturating_sub(clock.saturating_since(at)) + at.saturating_since(clock)
    }
}

impl Visitor for Rewrite<'_> {
    fn now(&mut self, at: &mut Instant) {
        *at = START;
    }

    fn deadline(&mut self, at: &mut Instant) {
        let passed = &self.process().passed;
        *at = match passed.binary_search(at) {
            Ok(place) => START.saturating_sub(Duration::from_nanos((passed.len() - place) as u64)),
            // The end of time never comes nearer.
            Err(_) if *at == Instant::MAX => *at,
            // Neither of them changes anything within the times that are searched.
            Err(_) if *at > self.process().clock + FAR => START + FAR * 2,
            Err(_) => self.shifted(*at),
        };
    }

    fn emitted(&mut self, at: &mut Instant) {
        let old = &self.process().old;
        *at = match old.binary_search(at) {
            Ok(place) => START.saturating_sub(self.tables.horizon + TICK * (old.len() - 1 - place) as u32),
            Err(_) => self.shifted(*at),
        };
    }

    /// Once it has passed, it is only compared with what the answers to other emissions would make of it.
    fn valid_until(&mut self, at: &mut Instant) {
        let Process { clock, emissions, .. } = self.process();
        if *at > *clock {
            *at = self.shifted(*at);
            return;
        }
        let emission = at.saturating_sub(self.tables.valid_for);
        let before = emissions.partition_point(|other| *other <= emission);
        let mut at_latest = match before.checked_sub(1) {
            Some(place) => emissions[place],
            None => clock.saturating_sub(self.tables.horizon * 2),
        };
        self.emitted(&mut at_latest);
        *at = at_latest + self.tables.valid_for;
    }

    fn token(&mut self, token: &mut Token) {
        *token = Token::new(place(&self.tables.tokens, token));
    }

    /// Of the grants that this process may hear of, it is above the same ones as before, and those to come are above it
    /// anyway.
    fn floor(&mut self, token: &mut Token) {
        let grants = &self.process().grants;
        match grants.partition_point(|grant| grant <= token).checked_sub(1) {
            Some(place) => {
                *token = grants[place];
                self.token(token);
            }
            None => *token = Token::ZERO,
        }
    }

    fn acquisition(&mut self, n: &mut Acquisition) {
        n.0 = place(&self.process().acquisitions, n);
    }

    fn last_acquisition(&mut self, n: &mut Acquisition) {
        n.0 = self.process().acquisitions.len() as u64;
    }

    fn machine(&mut self, number: &mut u64) {
        *number = 1 + place(&self.process().machines, number);
    }

    fn last_machine(&mut self, number: &mut u64) {
        *number = 1 + self.process().machines.len() as u64;
    }

    fn sequence(&mut self, machine: u64, number: &mut u64) {
        let sequences = &self.process().sequences;
        let first = sequences.partition_point(|(other, _)| *other < machine);
        *number = match sequences.binary_search(&(machine, *number)) {
            Ok(place) => (place - first) as u64 + 1,
            Err(_) => 0,
        };
    }

    fn next_sequence(&mut self, machine: u64, number: &mut u64) {
        let own = self.process().sequences.iter().filter(|(other, _)| *other == machine);
        *number = own.count() as u64 + 1;
    }

    fn failures(&mut self, count: &mut u32) {
        *count = (*count).min(self.tables.failures);
    }

    fn failed_runs(&mut self, count: &mut u32, policy: RestartPolicy) {
        // As with requests: from the longest delay on there is no difference.
        let (mut delay, mut most) = (policy.first_delay(), 1);
        while delay < policy.longest_delay() {
            delay *= 2;
            most += 1;
        }
        *count = (*count).min(most);
    }

    fn unresolved(&mut self, count: &mut u32, remembered: u32) {
        *count = (*count).min(remembered + 1);
    }

    fn tick(&mut self, tick: &mut Tick) {
        *tick = self.tables.tick(tick.n);
    }

    fn tick_number(&mut self, n: &mut u64) {
        *n = self.tables.tick(*n).n;
    }

    /// Nobody changes a schedule.
    fn revision(&mut self, _: &mut u64) {}

    /// With clocks that all run alike, an older reading says no less than a younger one.
    fn reading(&mut self, at: &mut Timestamp, emitted: &mut Instant, received: &mut Instant) {
        let clock = self.process().clock;
        let shows = *at + clock.saturating_since(*received);
        // The clock of a node that is dead stands still.
        debug_assert!(
            shows <= self.tables.wall && emitted == received,
            "it was taken at once, by the same clock"
        );
        (*at, *emitted, *received) = (WALL, START, START);
    }

    fn store_time(&mut self, at: &mut Timestamp) {
        *at = WALL;
    }

    fn late(&mut self, late: &mut Duration, missed: &mut u64) {
        (*late, *missed) = (Duration::ZERO, 0);
    }

    fn identity(&mut self, identity: &mut Identity) {
        let Process { member, identity: own, .. } = self.process();
        let older =
            self.tables.processes.iter().filter(|other| other.member == *member && other.identity < *own);
        *identity = self::identity(*member, older.count() as u128);
    }

    fn answerable(&mut self, machine: u64, sequence: u64) -> bool {
        self.process().answerable.contains(&(machine, sequence))
    }
}

/// From one on; zero for what is not there.
fn place<T: Ord>(sorted: &[T], value: &T) -> u64 {
    sorted.binary_search(value).map_or(0, |place| place as u64 + 1)
}
