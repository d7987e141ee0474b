//! Names, identities, tokens and ids.

use alloc::sync::Arc;
use core::fmt;

#[cfg(test)]
mod tests;

/// Makes a type of names; all of them have the same rules.
macro_rules! name {
    ($(#[doc = $says:literal])* $name:ident, $what:literal) => {
        $(#[doc = $says])*
        ///
        /// Names are compared byte by byte: upper and lower case, and the composed and decomposed forms of a
        /// letter, are different names. Cloning shares the text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest name, in bytes. The limit comes from NATS, where a longer subject, once encoded, makes
            /// the server drop the connection.
            pub const MAX_BYTES: usize = 255;

            /// Checks and keeps a name.
            ///
            /// # Errors
            /// [`NameError`] if the text is empty or longer than 255 bytes.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                check_length(name, $what, Self::MAX_BYTES)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<alloc::string::String> for $name {
            type Error = NameError;
            fn try_from(name: alloc::string::String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<&alloc::string::String> for $name {
            type Error = NameError;
            fn try_from(name: &alloc::string::String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }
    };
}

name! {
    /// The name of a lease: any UTF-8 text of 1 to 255 bytes.
    ///
    /// ```
    /// use tenure_core::LeaseName;
    /// let name = LeaseName::new("nightly-backup")?;
    /// assert_eq!(name.as_str(), "nightly-backup");
    /// assert!(LeaseName::new("").is_err());
    /// # Ok::<(), tenure_core::NameError>(())
    /// ```
    LeaseName, "a lease name"
}

name! {
    /// The name of a timer: any UTF-8 text of 1 to 255 bytes. Timers and leases of one name have nothing to do with
    /// each other.
    TimerName, "a timer name"
}

name! {
    /// The name of a job, whose runs are recorded: any UTF-8 text of 1 to 255 bytes.
    JobName, "a job name"
}

/// A name that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    #[error("{what} must not be empty")]
    Empty {
        /// What was being named.
        what: &'static str,
    },
    /// The text is too long.
    #[error("{what} has {bytes} bytes, at most {most} are allowed")]
    TooLong {
        /// What was being named.
        what: &'static str,
        /// The length of the refused text.
        bytes: usize,
        /// The longest text that is accepted.
        most: usize,
    },
    /// A character that this name may not have.
    #[error("{what} must not contain {character:?}")]
    Character {
        /// What was being named.
        what: &'static str,
        /// The first character that is not allowed.
        character: char,
    },
}

fn check_length(text: &str, what: &'static str, most: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty { what }),
        bytes if bytes > most => Err(NameError::TooLong { what, bytes, most }),
        _ => Ok(()),
    }
}

/// 128 bits from the operating system's random source, drawn once per process start.
///
/// A lease belongs to an incarnation, never to an instance's name: a process that was restarted under the
/// same name is a stranger to its predecessor's leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u128);

impl Incarnation {
    /// Wraps 128 random bits. The core draws none by itself.
    #[must_use]
    pub const fn new(random: u128) -> Self {
        Self(random)
    }

    /// The bits.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

/// Who a process is: the name of its instance and its incarnation. Cloning shares the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    instance: Arc<str>,
    incarnation: Incarnation,
}

impl Identity {
    /// The longest instance name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Checks and keeps an instance's name, for example `machine:pid:unique`.
    ///
    /// # Errors
    /// [`NameError`] if the name is empty, longer than 200 bytes, or has a control character: owners are
    /// written on one line.
    pub fn new(instance: impl AsRef<str>, incarnation: Incarnation) -> Result<Self, NameError> {
        let instance = instance.as_ref();
        let what = "an instance name";
        check_length(instance, what, Self::MAX_BYTES)?;
        if let Some(character) = instance.chars().find(|c| c.is_control()) {
            return Err(NameError::Character { what, character });
        }
        Ok(Self { instance: instance.into(), incarnation })
    }

    /// The name of the instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// This start of the process.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The owner of acquisition `n` of this process.
    #[must_use]
    pub fn owner(&self, n: Acquisition) -> Owner {
        Owner { identity: self.clone(), n }
    }

    /// Reads what is written as `{instance}/{incarnation}`; `None` if it is no such text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (instance, incarnation) = text.rsplit_once('/')?;
        let digits = incarnation.len() == 32 && incarnation.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = u128::from_str_radix(incarnation, 16).ok().filter(|_| digits)?;
        Self::new(instance, Incarnation(bits)).ok()
    }
}

/// `{instance}/{incarnation}`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.incarnation)
    }
}

/// Counts the acquisitions of a process: all attempts of one acquisition share the number, the next
/// acquisition has a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acquisition(pub u64);

impl fmt::Display for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The owner of a grant, written `{instance}/{incarnation}.{n}`; the text is what a store keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    identity: Identity,
    n: Acquisition,
}

impl Owner {
    /// The process that owns.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Which of its acquisitions.
    #[must_use]
    pub fn acquisition(&self) -> Acquisition {
        self.n
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.identity, self.n)
    }
}

/// A fencing token: greater than that of every earlier grant of the same lease.
///
/// Hand it to whatever the lease protects and let that refuse a token lower than one it has seen: it is the
/// only protection that also holds for a process that was paused at the wrong moment. Renewing keeps it.
/// Zero is below every token that a store gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Below every token that a store gives.
    pub const ZERO: Self = Self(0);

    /// Wraps a number.
    #[must_use]
    pub const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One candidacy for a lease, and the hold that comes of it, within one [`Node`](crate::Node). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey(pub(crate) u64);

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// One worker within one [`Node`](crate::Node). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey(pub(crate) u64);

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// One timer within one [`Node`](crate::Node). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey(pub(crate) u64);

impl fmt::Display for TimerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer {}", self.0)
    }
}

/// One periodic job within one [`Node`](crate::Node). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeriodicKey(pub(crate) u64);

impl fmt::Display for PeriodicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "periodic {}", self.0)
    }
}

/// One coordinator within one [`Node`](crate::Node). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorKey(pub(crate) u64);

impl fmt::Display for CoordinatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "coordinator {}", self.0)
    }
}

/// The membership of one [`Node`](crate::Node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberKey(pub(crate) u64);

/// The id of a command, to be handed back with its reply. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The machine that sent it.
    pub(crate) machine: u64,
    /// Counts the machine's commands from zero.
    pub(crate) sequence: u64,
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.machine, self.sequence)
    }
}
