use super::{Invariant, ensure};
use crate::simulation::world::{Fact, SECOND, World};

/// Nothing runs hot: what a node hears and emits in a second is bounded.
///
/// Backoff begins at a sixteenth of an attempt's timeout and doubles, so a candidacy cannot try more than some dozen
/// times a second however the store answers; a loop that tries again after a nanosecond shows here at once.
#[derive(Default)]
pub(super) struct Calm {
    /// By place in the fleet: the beginning of its second, and what it did in it.
    seconds: Vec<(u64, u64)>,
}

/// Per node and lease; the busiest honest second of a hundred thousand fleets has a third of it.
const MOST_PER_SECOND: u64 = 600;

impl Invariant for Calm {
    const NAME: &'static str = "nothing runs hot";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::Heard { member, .. }
        | Fact::Emitted { member, .. }
        | Fact::Noticed { member, .. }
        | Fact::WorkerNoticed { member, .. }) = fact
        else {
            return Ok(());
        };
        if self.seconds.len() <= *member {
            self.seconds.resize(world.members.len(), (0, 0));
        }
        let (begin, count) = &mut self.seconds[*member];
        if world.now >= *begin + SECOND {
            (*begin, *count) = (world.now, 0);
        }
        *count += 1;
        ensure(*count <= MOST_PER_SECOND * world.names.len() as u64, || {
            format!("node {member} did {count} things within {} ns", world.now - *begin)
        })
    }
}
