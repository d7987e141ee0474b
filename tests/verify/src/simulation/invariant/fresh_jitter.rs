use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Event, LeaseKey, Notice, Reply};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// "Retries belong to the core: exponential backoff with fresh jitter for each delay."
///
/// How long a waiter sleeps beyond what the store told it is drawn anew each time. With 10^8 possible draws, the same one
/// thrice in a row is no accident.
#[derive(Default)]
pub(super) struct FreshJitter {
    /// By process and candidacy: the latest delay, and how often it came.
    delays: BTreeMap<(usize, LeaseKey), (Duration, u32)>,
}

impl Invariant for FreshJitter {
    const NAME: &'static str = "jitter is fresh";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::Noticed { member, notice: Notice::Waiting { lease, until, .. }, cause, .. } = fact else {
            return Ok(());
        };
        let Some(Event::Reply { reply: Reply::Held { remaining: Some(remaining), .. }, .. }) = cause else {
            return Ok(());
        };
        let node = &world.members[*member];
        let delay = until.saturating_since(node.heard_at + *remaining);
        let (last, times) = self.delays.entry((node.life, *lease)).or_insert((delay, 0));
        *times = if *last == delay { *times + 1 } else { 1 };
        *last = delay;
        ensure(*times < 3, || {
            format!("node {member} waits the same {delay:?} longer than it must, {times} times in a row")
        })
    }
}
