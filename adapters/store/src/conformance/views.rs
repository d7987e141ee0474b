//! What the members of a fleet see of each other, and what an operator makes of them.

use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

use tenure_core::{Identity, Labels};

use super::Harness;
use super::candidate::{long_ttl, run_batch, short_ttl};
use super::instance::{Instance, listed, marks, names, present, the_one, until_gone, view, who};
use super::waiting::Listener;
use crate::{Heartbeat, Hint, Leave, Limits, Metadata, Operation, Store, StoreErrorKind, Topic};

/// A member that is marked drains for all others, and hears of it with its next heartbeat. Its heartbeats don't take the
/// mark away, whatever they say; the operator does. The list tells whether they say that they know of it. Marking it twice is marking it. A member whose record was lost brings its
/// mark back.
pub fn a_mark_to_drain_stays_until_it_is_taken_back<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let operator = h.handle(&store).await;
        let mut member = Instance::new("marked", 1, long_ttl(&store));
        assert_eq!(marks(&operator, "marked", None, true).await, [], "there is nobody yet");
        let before = member.beats(&store).await;
        assert!(!before.drain, "that was about others");
        for _ in 0..2 {
            assert_eq!(marks(&operator, "marked", None, true).await, [member.identity()]);
        }
        for draining in [false, true, false] {
            member.says.draining = draining;
            let presence = member.beats(&store).await;
            assert!(presence.drain && view(&presence)[0].draining, "{presence:?}");
            let entry = the_one(&operator).await;
            assert!(entry.marked && entry.member.draining, "{entry:?}");
            assert!(!entry.knows_mark, "its heartbeats do not say so: {entry:?}");
        }
        member.says.marked = true;
        let version = member.beats(&store).await.version;
        member.says.known = Some(version);
        assert_eq!(member.beats(&store).await.members, None, "others don't see that");
        assert!(the_one(&operator).await.knows_mark);
        (member.says.marked, member.says.known) = (false, None);
        assert_eq!(marks(&operator, "marked", None, false).await, [member.identity()]);
        let presence = member.beats(&store).await;
        assert!(!presence.drain && !view(&presence)[0].draining && !the_one(&store).await.marked);
        member.says.draining = true;
        let presence = member.beats(&store).await;
        assert!(!presence.drain && view(&presence)[0].draining, "its own will is no mark: {presence:?}");

        let mut away = Instance::new("away", 3, short_ttl::<H>(&store));
        member.leaves(&store).await;
        away.beats(&store).await;
        assert_eq!(marks(&operator, "away", None, true).await, [away.identity()]);
        until_gone(h, &store, &away.identity()).await;
        assert_eq!(marks(&operator, "away", None, true).await, [], "it is not listed");
        away.says.marked = true;
        // A store that forgets soon has the mark made again by whoever knows of it.
        if marks(&operator, "away", None, false).await == [away.identity()] {
            assert!(!away.beats(&store).await.drain, "it was taken back while the store remembered it");
        }
        away.leaves(&store).await;
        assert_eq!(marks(&operator, "away", None, false).await, [], "it never comes back");

        let mut lost = Instance::new("lost", 2, long_ttl(&store));
        lost.says.marked = true;
        assert!(lost.beats(&store).await.drain, "only it knows");
        assert_eq!(marks(&operator, "lost", None, false).await, [lost.identity()]);
        assert!(!lost.beats(&store).await.drain, "now the store does");
    });
}

/// A mark names an instance, and so all of its processes, or one of them.
pub fn a_mark_to_drain_concerns_one_process_or_all_of_that_name<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let mut all = [("a", 1), ("a", 2), ("a", 3), ("aa", 1), ("A", 1)]
            .map(|(name, process)| Instance::new(name, process, ttl));
        for one in &mut all {
            one.beats(&store).await;
        }
        let draining = async || -> BTreeSet<Identity> {
            let marked = listed(&store).await.into_iter().filter(|entry| entry.marked);
            marked.map(|entry| entry.member.identity).collect()
        };
        let [first, second, third] = [0, 1, 2].map(|number: usize| all[number].identity());
        assert_eq!(marks(&store, "a", Some(&all[1]), true).await, slice::from_ref(&second));
        assert_eq!(draining().await, [second.clone()].into());
        assert_eq!(
            marks(&store, "a", Some(&all[3]), false).await,
            slice::from_ref(&first),
            "the same number"
        );
        assert_eq!(marks(&store, "a", None, true).await, [first.clone(), second.clone(), third.clone()]);
        assert_eq!(draining().await, [first.clone(), second.clone(), third.clone()].into());
        assert_eq!(marks(&store, "a", Some(&all[0]), false).await, [first]);
        assert_eq!(draining().await, [second, third].into());
        assert_eq!(marks(&store, "b", None, true).await, []);
        assert_eq!(marks(&store, "a", Some(&Instance::new("a", 9, ttl)), true).await, []);
    });
}

/// The version of the view rises when somebody joins, leaves, is gone or comes back, drains or not, is marked or not, or
/// says other digests or labels. It stays with every other heartbeat.
pub fn the_version_rises_with_what_others_see_and_with_nothing_else<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (long, short) = (long_ttl(&store), short_ttl::<H>(&store));
        let mut looks = Instance::new("looks", 1, long);
        let mut version = looks.beats(&store).await.version;
        let mut at = async |rises: bool, what: &str| {
            let next = looks.beats(&store).await.version;
            assert_eq!(next > version, rises, "{what}: {next} after {version}");
            assert!(next >= version, "{what}: {next} after {version}");
            version = next;
        };
        at(false, "a heartbeat").await;
        let mut other = Instance::new("other", 2, long);
        other.beats(&store).await;
        at(true, "a member joined").await;
        other.beats(&store).await;
        other.beats(&store).await;
        at(false, "heartbeats of another").await;
        other.says.metadata.text = Some("for people".into());
        other.says.ttl = long - Duration::from_millis(1);
        other.beats(&store).await;
        at(false, "what others don't see").await;
        other = other.takes_part_in(&[7]);
        other.beats(&store).await;
        at(true, "other digests").await;
        other.says.labels = Labels::new([("zone", "a")]).expect("a short label");
        other.beats(&store).await;
        at(true, "other labels").await;
        other.beats(&store).await;
        at(false, "the same digests and labels").await;
        for draining in [true, false] {
            other.says.draining = draining;
            other.beats(&store).await;
            at(true, "draining or no longer").await;
        }
        for drain in [true, false] {
            marks(&store, "other", None, drain).await;
            at(true, "marked or no longer").await;
            marks(&store, "other", None, drain).await;
            at(false, "marked as it was").await;
        }
        other.leaves(&store).await;
        at(true, "a member left").await;
        other.leaves(&store).await;
        at(false, "it left again").await;
        let mut brief = Instance::new("brief", 3, short);
        brief.beats(&store).await;
        at(true, "a member joined").await;
        until_gone(h, &store, &brief.identity()).await;
        at(true, "a member is gone").await;
        at(false, "it is still gone").await;
        brief.says.ttl = long;
        brief.beats(&store).await;
        at(true, "it came back").await;
    });
}

/// Whoever knows the version is told that nothing has changed, and every other the whole view.
pub fn the_view_is_told_to_whoever_does_not_know_it<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let (mut looks, mut other) = (Instance::new("looks", 1, ttl), Instance::new("other", 2, ttl));
        let old = looks.beats(&store).await.version;
        other.beats(&store).await;
        let new = looks.beats(&store).await.version;
        for unknown in [None, Some(old), Some(0), Some(new + 1), Some(u64::MAX)] {
            looks.says.known = unknown;
            let presence = looks.beats(&store).await;
            assert_eq!((presence.version, who(&presence).len()), (new, 2), "{unknown:?}");
        }
        looks.says.known = Some(new);
        let presence = looks.beats(&store).await;
        assert_eq!((presence.version, &presence.members), (new, &None));
        assert_eq!(present(looks.repeats(&store).await).members, None, "also when it is repeated");
        other.says.draining = true;
        other.beats(&store).await;
        let presence = looks.beats(&store).await;
        assert!(presence.version > new && view(&presence)[1].draining, "{presence:?}");
        looks.says.draining = true;
        looks.says.known = Some(presence.version);
        let presence = looks.beats(&store).await;
        assert!(view(&presence)[0].draining, "its own change is one like any other: {presence:?}");
    });
}

/// Digests, labels and metadata are told as they were said, up to the most and the longest there may be.
pub fn what_members_say_comes_back_unchanged<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let digests: Vec<u64> =
            (0..Heartbeat::MOST_DIGESTS as u64).map(|n| u64::MAX / 64 * n + n % 2).collect();
        let mut most = Instance::new("most", 1, ttl).takes_part_in(&digests);
        let name = |n: usize| format!("{n:02}{}", "ä".repeat(Labels::MAX_NAME_BYTES / 2 - 1));
        let value = |n: usize| format!("{}'\\\"{n:02}", "🦀".repeat(Labels::MAX_VALUE_BYTES / 4 - 2));
        let labels = (0..Labels::MOST).map(|n| (name(n), value(n)));
        most.says.labels = Labels::new(labels).expect("they have the right lengths");
        let text = "two\nlines, \"quoted\" \\ and 🦀";
        let longest = format!("{text}{}", "x".repeat(Metadata::MAX_TEXT_BYTES - text.len()));
        most.says.metadata.host = Some("höst.example".into());
        most.says.metadata.pid = Some(u32::MAX);
        most.says.metadata.text = Some(longest.into());
        let mut odd = Instance::new("odd", 2, ttl).takes_part_in(&[0, 1, u64::MAX]);
        let labels = [(" ", ""), ("a", "=,;:"), ("É", "e\u{301}"), ("\u{200b}", "\u{feff}")];
        odd.says.labels = Labels::new(labels).expect("they are short");
        let mut nothing = Instance::new("nothing", 3, ttl);
        most.beats(&store).await;
        nothing.beats(&store).await;
        odd.beats(&store).await;
        let presence = odd.beats(&h.handle(&store).await).await;
        let entries = listed(&store).await;
        assert_eq!((view(&presence).len(), entries.len()), (3, 3));
        for (member, (entry, said)) in view(&presence).iter().zip(entries.iter().zip([&most, &nothing, &odd]))
        {
            let Heartbeat { identity, digests, labels, metadata, ttl, .. } = &said.says;
            for seen in [member, &entry.member] {
                assert_eq!((&seen.identity, &seen.digests), (identity, digests));
                assert_eq!(&seen.labels, labels, "{identity}");
            }
            assert_eq!((&entry.metadata, &entry.ttl), (metadata, ttl), "{identity}");
            assert_eq!((entry.marked, &entry.problem), (false, &None), "{identity}");
        }
    });
}

/// Any text without control characters that is not too long names an instance, and no two texts name the same one.
pub fn any_name_of_an_instance_is_that_of_a_member<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let long = |end: &str| "x".repeat(Identity::MAX_BYTES - end.len()) + end;
        let texts: BTreeSet<String> = [
            "a",
            "A",
            "aa",
            "0",
            "00",
            "-",
            "_",
            "null",
            "/",
            "a/b",
            "a//b",
            "a/",
            "..",
            "a:b",
            "*",
            ">",
            "a.>",
            "?",
            "{}",
            "{a}b",
            "!",
            "$",
            "=41",
            "%61",
            "%00",
            "\\",
            "'",
            "''",
            "\"",
            "a' OR '1'='1",
            " ",
            "  ",
            " a",
            "a ",
            "\u{e9}",
            "e\u{301}",
            "ß",
            "ss",
            "İ",
            "i",
            "ﬁ",
            "fi",
            "\u{3a9}",
            "\u{2126}",
            "日本語",
            "🦀",
            "\u{feff}",
            "\u{feff}a",
            "\u{200b}",
            "\u{fffd}",
            "\u{10ffff}",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain([long(""), long("y"), long("🦀"), "🦀".repeat(50)])
        .collect();
        let mut members: Vec<Instance> =
            texts.iter().map(|text| Instance::new(text, 1, long_ttl(&store))).collect();
        for member in &mut members {
            member.beats(&store).await;
        }
        let expected: Vec<Identity> = members.iter().map(Instance::identity).collect();
        assert_eq!(names(&store).await, expected, "in the order of their bytes");
        assert_eq!(who(&members[0].beats(&store).await), expected);
        for member in &members {
            assert_eq!(marks(&store, member.says.identity.instance(), None, true).await, [member.identity()]);
        }
    });
}

/// A TTL out of bounds, too many digests, a text that is too long, a number that is too high: all are refused, and
/// nothing is written.
pub fn what_a_member_can_not_say_is_refused<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let Limits { min_ttl, max_ttl, .. } = store.limits();
        let fine = Instance::new("fine", 1, long_ttl(&store)).says;
        let too_long = |bytes| Some("x".repeat(bytes + 1).into());
        let mut metadata = Metadata::new();
        metadata.text = too_long(Metadata::MAX_TEXT_BYTES);
        let most = Heartbeat::MOST_DIGESTS as u64;
        let digests =
            Instance::new("fine", 1, min_ttl).takes_part_in(&(0..=most).collect::<Vec<_>>()).says.digests;
        let grain = Duration::from_millis(1);
        let wrong =
            [Duration::ZERO, min_ttl.saturating_sub(grain), max_ttl.saturating_add(grain), Duration::MAX];
        let mut operations: Vec<Operation> =
            wrong.map(|ttl| Heartbeat { ttl, ..fine.clone() }.into()).into_iter().collect();
        operations.extend([
            Heartbeat { metadata, ..fine.clone() }.into(),
            Heartbeat { digests, ..fine.clone() }.into(),
            Heartbeat { sequence: Heartbeat::HIGHEST_SEQUENCE + 1, ..fine.clone() }.into(),
            Leave { identity: fine.identity.clone(), ttl: Duration::MAX, timeout: fine.timeout }.into(),
        ]);
        for (number, outcome) in run_batch(&store, operations).await.into_iter().enumerate() {
            let error = outcome.expect_err(&format!("operation {number} should be refused"));
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{number}: {error}");
            assert_eq!(error.topic, Some(Topic::from(&fine.identity)), "{number}: {error}");
        }
        assert_eq!(listed(&store).await, [], "nothing was written");
        for ttl in [min_ttl, max_ttl] {
            let mut member = Instance::new(&format!("for {ttl:?}"), 1, ttl);
            member.beats(&store).await;
        }
        let highest = Heartbeat { sequence: Heartbeat::HIGHEST_SEQUENCE, ..fine };
        present(run_batch(&store, vec![highest.into()]).await.remove(0));
    });
}

/// A list is read in pages, sorted by identity, each member once.
pub fn members_are_listed_page_by_page<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut members: Vec<Instance> = (0..20)
            .map(|number| {
                let name = format!("{}{}", ["a", "B", "ä/"][number % 3], number / 6);
                Instance::new(&name, number as u64, long_ttl(&store))
            })
            .collect();
        for member in &mut members {
            member.beats(&store).await;
        }
        let mut identities: Vec<Identity> = members.iter().map(Instance::identity).collect();
        identities.sort();
        for most in [1, 7, 20, 21] {
            let mut found: Vec<Identity> = Vec::new();
            loop {
                let page = store.members(found.last().cloned(), most).await.expect("listing works");
                assert!(page.len() <= most, "at most {most}: {page:?}");
                if page.is_empty() {
                    break;
                }
                found.extend(page.into_iter().map(|entry| entry.member.identity));
                assert!(found.len() <= identities.len(), "each member once: {found:?}");
            }
            assert_eq!(found, identities, "in pages of {most}");
        }
        assert_eq!(store.members(None, 0).await, Ok(Vec::new()));
        let nobody = Instance::new("a", 0, long_ttl(&store)).identity();
        let after = store.members(Some(nobody), 1).await.expect("listing works");
        let first = identities.iter().find(|identity| identity.instance().starts_with('a'));
        assert_eq!(after.first().map(|entry| &entry.member.identity), first, "after one that is none");
    });
}

/// A fleet of a thousand: all are in one view, and in the pages of a list.
pub fn a_thousand_members_see_each_other<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let mut members: Vec<Instance> = (0..1000)
            .map(|number| Instance::new(&format!("{number:04}"), number, ttl).takes_part_in(&[1]))
            .collect();
        let expected: Vec<Identity> = members.iter().map(Instance::identity).collect();
        for batch in members.chunks(store.limits().batch) {
            let beats = batch.iter().map(|member| Operation::Heartbeat(member.says.clone())).collect();
            for outcome in run_batch(&store, beats).await {
                present(outcome);
            }
        }
        let presence = members[500].beats(&h.handle(&store).await).await;
        assert_eq!(who(&presence), expected);
        let mut found: Vec<Identity> = Vec::new();
        while found.len() < expected.len() {
            let page = store.members(found.last().cloned(), 128).await.expect("listing works");
            assert!(!page.is_empty(), "only {} of them are listed", found.len());
            found.extend(page.into_iter().map(|entry| entry.member.identity));
        }
        assert_eq!(found, expected);
    });
}

/// A handle that has sent a heartbeat hears when another member joins, says something else, is marked, leaves, or is
/// found to be gone; it watches nothing for that.
pub fn a_change_of_the_members_reaches_those_who_send_heartbeats<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (long, short) = (long_ttl(&store), short_ttl::<H>(&store));
        let mut listener = Listener::new(h, &store).await;
        let (mut hears, mut other) = (Instance::new("hears", 1, long), Instance::new("other", 2, long));
        let mut version = hears.beats(&listener.store).await.version;
        let mut hint = async |what: &str| {
            listener
                .hears(h, what, |hint| match hint {
                    Hint::Members | Hint::Resync => Some(()),
                    Hint::Lease { .. } => None,
                })
                .await;
            let next = hears.beats(&listener.store).await.version;
            assert!(next > version, "{what}: {next} after {version}");
            version = next;
            listener.drain(h).await;
        };
        other.beats(&store).await;
        hint("a member that joined").await;
        other.says.draining = true;
        other.beats(&store).await;
        hint("a member that drains").await;
        let operator = h.handle(&store).await;
        marks(&operator, "hears", None, true).await;
        hint("its own mark").await;
        other.leaves(&store).await;
        hint("a member that left").await;
        let mut brief = Instance::new("brief", 3, short);
        brief.beats(&store).await;
        hint("another member that joined").await;
        until_gone(h, &store, &brief.identity()).await;
        let mut last = Instance::new("last", 4, long);
        last.beats(&store).await;
        hint("a member that is gone, and one that joined").await;
    });
}
