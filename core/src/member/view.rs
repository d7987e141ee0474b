//! What the instances of a fleet see of each other.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use crate::assign::Digest;
use crate::name::Identity;
use crate::time::Timestamp;
use crate::timing::ConfigError;

/// An instance that is alive, as the store sees it: its last heartbeat was less than its TTL ago.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Member {
    /// Who it is. Two processes of one instance name are two members.
    pub identity: Identity,
    /// When it joined, by the store's wall clock. It never changes.
    pub joined: Timestamp,
    /// For how long it has been here without a break, by the store's clock, when the view was made.
    pub age: Duration,
    /// Whether it drains, by its own will or by an operator's.
    pub draining: bool,
    /// The kinds of plans that it takes part in; sorted, each once.
    pub digests: Arc<[Digest]>,
    /// What its program says of it.
    pub labels: Labels,
}

impl Member {
    /// A member that takes part in no plan, has no labels, does not drain, and has only just come.
    #[must_use]
    pub fn new(identity: Identity, joined: Timestamp) -> Self {
        let digests = Arc::from([]);
        Self { identity, joined, age: Duration::ZERO, draining: false, digests, labels: Labels::default() }
    }
}

/// The store's answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Presence {
    /// When this instance joined, by the store's wall clock.
    pub joined: Timestamp,
    /// Whether an operator wants it to drain.
    pub drain: bool,
    /// The version of the view: it rises with each change of the members or of what they say, and with nothing else.
    pub version: u64,
    /// All members, this one among them, sorted by identity; `None` if the asker knows this version.
    pub members: Option<Arc<[Member]>>,
}

impl Presence {
    /// An answer with a view; its members are put in order.
    #[must_use]
    pub fn new(joined: Timestamp, version: u64, members: impl IntoIterator<Item = Member>) -> Self {
        let mut members: alloc::vec::Vec<_> = members.into_iter().collect();
        members.sort_by(|one, other| one.identity.cmp(&other.identity));
        Self { joined, drain: false, version, members: Some(members.into()) }
    }

    /// An answer without one: the asker knows this version.
    #[must_use]
    pub const fn unchanged(joined: Timestamp, version: u64) -> Self {
        Self { joined, drain: false, version, members: None }
    }
}

/// What a program says of its instance: names and values, for its own assigners and for operators. Cloning shares them.
///
/// ```
/// use tenure_core::Labels;
/// let labels = Labels::new([("zone", "a"), ("build", "1.4.2")])?;
/// assert_eq!(labels.get("zone"), Some("a"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Option<Arc<BTreeMap<Arc<str>, Arc<str>>>>);

impl Labels {
    /// The most labels of an instance: each of them travels to every other one.
    pub const MOST: usize = 16;
    /// The longest name, in bytes.
    pub const MAX_NAME_BYTES: usize = 64;
    /// The longest value, in bytes.
    pub const MAX_VALUE_BYTES: usize = 255;

    /// Checks and keeps labels. Of two with the same name the later counts.
    ///
    /// # Errors
    /// [`ConfigError`] if there are more than 16, a name is empty or longer than 64 bytes, a value is longer than 255, or
    /// one of them has control characters.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        labels: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigError> {
        let mut kept = BTreeMap::new();
        for (name, value) in labels {
            let (name, value) = (name.as_ref(), value.as_ref());
            if name.is_empty() || name.len() > Self::MAX_NAME_BYTES {
                let rule = format!("must have 1 to {} bytes", Self::MAX_NAME_BYTES);
                return Err(ConfigError::new("the name of a label", quoted(name), rule));
            }
            if value.len() > Self::MAX_VALUE_BYTES {
                let most = Self::MAX_VALUE_BYTES;
                let rule =
                    format!("must have at most {most} bytes, not {}, in label {}", value.len(), quoted(name));
                return Err(ConfigError::new("the value of a label", quoted(value), rule));
            }
            // Operators read them in a terminal.
            if name.chars().any(char::is_control) {
                let rule = "must have no control characters".into();
                return Err(ConfigError::new("the name of a label", quoted(name), rule));
            }
            if value.chars().any(char::is_control) {
                let rule = format!("must have no control characters, in label {}", quoted(name));
                return Err(ConfigError::new("the value of a label", quoted(value), rule));
            }
            kept.insert(Arc::from(name), Arc::from(value));
            if kept.len() > Self::MOST {
                let rule = format!("must be at most {}", Self::MOST);
                return Err(ConfigError::new(
                    "the number of labels",
                    format!("more than {}", Self::MOST),
                    rule,
                ));
            }
        }
        Ok(Self((!kept.is_empty()).then(|| Arc::new(kept))))
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(AsRef::as_ref)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|labels| labels.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// A text in quotes, as much of it as a message has room for; control characters are escaped.
fn quoted(text: &str) -> String {
    /// In characters.
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}
