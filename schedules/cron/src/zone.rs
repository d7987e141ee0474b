//! From the wall clock of a zone to instants: what becomes of times that are left out, and of those that come twice.
//!
//! Between two changes a zone's clock is ahead of UTC by one offset, and time is as simple as in UTC. The search goes
//! from one such stretch to the next.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::calendar;
use crate::expression::Expression;

/// A time between two changes of a zone's clock, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// When it begins. What is before all changes begins at the beginning of time.
    begin: i64,
    /// When it ends, itself no part of it.
    end: i64,
    /// How far the clock is ahead of UTC.
    offset: i64,
    /// How far it was before that.
    before: i64,
}

/// A search for instants. It remembers what it found last on the wall clock.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    expression: &'a Expression,
    zone: &'a TimeZone,
    stretch: Option<Stretch>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(expression: &'a Expression, zone: &'a TimeZone) -> Self {
        Self { expression, zone, stretch: None }
    }

    /// The first instant at or after this one.
    pub(crate) fn next(&mut self, from: i64) -> Option<i64> {
        let mut stretch = self.around(from)?;
        let mut from = from;
        // What the wall clock shows next: as long as it is ahead, it holds for the next stretch, too.
        let mut known: Option<(i64, Option<i64>)> = None;
        loop {
            if self.makes_up(&stretch) && from <= stretch.begin {
                return Some(stretch.begin);
            }
            let wall = self.first(&stretch).max(from) + stretch.offset;
            let next = match known {
                Some((since, next)) if since <= wall && next.is_none_or(|next| next >= wall) => next,
                Some(_) | None => {
                    let next = calendar::next(self.expression, self.expression.times(), wall);
                    known = Some((wall, next));
                    next
                }
            };
            let next = next?;
            if next - stretch.offset < stretch.end {
                return Some(next - stretch.offset);
            }
            from = stretch.end;
            stretch = self.around(from)?;
        }
    }

    /// The last instant at or before `until`, not before `since`.
    pub(crate) fn latest(&mut self, since: i64, until: i64) -> Option<i64> {
        if until < since {
            return None;
        }
        let mut stretch = self.around(until)?;
        let mut until = until;
        let mut known: Option<(i64, Option<i64>)> = None;
        loop {
            let wall = until + stretch.offset;
            let latest = match known {
                Some((from, latest)) if from >= wall && latest.is_none_or(|latest| latest <= wall) => latest,
                Some(_) | None => {
                    let latest = calendar::latest(self.expression, self.expression.times(), wall);
                    known = Some((wall, latest));
                    latest
                }
            };
            let instant = latest.map(|latest| latest - stretch.offset);
            let found = instant.filter(|instant| *instant >= self.first(&stretch));
            if found.is_some() {
                return found.filter(|found| *found >= since);
            }
            if self.makes_up(&stretch) && stretch.begin <= until {
                return Some(stretch.begin).filter(|found| *found >= since);
            }
            if stretch.begin <= since || latest.is_none() {
                return None;
            }
            until = stretch.begin - 1;
            stretch = self.around(until)?;
        }
    }

    /// The first instant of a stretch that may count: what the clock shows for the second time counts for intervals.
    fn first(&self, stretch: &Stretch) -> i64 {
        let repeated = if self.expression.is_fixed() { (stretch.before - stretch.offset).max(0) } else { 0 };
        stretch.begin.saturating_add(repeated)
    }

    /// Whether the beginning of a stretch stands for a fixed time that the clock has left out.
    fn makes_up(&self, stretch: &Stretch) -> bool {
        if !self.expression.is_fixed() || stretch.offset <= stretch.before {
            return false;
        }
        let next = calendar::next(self.expression, self.expression.times(), stretch.begin + stretch.before);
        next.is_some_and(|next| next < stretch.begin + stretch.offset)
    }

    /// The stretch in which this instant lies; `None` outside of the years that a calendar has.
    fn around(&mut self, instant: i64) -> Option<Stretch> {
        if let Some(stretch) = self.stretch
            && (stretch.begin..stretch.end).contains(&instant)
        {
            return Some(stretch);
        }
        let at = Timestamp::from_second(instant).ok()?;
        let after = Timestamp::from_second(instant.checked_add(1)?).ok()?;
        let begin = self.zone.preceding(after).next().map(|change| change.timestamp());
        let end = self.zone.following(at).next().map(|change| change.timestamp().as_second());
        let offset = i64::from(self.zone.to_offset(at).seconds());
        let before = begin.and_then(|begin| Timestamp::from_second(begin.as_second() - 1).ok());
        let before = before.map_or(offset, |before| i64::from(self.zone.to_offset(before).seconds()));
        let stretch = Stretch {
            begin: begin.map_or(Timestamp::MIN.as_second(), Timestamp::as_second),
            end: end.unwrap_or(Timestamp::MAX.as_second()),
            offset,
            before,
        };
        self.stretch = Some(stretch);
        Some(stretch)
    }
}
