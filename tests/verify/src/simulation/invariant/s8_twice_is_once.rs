use tenure_core::{Command, Reply};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// S8: "Executing a request twice is the same as once: acquiring is idempotent per owner, and does not raise the
/// token."
#[derive(Default)]
pub(super) struct TwiceIsOnce;

impl Invariant for TwiceIsOnce {
    const NAME: &'static str = "S8 twice is once";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::Executed { life, name, command, before, reply, after } = fact else { return Ok(()) };
        match command {
            Command::Acquire { n, .. } => {
                let Some(before) = before else { return Ok(()) };
                if before.owner == world.lives[*life].1.owner(*n) {
                    let confirmed = *reply == Some(Reply::Granted { token: before.token });
                    let kept =
                        after.is_some_and(|after| after.owner == before.owner && after.token == before.token);
                    ensure(confirmed && kept, || {
                        format!("lease {name} is acquired twice: first {before:?}, then {after:?}")
                    })
                } else {
                    ensure(*after == Some(*before), || {
                        format!("a held lease was changed by a try: {after:?}")
                    })
                }
            }
            Command::Renew { .. } => {
                let kept = before.map(|before| (&before.owner, before.token))
                    == after.map(|after| (&after.owner, after.token));
                ensure(kept, || {
                    format!("renewing lease {name} changes more than its end: {before:?} -> {after:?}")
                })
            }
            _ => Ok(()),
        }
    }
}
