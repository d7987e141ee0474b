//! Which workload belongs to which instance: pure functions, so that all instances come to the same plan.
//!
//! Assignment is for balance and for liveness. What makes a workload exclusive is the lease beneath it: two instances
//! that see different members for a moment plan differently, and still never work at the same time.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use crate::member::Member;
use crate::name::LeaseName;
use crate::timing::ConfigError;

mod balanced;
mod digest;
mod primary;
mod rendezvous;
#[cfg(test)]
mod tests;

pub use balanced::Balanced;
pub use digest::Digest;
pub use primary::Primary;
pub use rendezvous::Rendezvous;

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

/// Any [`Assigner`]. Cloning shares it; two are equal if their texts are. The default is [`Rendezvous`].
///
/// Those of this crate can be written as text, for the settings of a program:
///
/// | | [`Balanced`] | [`Primary`] | [`Rendezvous`] | `Rendezvous::unbounded()` |
/// |---|---|---|---|---|
/// | text | `balanced` | `primary` | `rendezvous` | `rendezvous-unbounded` |
/// | an instance has at most | its share, rounded up | everything | 1.25 × its share, rounded up | what falls to it |
/// | a join or a leave moves | many | nothing, or everything; all comes back to an eldest that returns | few more than the least possible | the least possible |
/// | choose it | for few workloads, or when each of them fills an instance | for a main instance and spare ones | unless there is a reason for another | when a move is dear and load is not |
///
/// ```
/// use tenure_core::{AnyAssigner, Primary, Rendezvous};
/// assert_eq!("primary".parse::<AnyAssigner>()?, Primary.into());
/// assert_eq!(AnyAssigner::default(), Rendezvous::new().into());
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct AnyAssigner(Arc<dyn Assigner>);

impl AnyAssigner {
    /// The texts of this crate's assigners, the default first.
    pub const NAMES: [&str; 4] = ["rendezvous", "rendezvous-unbounded", "balanced", "primary"];

    /// Shares a rule.
    #[must_use]
    pub fn new(assigner: impl Assigner + 'static) -> Self {
        Self(Arc::new(assigner))
    }
}

/// The default of a coordinator: [`Rendezvous::new`].
impl Default for AnyAssigner {
    fn default() -> Self {
        Self::new(Rendezvous::new())
    }
}

/// Reads the text of one of this crate's assigners, one of [`AnyAssigner::NAMES`].
///
/// # Errors
/// [`ConfigError`] names the text, and all that would do.
impl FromStr for AnyAssigner {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "rendezvous" => Ok(Rendezvous::new().into()),
            "rendezvous-unbounded" => Ok(Rendezvous::unbounded().into()),
            "balanced" => Ok(Balanced.into()),
            "primary" => Ok(Primary.into()),
            _ => {
                let rule = format!("must be one of {}", Self::NAMES.join(", "));
                Err(ConfigError::new("assigner", format!("{text:?}"), rule))
            }
        }
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
