//! Without the feature `metrics`: nothing is recorded.

use std::time::Duration;

use crate::stats::Stats;
use tenure_store::OperationKind;

/// Records nothing.
pub(crate) struct Metrics;

#[expect(clippy::unused_self, reason = "they do something with the feature")]
impl Metrics {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) const fn acquired(&self, _is_lease: bool, _waited: Duration) {}

    pub(crate) const fn renewed(&self, _took: Duration) {}

    pub(crate) const fn released(&self, _is_lease: bool, _outcome: &str, _held: Duration) {}

    pub(crate) const fn lost(&self, _is_lease: bool, _reason: &str, _held: Duration) {}

    pub(crate) const fn ticked(&self, _late: Duration) {}

    pub(crate) const fn missed(&self, _reason: &str, _count: u64) {}

    pub(crate) const fn dropped(&self, _reason: &str) {}

    pub(crate) const fn answered(&self, _what: OperationKind, _took: Duration, _failed: bool) {}

    pub(crate) const fn publish(&mut self, _stats: &Stats) {}

    pub(crate) const fn end(&mut self) {}
}
