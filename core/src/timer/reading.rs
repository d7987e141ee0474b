//! What is known of the schedule, and of the store's time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Timer, TimerView, above_one, below_one, nanos, scale, scale_up};
use crate::planted::{Bug, planted};
use crate::schedule::{AnySchedule, MIN_TOLERANCE, Tick};
use crate::time::{Instant, Timestamp};

/// The store's time, as it was told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// What the store's clock said, somewhere between the two instants.
    pub(super) at: Timestamp,
    /// When the request was emitted.
    pub(super) emitted: Instant,
    /// When the answer came.
    pub(super) received: Instant,
}

impl<J> Timer<J> {
    /// The earliest that the store's clock may show now.
    pub(super) fn low(&self, reading: &Reading) -> Timestamp {
        if planted(Bug::TickEarly) {
            return self.high(reading);
        }
        reading.at + self.slow(self.now.saturating_since(reading.received))
    }

    /// The latest that the store's clock may show now, if it has not stepped since.
    pub(super) fn high(&self, reading: &Reading) -> Timestamp {
        reading.at + self.fast(self.now.saturating_since(reading.emitted))
    }

    /// When the earliest that the store's clock may show has reached this time.
    pub(super) fn reached(&self, reading: &Reading, at: Timestamp) -> Instant {
        let ahead = nanos(at.saturating_since(reading.at));
        if planted(Bug::TickEarly) {
            let (slow, fast) = (below_one(self.options.drift), above_one(self.options.clock.drift));
            return reading.emitted + Duration::from_nanos(scale_up(ahead, slow, fast));
        }
        let (fast, slow) = (above_one(self.options.drift), below_one(self.options.clock.drift));
        reading.received + Duration::from_nanos(scale_up(ahead, fast, slow))
    }

    /// How long the store's clock may at the least take to reach this time, from the reading on.
    pub(super) fn earliest(&self, reading: &Reading, at: Timestamp) -> Duration {
        let ahead = nanos(at.saturating_since(reading.at));
        let (slow, fast) = (below_one(self.options.drift), above_one(self.options.clock.drift));
        Duration::from_nanos(scale(ahead, slow, fast))
    }

    /// The least that the store's clock goes on while ours goes on for this long.
    pub(super) fn slow(&self, passed: Duration) -> Duration {
        let (slow, fast) = (below_one(self.options.clock.drift), above_one(self.options.drift));
        Duration::from_nanos(scale(nanos(passed), slow, fast))
    }

    /// The most that the store's clock goes on while ours goes on for this long.
    pub(super) fn fast(&self, passed: Duration) -> Duration {
        let (fast, slow) = (above_one(self.options.clock.drift), below_one(self.options.drift));
        Duration::from_nanos(scale_up(nanos(passed), fast, slow))
    }
}

/// The schedule that counts, and what is to follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) base: Tick,
    pub(super) current: AnySchedule,
    /// The tick that becomes the base of another schedule.
    pub(super) next: Option<(Tick, AnySchedule)>,
    pub(super) unfinished: Vec<u64>,
}

impl Known {
    /// `None` if a schedule can't be read.
    pub(super) fn new(view: TimerView, read: impl Fn(&str) -> Option<AnySchedule>) -> Option<Self> {
        let next = match view.next {
            Some(next) => Some((next.at, read(&next.schedule)?)),
            None => None,
        };
        Some(Self { base: view.base, current: read(&view.schedule)?, next, unfinished: view.unfinished })
    }

    /// The schedule that counts, or is to follow it.
    pub(super) fn to_come(&self) -> &AnySchedule {
        self.next.as_ref().map_or(&self.current, |(_, schedule)| schedule)
    }

    /// What counts at this time.
    fn segment(&self, at: Timestamp) -> (Tick, &AnySchedule) {
        match &self.next {
            Some((base, schedule)) if base.at <= at => (*base, schedule),
            Some(_) | None => (self.base, &self.current),
        }
    }

    /// What tick `n` belongs to.
    pub(super) fn segment_of(&self, n: u64) -> (Tick, &AnySchedule) {
        match &self.next {
            Some((base, schedule)) if base.n < n => (*base, schedule),
            Some(_) | None => (self.base, &self.current),
        }
    }

    /// When tick `n` is or was due.
    pub(super) fn tick(&self, n: u64) -> Tick {
        let (base, schedule) = self.segment_of(n);
        Tick { n, at: schedule.at(base, n) }
    }

    pub(super) fn tolerance(&self, at: Timestamp) -> Duration {
        self.segment(at).1.tolerance().max(MIN_TOLERANCE)
    }

    /// The last tick at or before this time.
    pub(super) fn latest(&self, until: Timestamp) -> Option<Tick> {
        let (base, schedule) = self.segment(until);
        // Whatever a schedule says: no tick is early.
        schedule.latest(base, until).filter(|tick| tick.at <= until)
    }

    /// The first tick after this time with a number above `position`.
    pub(super) fn after(&self, at: Timestamp, position: u64) -> Option<Tick> {
        let passed = if position > self.base.n { self.tick(position).at } else { at };
        let mut after = at.max(passed);
        // The tick at which the schedule changes may have been passed.
        for _ in 0..2 {
            // Whatever a schedule says: what it has passed does not come again.
            let tick = self.next_after(after).filter(|tick| tick.at > after)?;
            if tick.n > position {
                return Some(tick);
            }
            after = tick.at;
        }
        None
    }

    fn next_after(&self, after: Timestamp) -> Option<Tick> {
        let (base, schedule) = self.segment(after);
        let tick = schedule.next(base, after);
        match &self.next {
            // The change is a tick, too, and nothing of the old schedule comes after it.
            Some((change, _)) if change.at > after && tick.is_none_or(|tick| tick.at > change.at) => {
                Some(*change)
            }
            Some(_) | None => tick,
        }
    }

    /// The last few ticks up to and with `latest` whose numbers are above `position`, in order, and how many come
    /// before them.
    pub(super) fn due(&self, latest: Tick, position: u64, at_once: u32) -> (Vec<Tick>, u64) {
        let mut ticks = VecDeque::from([latest]);
        let mut first = latest;
        while ticks.len() < at_once as usize
            && let Some(before) = self.before(first)
            && before.n > position
        {
            ticks.push_front(before);
            first = before;
        }
        let missed = self.count(position, first.n).saturating_sub(1);
        (ticks.into(), missed)
    }

    /// The tick before this one, the base included.
    fn before(&self, tick: Tick) -> Option<Tick> {
        let until = Timestamp::from_nanos(tick.at.as_nanos().checked_sub(1)?);
        self.latest(until).filter(|before| before.n < tick.n)
    }

    /// How many ticks have numbers above `after`, up to and with `n`: each schedule counts its own.
    fn count(&self, after: u64, n: u64) -> u64 {
        match &self.next {
            Some((change, schedule)) if change.n < n => {
                let before =
                    if after < change.n { self.current.count(self.base, after, change.n) } else { 0 };
                before.saturating_add(schedule.count(*change, after.max(change.n), n))
            }
            Some(_) | None => self.current.count(self.base, after, n),
        }
    }
}
