use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{Command, NextSchedule, Notice, Tick, TimerChange, Timestamp};
use tenure_store::{TimerAct, TimerRecord};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// T3: nothing drifts. Tick n is due (n − base) periods after the base of some schedule that the store has had, and a base
/// moves only to a tick of the schedule before it, or where the clock was found to stand before the last tick.
#[derive(Default)]
pub(super) struct NoDrift {
    /// By schedule: the base and the period of whatever counted at some time.
    segments: BTreeSet<(usize, Tick, Duration)>,
}

/// Reads a period, in a way of its own.
fn period(text: &str) -> Option<Duration> {
    let seconds = text.strip_prefix("every ")?.strip_suffix('s')?;
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let nanos: u64 = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(Duration::from_secs(whole.parse().ok()?) + Duration::from_nanos(nanos))
}

/// When tick `n` is due, counted with all digits there are.
fn due(base: Tick, period: Duration, n: u64) -> Option<Timestamp> {
    let periods = i128::from(n) - i128::from(base.n);
    let nanos = i128::from(base.at.as_nanos()) + periods * i128::try_from(period.as_nanos()).ok()?;
    (periods >= 0).then_some(Timestamp::from_nanos(i64::try_from(nanos).ok()?))
}

impl NoDrift {
    fn learn(&mut self, schedule: usize, record: &TimerRecord) {
        let next = record.next.as_ref().map(|NextSchedule { at, schedule }| (*at, schedule));
        for (base, text) in [(record.base, &record.schedule)].into_iter().chain(next) {
            if let Some(period) = period(text) {
                self.segments.insert((schedule, base, period));
            }
        }
    }

    fn fits(&self, schedule: usize, tick: Tick, who: usize) -> Result<(), String> {
        let fits = |(other, base, period): &(usize, Tick, Duration)| {
            *other == schedule && due(*base, *period, tick.n) == Some(tick.at)
        };
        ensure(self.segments.iter().any(fits), || {
            format!("node {who} has {tick:?} of timer {schedule} at a time of no schedule that there was")
        })
    }
}

impl Invariant for NoDrift {
    const NAME: &'static str = "T3 nothing drifts";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::TimerExecuted { schedule, act, before, after, .. } => {
                let Some(after) = after else { return Ok(()) };
                self.learn(*schedule, after);
                let Some(before) = before.filter(|before| before.base != after.base) else { return Ok(()) };
                let rebased = matches!(act, TimerAct::Change { change: TimerChange::Rebase { .. }, .. });
                let next = before.next.as_ref().is_some_and(|next| next.at == after.base);
                let staged = matches!(act, TimerAct::Change { change: TimerChange::Stage { at, .. }, .. } if *at == after.base);
                let in_phase = due(before.base, period(&before.schedule).unwrap_or_default(), after.base.n);
                // Revisions begin anew once it was forgotten, and so an old change may meet a new record.
                let excused = rebased || world.forgotten[*schedule];
                ensure(excused || ((next || staged) && in_phase == Some(after.base.at)), || {
                    format!("the base of timer {schedule} moves from {before:?} to {after:?} by {act:?}")
                })
            }
            Fact::TimerNoticed { member, schedule, notice: Notice::Ticked { due, .. } } => {
                self.fits(*schedule, due.tick, *member)
            }
            Fact::Emitted { member, command: Command::StartWorkload { worker, lease, .. } } => {
                let node = &world.members[*member];
                let run = node.candidacy(*lease).and_then(|candidacy| candidacy.run);
                match (run, node.node.run(*worker)) {
                    (Some((job, _)), Some((_, due))) if !due.catching_up => self.fits(job, due.tick, *member),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
