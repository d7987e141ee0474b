use tenure_core::{Owner, Token};
use tenure_store::{Claim, TimerAct, TimerAnswer, TimerRecord};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// S1, S8 and S9 for claims: a tick is granted to one at a time; asked again by its owner the claim stays as it is; a
/// renewal or an end is for the owner and the token of the claim alone.
#[derive(Default)]
pub(super) struct OfTheirOwner;

fn claim_of(record: Option<&TimerRecord>, tick: u64) -> Option<&Claim> {
    record?.claims.iter().find(|claim| claim.tick == tick)
}

/// What was given back, to be tried again, is nobody's.
fn is_its(claim: &Claim, owner: &Owner, token: Option<Token>) -> bool {
    let given_back = claim.ttl.is_zero();
    !given_back && claim.owner == owner.to_string() && token.is_none_or(|token| token == claim.token)
}

impl Invariant for OfTheirOwner {
    const NAME: &'static str = "claims are their owner's";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::TimerExecuted { schedule, act, before, answer, after, .. } = fact else { return Ok(()) };
        let now = world.store.clock.at(world.now);
        let told =
            |what: &str| format!("timer {schedule}: {act:?} {what}: {before:?} -> {answer:?}, {after:?}");
        match act {
            TimerAct::Claim(claim) => {
                let (old, new) = (claim_of(*before, claim.tick), claim_of(*after, claim.tick));
                let Some(old) = old.filter(|old| now < old.ends) else { return Ok(()) };
                let own = is_its(old, &claim.owner, None);
                let granted = **answer == TimerAnswer::Granted(old.token);
                let kept = new.is_some_and(|new| new.token == old.token && new.owner == old.owner);
                ensure(kept && own == granted, || told("is wrong"))
            }
            TimerAct::Renew { tick, owner, token, .. } => {
                let old = claim_of(*before, *tick);
                let own = old.is_some_and(|old| is_its(old, owner, Some(*token)) && now < old.ends);
                ensure(own == (**answer == TimerAnswer::Renewed), || told("is answered wrongly"))
            }
            TimerAct::Finish { tick, owner, token, .. } => {
                let own = claim_of(*before, *tick).is_some_and(|old| is_its(old, owner, *token));
                ensure(own == (**answer == TimerAnswer::Removed), || told("is answered wrongly"))
            }
            TimerAct::Read { .. } | TimerAct::Change { .. } | TimerAct::Forget => Ok(()),
        }
    }
}
