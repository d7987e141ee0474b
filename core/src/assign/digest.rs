//! What tells instances of one kind apart from those of another.

use core::fmt;

/// A digest of all that a plan depends on, besides the members: the rule, its parameters, the workloads. Instances count
/// for each other only where theirs agree.
///
/// It is 64-bit FNV-1a (Fowler, Noll, Vo) over the parts, each of which is preceded by its length in eight bytes, the
/// lowest first; the same on every platform, and for programs in other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(u64);

impl Digest {
    /// Wraps a number.
    #[must_use]
    pub const fn new(digest: u64) -> Self {
        Self(digest)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The digest of these parts, in this order.
    #[must_use]
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = FNV_OFFSET;
        for part in parts {
            let length = part.len() as u64;
            hash = fnv(fnv(hash, &length.to_le_bytes()), part.as_bytes());
        }
        Self(hash)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The offset basis and the prime of 64-bit FNV, from its specification.
pub(super) const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// 64-bit FNV-1a of these bytes, after what gave `hash`.
pub(super) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::{Digest, FNV_OFFSET, fnv};

    #[test]
    fn the_hash_gives_the_published_numbers() {
        // From the test vectors of the reference implementation.
        assert_eq!(fnv(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn where_a_part_ends_makes_a_difference() {
        assert_ne!(Digest::of(["ab", "c"]), Digest::of(["a", "bc"]));
        assert_ne!(Digest::of(["a"]), Digest::of(["a", ""]));
        assert_eq!(Digest::of(["a", "b"]), Digest::of(["a", "b"]));
    }
}
