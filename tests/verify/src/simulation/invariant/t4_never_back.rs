use tenure_core::TimerChange;
use tenure_store::{TimerAct, TimerAnswer};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// T4: numbers never go back, whoever comes and goes: not the last tick that is known, not the last one that was claimed,
/// and no tick is claimed for the first time below one that was.
#[derive(Default)]
pub(super) struct NeverBack;

impl Invariant for NeverBack {
    const NAME: &'static str = "T4 numbers never go back";

    fn observe(&mut self, fact: &Fact<'_>, _: &World) -> Result<(), String> {
        let Fact::TimerExecuted { schedule, act, before: Some(before), answer, after: Some(after), .. } =
            fact
        else {
            return Ok(());
        };
        ensure(after.last >= before.last && after.claimed >= before.claimed, || {
            format!("timer {schedule} goes back from {before:?} to {after:?}")
        })?;
        if let (TimerAct::Claim(claim), TimerAnswer::Granted(_)) = (act, answer) {
            let known = before.claims.iter().any(|other| other.tick == claim.tick);
            ensure(known || claim.tick > before.claimed, || {
                format!("tick {} of timer {schedule} is granted after {before:?}", claim.tick)
            })?;
        }
        if let TimerAct::Change { change: TimerChange::Rebase { .. }, .. } = act
            && after.base != before.base
            && before.next.as_ref().is_none_or(|next| next.at != after.base)
        {
            let highest = before.last.max(before.claimed);
            ensure(after.base.n >= highest, || {
                format!("timer {schedule} counts from {:?} on after {before:?}", after.base)
            })?;
        }
        Ok(())
    }
}
