//! What a test is told that waits in vain.

use std::fmt::Write as _;

use super::{Fleet, Instance};
use crate::wall::Utc;

impl Fleet {
    /// Who waits, what is wrong, and who holds what.
    pub(super) fn report(&self) -> String {
        let mut text = format!("at {}, after {:?}", Utc(self.wall_clock()), self.elapsed());
        if self.server.is_down() {
            text.push_str("\nthe store is down");
        }
        for (name, instance) in &*self.lock() {
            text.push('\n');
            line(&mut text, name, instance);
        }
        for record in self.leases() {
            let (lease, owner) = (record.name.as_str(), record.holder.owner);
            let _ = write!(text, "\nlease {lease:?} is held by {owner}");
            if let Some(remaining) = record.holder.remaining {
                let _ = write!(text, " for {remaining:?} more");
            }
        }
        text
    }
}

fn line(text: &mut String, name: &str, instance: &Instance) {
    let _ = write!(text, "instance {name:?}");
    if instance.crashed {
        text.push_str(" has crashed");
        return;
    }
    for (n, fault) in instance.link.faults().iter().enumerate() {
        let _ = write!(text, "{} {fault}", if n == 0 { " is:" } else { "," });
    }
    let (tasks, origins) = (instance.runtime.tasks(), instance.runtime.origins());
    let _ = write!(text, "; {tasks} of its tasks wait");
    for origin in origins {
        let _ = write!(text, "\n    among them the one that was spawned at {origin}");
    }
}
