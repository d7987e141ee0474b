//! The hash tags of a Cluster: which of them a name has, and in which slot it lies.
//!
//! Whatever one script touches must lie in one slot, so all keys that belong together have one tag in braces. With 64
//! tags there are as few places as many leases can be renewed together, and enough of them for a large Cluster: one in the
//! middle of each 64th of the slots, so that they are spread evenly over its nodes however the slots are divided.

/// Which of the [`TAGS`] a key has. A server alone has just the first route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Route(u8);

/// How many slots a Cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// How many of them there are for each tag.
const SPAN: u16 = SLOTS / TAGS.len() as u16;

/// The tags. That of place n lies in one of the slots 256 n to 256 n + 255. They are part of the layout and never change.
pub(crate) const TAGS: [&str; 64] = [
    "mm", "ry", "9i", "e8", "v1", "qt", "ap", "ax", "tb", "kv", "dn", "df", "wo", "o6", "gc", "xw", //
    "8g", "d6", "lc", "02", "g3", "pk", "on", "pz", "99", "zt", "ul", "m5", "fm", "yy", "va", "iu", //
    "si", "k0", "ce", "8y", "pd", "op", "x9", "x1", "jf", "ur", "zj", "b3", "ik", "q2", "yg", "fs", //
    "bk", "z2", "rg", "ms", "af", "an", "qj", "i3", "c5", "dp", "kh", "0t", "xi", "xa", "he", "44",
];

impl Route {
    /// The route of what there is one of in the whole store, and of everything where a server is alone.
    pub(crate) const FIRST: Self = Self(0);

    /// The route of a name in a Cluster: the tag whose 256 slots are those among which the name itself would be, taken as
    /// a key without braces.
    pub(crate) const fn of(name: &str) -> Self {
        Self((slot(name.as_bytes()) / SPAN) as u8)
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..TAGS.len()).map(|place| Self(place as u8))
    }

    /// Its place among all.
    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn tag(self) -> &'static str {
        TAGS[self.place()]
    }

    /// The slot of all its keys.
    pub(crate) const fn slot(self) -> u16 {
        slot(self.tag().as_bytes())
    }
}

/// The slot of a key, or of what stands in its braces: CRC-16/XMODEM, as the specification of Redis Cluster says.
const fn slot(key: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    let mut at = 0;
    while at < key.len() {
        crc ^= (key[at] as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        at += 1;
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Route, SPAN, TAGS, slot};

    #[test]
    fn the_slot_is_that_of_the_specification() {
        // The check value of CRC-16/XMODEM is 0x31c3, and the slot of "foo" stands in the documentation of Redis.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn one_tag_lies_in_the_middle_of_each_span_of_slots() {
        for (place, route) in Route::all().enumerate() {
            assert_eq!(route.place(), place);
            let within = route.slot() - place as u16 * SPAN;
            assert!((SPAN / 2).abs_diff(within) <= 20, "{} is at {within}", route.tag());
            assert!(route.tag().bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        }
        assert_eq!(TAGS.iter().collect::<BTreeSet<_>>().len(), 64);
    }

    #[test]
    fn the_tag_of_a_name_stays_what_it_is() {
        // For programs in other languages, and so that no version of this one looks elsewhere.
        let tags = ["", "a", "foo", "123456789", "reports", "Käse", "{user}:1", "a:b{c}d"]
            .map(|n| Route::of(n).tag());
        assert_eq!(tags, ["mm", "xi", "fs", "z2", "g3", "pk", "02", "ms"]);
    }

    #[test]
    fn names_that_are_alike_are_spread_over_all_tags() {
        for pattern in ["lease-", "tenant/7/", "{braced}:", "lease-000"] {
            let mut counts = [0; 64];
            for number in 0..6_400 {
                counts[Route::of(&format!("{pattern}{number}")).place()] += 1;
            }
            assert!(counts.iter().all(|count| (60..=140).contains(count)), "{pattern}: {counts:?}");
        }
    }
}
