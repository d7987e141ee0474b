//! Which workload belongs to which instance: pure functions, so that all instances come to the same plan.
//!
//! Assignment is for balance and for liveness. What makes a workload exclusive is the lease beneath it: two instances
//! that see different members for a moment plan differently, and still never work at the same time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::member::Member;
use crate::name::LeaseName;

mod balanced;
mod digest;
mod primary;

pub use balanced::Balanced;
pub use digest::Digest;
pub use primary::Primary;

/// A rule that says which instance a workload belongs to.
///
/// It must be a pure function: every instance that sees the same workloads and members has to come to the same plan,
/// on every platform (so no floating point, and no hash that changes between versions of a library).
///
/// ```
/// use tenure_core::{Assigner, LeaseName, Member};
///
/// /// Each workload to the instances in turn.
/// #[derive(Debug)]
/// struct RoundRobin;
///
/// impl Assigner for RoundRobin {
///     fn text(&self) -> &str {
///         "round-robin"
///     }
///
///     fn assign(&self, workloads: &[LeaseName], members: &[Member]) -> Vec<Option<usize>> {
///         (0..workloads.len()).map(|index| index.checked_rem(members.len())).collect()
///     }
/// }
/// ```
pub trait Assigner: fmt::Debug + Send + Sync {
    /// The rule and its parameters as text. Instances whose rules have different texts don't count for each other.
    fn text(&self) -> &str;

    /// For each workload the place of its instance among the members, or `None` for nobody. What is missing, or names a
    /// place that there is not, is nobody's either.
    ///
    /// The workloads are sorted by name, each is there once. The members are sorted by when they joined, then by
    /// [`Identity`](crate::Identity); there is at least one, and none of them drains.
    fn assign(&self, workloads: &[LeaseName], members: &[Member]) -> Vec<Option<usize>>;
}

/// Any [`Assigner`]. Cloning shares it; two are equal if their texts are.
#[derive(Clone)]
pub struct AnyAssigner(Arc<dyn Assigner>);

impl AnyAssigner {
    /// Shares a rule.
    #[must_use]
    pub fn new(assigner: impl Assigner + 'static) -> Self {
        Self(Arc::new(assigner))
    }
}

impl<A: Assigner + 'static> From<A> for AnyAssigner {
    fn from(assigner: A) -> Self {
        Self::new(assigner)
    }
}

impl core::ops::Deref for AnyAssigner {
    type Target = dyn Assigner;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for AnyAssigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for AnyAssigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl PartialEq for AnyAssigner {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for AnyAssigner {}

impl Hash for AnyAssigner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}
