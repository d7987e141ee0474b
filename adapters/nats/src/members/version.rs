//! The version of the members' view.
//!
//! ```json
//! {"v":1,"version":1790000000000123,"digest":"00000000000000ff","next_end":1790000015000000000}
//! ```
//!
//! `digest` is of what others see at this version, by FNV-1a of 64 bits. Until `next_end`, by the server's clock, nobody is
//! gone by time alone who was listed then.

use tenure_core::{Digest, Identity, Instant};
use tenure_store::MemberRecord;

use tenure_json::{Object, Writer};

/// The version of the view, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) digest: u64,
    pub(super) next_end: Instant,
}

impl Version {
    /// Reads it; what can't be read is written anew by whoever looks next.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let object = Object::record(bytes).ok()?;
        let digest = object.text("digest").ok()?;
        Some(Self {
            number: object.whole("version").ok()?,
            digest: u64::from_str_radix(digest, 16).ok()?,
            next_end: object.instant("next_end").ok()?,
        })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let Self { number, digest, next_end } = self;
        Writer::record()
            .field("version", *number)
            .field("digest", format!("{digest:016x}"))
            .field("next_end", next_end.as_nanos())
            .end()
            .into_bytes()
    }
}

/// A digest of what others see of those who are listed, in the order of their identities.
#[derive(Debug)]
pub(super) struct Seen(u64);

impl Seen {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// What is seen of one more.
    pub(super) fn add(&mut self, identity: &Identity, record: &MemberRecord) {
        self.text(&identity.to_string());
        self.number(record.since.as_nanos());
        self.number(record.joined.as_nanos().unsigned_abs());
        self.number(u64::from(record.draining || record.marked));
        self.number(record.digests.len() as u64);
        record.digests.iter().copied().map(Digest::get).for_each(|digest| self.number(digest));
        for (name, value) in record.labels.iter() {
            self.text(name);
            self.text(value);
        }
    }

    pub(super) const fn end(&self) -> u64 {
        self.0
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|byte| self.byte(byte));
    }

    fn number(&mut self, number: u64) {
        number.to_be_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_written_as_documented() {
        let version = Version { number: 5, digest: 255, next_end: Instant::from_nanos(9) };
        let text = r#"{"v":1,"version":5,"digest":"00000000000000ff","next_end":9}"#;
        assert_eq!(String::from_utf8(version.write()).unwrap(), text);
        assert_eq!(Version::read(text.as_bytes()), Some(version));
        assert_eq!(Version::read(b""), None);
    }

    #[test]
    fn the_digest_is_that_of_fnv() {
        let mut seen = Seen::new();
        b"foobar".iter().for_each(|byte| seen.byte(*byte));
        assert_eq!(seen.end(), 0x8594_4171_f739_67e8);
    }
}
