//! A digest of a state: what the searcher keeps instead of it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Sixty-four bits, the same on every platform. Among ten million states two share one with a probability of three
/// in a million; one of them would then not be searched.
pub(super) fn digest(state: &impl Hash) -> u64 {
    let mut folded = Folded(0);
    state.hash(&mut folded);
    folded.finish()
}

/// A set of digests.
pub(super) type Digests = HashSet<u64, BuildHasherDefault<Taken>>;
/// What is known of a state, by its digest.
pub(super) type ByDigest<T> = HashMap<u64, T, BuildHasherDefault<Taken>>;

/// A folded multiplication for each word.
struct Folded(u64);

impl Folded {
    fn word(&mut self, word: u64) {
        let product =
            u128::from(self.0.rotate_left(23) ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.word(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.word(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    fn write_u128(&mut self, number: u128) {
        self.word(number as u64);
        self.word((number >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.word(number as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.word(0xe703_7ed1_a0b4_28db);
        last.0
    }
}

/// A digest is as good as any hash of it.
#[derive(Default)]
pub(super) struct Taken(u64);

impl Hasher for Taken {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests are hashed")
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
