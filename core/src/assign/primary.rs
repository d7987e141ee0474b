//! Everything in one place.

use alloc::vec;
use alloc::vec::Vec;

use super::Assigner;
use crate::member::Member;
use crate::name::LeaseName;

/// Gives all workloads to the instance that joined earliest; the others stand by.
///
/// **Guarantees** that all workloads have one owner, and that an instance that joins later takes nothing away.
///
/// **What moves**: everything when the owner leaves, drains or freezes past its member TTL, to the next one; and
/// everything back when that process returns or its drain is undone. Otherwise nothing.
///
/// **Cost**: the number of workloads.
///
/// Choose it where the workloads belong together, or where one machine is to do the work and others are spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "it has no parameters")]
pub struct Primary;

impl Assigner for Primary {
    fn text(&self) -> &'static str {
        "primary"
    }

    fn assign(&self, workloads: &[LeaseName], _members: &[Member]) -> Vec<Option<usize>> {
        vec![Some(0); workloads.len()]
    }
}
