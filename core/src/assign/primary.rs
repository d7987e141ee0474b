//! Everything in one place.

use alloc::vec;
use alloc::vec::Vec;

use super::Assigner;
use crate::member::Member;
use crate::name::LeaseName;

/// Gives all workloads to the instance that joined earliest; the others stand by. An instance that joins later takes
/// nothing away.
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
