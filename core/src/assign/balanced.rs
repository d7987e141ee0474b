//! Blocks of even size.

use alloc::vec::Vec;

use super::Assigner;
use crate::member::Member;
use crate::name::LeaseName;

/// Slices the workloads, sorted by name, into blocks of even size: one block for each instance, in the order in which
/// they joined. What remains goes to the earliest, one each.
///
/// **Guarantees** that no instance has more than one workload more than another. When a second instance joins, it takes
/// exactly the second half.
///
/// **What moves**: a change of the members shifts the blocks. A third instance that joins with twelve workloads moves six,
/// of which two go from the first to the second; in a large fleet about half of all workloads move.
/// [`Rendezvous`](super::Rendezvous) moves few more than it must.
///
/// **Cost**: the number of workloads.
///
/// Choose it for few workloads, or where each of them fills a good part of an instance; not where a move is dear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "it has no parameters")]
pub struct Balanced;

impl Assigner for Balanced {
    fn text(&self) -> &'static str {
        "balanced"
    }

    fn assign(&self, workloads: &[LeaseName], members: &[Member]) -> Vec<Option<usize>> {
        let Some(each) = workloads.len().checked_div(members.len()) else { return Vec::new() };
        let longer = workloads.len() % members.len();
        let blocks = (0..members.len()).map(|member| (member, each + usize::from(member < longer)));
        blocks.flat_map(|(member, size)| (0..size).map(move |_| Some(member))).collect()
    }
}
