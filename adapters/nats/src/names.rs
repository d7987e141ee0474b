//! The subjects under which records are kept, and those on which hints travel.
//!
//! A name is encoded as `k` and its bytes, where all but letters, digits, `-` and `_` is `=` and two hexadecimal digits.
//! So any text is one token of a subject, and no two texts are the same one.

use std::fmt::Write as _;
use std::sync::Arc;

use tenure_core::{Identity, JobName, LeaseName, TimerName};

/// The subjects of one store.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    bucket: Arc<str>,
}

/// The kinds of records, which are the first token of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lease,
    Timer,
    Job,
    Member,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Timer => "timer",
            Self::Job => "job",
            Self::Member => "member",
        }
    }
}

impl Names {
    pub(crate) fn new(bucket: &Arc<str>) -> Self {
        Self { bucket: Arc::clone(bucket) }
    }

    /// The stream of the bucket.
    pub(crate) fn stream(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    /// All records.
    pub(crate) fn all(&self) -> String {
        format!("$KV.{}.>", self.bucket)
    }

    /// All records of a kind.
    pub(crate) fn all_of(&self, kind: Kind) -> String {
        format!("$KV.{}.{}.>", self.bucket, kind.word())
    }

    pub(crate) fn lease(&self, name: &LeaseName) -> String {
        self.key(Kind::Lease, name.as_str())
    }

    pub(crate) fn timer(&self, name: &TimerName) -> String {
        self.key(Kind::Timer, name.as_str())
    }

    pub(crate) fn job(&self, name: &JobName) -> String {
        self.key(Kind::Job, name.as_str())
    }

    pub(crate) fn member(&self, identity: &Identity) -> String {
        self.key(Kind::Member, &identity.to_string())
    }

    /// The version of the members' view, which is among the members, and none of them: their keys begin with `k`.
    pub(crate) fn version(&self) -> String {
        format!("$KV.{}.member.version", self.bucket)
    }

    /// That this handle waits for a lease.
    pub(crate) fn waiter(&self, name: &LeaseName, handle: &str) -> String {
        format!("$KV.{}.wait.{}.{handle}", self.bucket, encode(name.as_str()))
    }

    /// All who wait for a lease.
    pub(crate) fn waiters(&self, name: &LeaseName) -> String {
        self.waiter(name, "*")
    }

    /// Where it is told what becomes of a lease.
    pub(crate) fn wake(&self, name: &LeaseName) -> String {
        format!("tenure.{}.lease.{}", self.bucket, encode(name.as_str()))
    }

    /// Where a new version of the members' view is told.
    pub(crate) fn wake_members(&self) -> String {
        format!("tenure.{}.members", self.bucket)
    }

    /// All on which hints travel.
    pub(crate) fn wakes(&self) -> String {
        format!("tenure.{}.>", self.bucket)
    }

    /// The name of the lease that a hint is about.
    pub(crate) fn lease_of_wake(&self, subject: &str) -> Option<LeaseName> {
        let rest = subject.strip_prefix("tenure.")?.strip_prefix(&*self.bucket)?.strip_prefix(".lease.")?;
        LeaseName::new(decode(rest)?).ok()
    }

    /// What a record of this kind is about; `None` if it is none of ours.
    pub(crate) fn name_in(&self, kind: Kind, subject: &str) -> Option<String> {
        let rest = subject.strip_prefix("$KV.")?.strip_prefix(&*self.bucket)?.strip_prefix('.')?;
        decode(rest.strip_prefix(kind.word())?.strip_prefix('.')?)
    }

    fn key(&self, kind: Kind, name: &str) -> String {
        format!("$KV.{}.{}.{}", self.bucket, kind.word(), encode(name))
    }
}

fn encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    text.push('k');
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // A text takes whatever is written.
            let _ = write!(text, "={byte:02X}");
        }
    }
    text
}

/// What [`encode`] made; `None` for everything that it does not make.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.strip_prefix('k')?.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            plain => plain,
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name) == text).then_some(name)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_token_and_comes_back() {
        let names = Names::new(&"b".into());
        for name in ["a", "A", "k", "=", "=41", "a.b", "*", ">", " ", "\0", "ä", "日本語", "🦀", "$KV", "-_"]
        {
            let text = encode(name);
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte)),
                "{text}"
            );
            assert_eq!(decode(&text).as_deref(), Some(name));
            let lease = LeaseName::new(name).unwrap();
            assert_eq!(names.name_in(Kind::Lease, &names.lease(&lease)).as_deref(), Some(name));
            assert_eq!(names.name_in(Kind::Timer, &names.lease(&lease)), None);
            assert_eq!(names.lease_of_wake(&names.wake(&lease)), Some(lease));
        }
        let longest = LeaseName::new("é".repeat(127)).unwrap();
        assert!(names.lease(&longest).len() < 1000, "the server takes no control line of 4,096 bytes");
    }

    #[test]
    fn what_is_no_encoded_name_is_none() {
        for text in ["", "a", "=41", "k=4", "k=", "k=zz", "k=+1", "k=41", "k=c3=a4", "k=FF", "ka.b", "ké"] {
            assert_eq!(decode(text), None, "{text}");
        }
        let names = Names::new(&"b".into());
        for subject in ["$KV.b.lease", "$KV.bb.lease.ka", "$KV.b.member.version", "x", "$KV.b.leases.ka"] {
            assert_eq!(names.name_in(Kind::Lease, subject), None, "{subject}");
        }
        assert_eq!(names.name_in(Kind::Member, &names.version()), None);
    }
}
