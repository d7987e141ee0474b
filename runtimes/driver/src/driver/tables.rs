//! What the driver keeps in tables of its own about what the node has.

use super::Driver;
use crate::runtime::Runtime;

impl<R: Runtime> Driver<R> {
    /// Entries that have outlived what they are about, by their table. All are none, whenever it rests: it would grow for
    /// as long as the program lives.
    pub(super) fn left_over(&self) -> Option<[(&'static str, usize); 7]> {
        if !self.node.is_empty() || self.carrier.len() > 0 || self.records.len() > 0 {
            return None;
        }
        let tables = [
            ("leases", self.entries.entries()),
            ("workers", self.workers.entries()),
            ("timers", self.timers.entries()),
            ("periodic jobs", self.periodics.entries()),
            ("coordinators", self.coordinators.entries()),
            ("records", self.records.entries()),
            ("requests", self.carrier.entries()),
        ];
        tables.iter().any(|(_, entries)| *entries > 0).then_some(tables)
    }
}
