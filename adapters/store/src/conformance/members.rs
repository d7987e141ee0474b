//! What the members of a fleet see of each other.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{Identity, Labels, Member, TimerName};

use super::Harness;
use super::candidate::{Candidate, lease, long_ttl, run_batch, short_ttl, timing};
use super::claimant::{ask, read, request};
use super::instance::{
    Instance, LONG_AGO, is_refused, listed, marks, names, present, the_one, until_gone, view, who,
};
use super::waiting::Listener;
use crate::{
    Answer, Heartbeat, Hint, Leave, Limits, Metadata, Operation, Renewed, Store, StoreErrorKind, TimerAct,
    Topic,
};

/// Whoever sends a heartbeat is in its own view, in those of others, and in the list, with the same time of joining.
pub fn who_sends_heartbeats_is_a_member_for_all_handles<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let other = h.handle(&store).await;
        assert_eq!(listed(&store).await, [], "there is nobody yet");
        let ttl = long_ttl(&store);
        let (mut a, mut b) = (Instance::new("a", 1, ttl), Instance::new("b", 2, ttl));
        let first = b.beats(&store).await;
        assert_eq!(who(&first), [b.identity()], "it sees itself");
        assert_eq!(view(&first)[0].joined, first.joined);
        assert!(!first.drain);
        h.pass(Duration::from_millis(2)).await;
        let second = a.beats(&other).await;
        assert_eq!(who(&second), [a.identity(), b.identity()], "sorted by identity");
        assert!(second.joined > first.joined, "{second:?} joined after {first:?}");
        let third = b.beats(&store).await;
        assert_eq!(who(&third), [a.identity(), b.identity()]);
        let joined = |members: &[Member]| members.iter().map(|member| member.joined).collect::<Vec<_>>();
        assert_eq!(joined(view(&third)), [second.joined, first.joined]);
        for handle in [&store, &other] {
            let entries = listed(handle).await;
            let members: Vec<Member> = entries.into_iter().map(|entry| entry.member).collect();
            assert_eq!(joined(&members), [second.joined, first.joined], "{members:?}");
        }
    });
}

/// A member that is not heard of for its TTL, by the store's clock, is in no view and no list, though nobody does
/// anything for it; and others are as they were.
pub fn a_member_is_gone_once_its_ttl_is_over<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (mut stays, mut goes) =
            (Instance::new("stays", 1, long_ttl(&store)), Instance::new("goes", 2, short_ttl::<H>(&store)));
        stays.beats(&store).await;
        goes.beats(&store).await;
        let before = stays.beats(&store).await;
        until_gone(h, &store, &goes.identity()).await;
        stays.says.known = Some(before.version);
        let after = stays.beats(&store).await;
        assert!(after.version > before.version, "{after:?}, after {before:?}");
        assert_eq!(who(&after), [stays.identity()]);
        assert_eq!(names(&store).await, [stays.identity()]);
    });
}

/// As long as another process may rely on it (TTL, less the drift of the clocks, the store's grain and its steps, counted
/// from before the heartbeat was sent) a member is listed. Each heartbeat begins that anew.
pub fn no_member_is_gone_before_its_ttl_is_over<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = short_ttl::<H>(&store);
        let valid_for = timing(&store, ttl).valid_for();
        for number in 0..20 {
            let mut member = Instance::new("in time", number, ttl);
            let first = h.now();
            member.beats(&store).await;
            h.pass(ttl / 2).await;
            let sent = h.now();
            // Otherwise it may have been gone for a moment, on a machine that is slow.
            let in_time = sent.saturating_since(first) < valid_for;
            member.beats(&store).await;
            let gone = until_gone(h, &store, &member.identity()).await;
            let after = gone.saturating_since(sent);
            assert!(after >= valid_for, "gone {after:?} after its heartbeat, it may count on {valid_for:?}");
            if in_time {
                return;
            }
        }
        panic!("no heartbeat came in time: use a longer Harness::TTL than {ttl:?}");
    });
}

/// The time of joining is the store's, given once: heartbeats, also with another time, and a gap don't change it. A store
/// that has no record of the process takes over what it says.
pub fn when_a_member_joined_is_written_once_and_adopted_if_it_was_lost<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut member = Instance::new("kept", 1, short_ttl::<H>(&store));
        let joined = member.beats(&store).await.joined;
        for claimed in [None, Some(LONG_AGO), Some(joined)] {
            h.pass(Duration::from_millis(2)).await;
            member.says.joined = claimed;
            assert_eq!(member.beats(&store).await.joined, joined, "{claimed:?}");
        }
        until_gone(h, &store, &member.identity()).await;
        let back = member.beats(&store).await;
        assert_eq!((back.joined, view(&back)[0].joined), (joined, joined), "after a gap");

        let mut lost = Instance::new("lost", 2, long_ttl(&store));
        lost.says.joined = Some(LONG_AGO);
        let presence = lost.beats(&store).await;
        assert_eq!(presence.joined, LONG_AGO, "the store knows nothing of it");
        let seen = view(&presence).iter().find(|member| member.identity == lost.identity());
        assert_eq!(seen.map(|member| member.joined), Some(LONG_AGO));
    });
}

/// The age is the time without a gap, by the store's clock of expiry. Whoever was gone begins anew, though it is the same
/// process.
pub fn the_age_of_a_member_rises_and_begins_anew_after_a_gap<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = short_ttl::<H>(&store);
        let (mut old, mut other) =
            (Instance::new("old", 1, long_ttl(&store)), Instance::new("short", 2, ttl));
        let begun = h.now();
        old.beats(&store).await;
        other.beats(&store).await;
        h.pass(ttl / 2).await;
        let presence = old.beats(&store).await;
        let now = h.now();
        let ages = |presence: &crate::core::Presence| -> Vec<Duration> {
            view(presence).iter().map(|member| member.age).collect()
        };
        let bounds = |age: Duration, since| age + ttl / 10 >= ttl / 2 && age <= since + ttl / 10;
        let since = now.saturating_since(begun);
        assert!(ages(&presence).into_iter().all(|age| bounds(age, since)), "{presence:?}, after {since:?}");

        until_gone(h, &store, &other.identity()).await;
        let back = h.now();
        other.beats(&store).await;
        let presence = old.beats(&store).await;
        let now = h.now();
        let [of_old, of_other] = ages(&presence)[..] else { panic!("{presence:?}") };
        assert!(of_old > ttl / 2, "{presence:?}");
        assert!(of_other <= now.saturating_since(back) + ttl / 10, "it is new here: {presence:?}");
    });
}

/// A heartbeat that is not later than the last one says nothing that counts, and is answered all the same: its process
/// may wait for that.
pub fn a_heartbeat_that_is_late_or_repeated_changes_nothing<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut member = Instance::new("late", 1, long_ttl(&store)).takes_part_in(&[1]);
        member.says.metadata.text = Some("now".into());
        for _ in 0..3 {
            member.beats(&store).await;
        }
        let before = member.beats(&store).await;
        let mut late = member.clone().takes_part_in(&[2]);
        (late.says.draining, late.says.metadata.text) = (true, Some("then".into()));
        late.says.labels = Labels::new([("late", "yes")]).expect("a short label");
        for sequence in [4, 3, 1, 0] {
            let answer = present(late.is_late(&store, sequence).await);
            assert_eq!((answer.joined, answer.version), (before.joined, before.version), "number {sequence}");
            let entry = the_one(&store).await;
            assert_eq!((entry.member.draining, entry.member.labels.is_empty()), (false, true), "{entry:?}");
            assert_eq!(
                (&entry.member.digests, &entry.metadata),
                (&member.says.digests, &member.says.metadata)
            );
        }
        late.says.sequence = 4;
        let next = late.beats(&store).await;
        assert!(
            next.version > before.version && the_one(&store).await.member.draining,
            "the next one counts"
        );
    });
}

/// A heartbeat that is repeated, or comes after a later one, does not begin the TTL anew; and once the TTL is over it
/// brings nobody back.
pub fn a_heartbeat_that_is_late_or_repeated_extends_nothing<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = short_ttl::<H>(&store);
        let mut member = Instance::new("not extended", 1, ttl);
        member.beats(&store).await;
        member.beats(&store).await;
        let limit = h.now() + timing(&store, ttl).outlived_after() * 4;
        let mut refused = false;
        while !refused {
            assert!(h.now() < limit, "it is still listed");
            h.pass(ttl / 8).await;
            for sequence in [1, 2] {
                refused |= member.is_late(&store, sequence).await.is_err();
            }
        }
        is_refused(member.repeats(&store).await, "its time is over");
        assert_eq!(names(&store).await, [], "late ones bring nobody back");
        member.beats(&store).await;
        assert_eq!(names(&store).await, [member.identity()], "a new one does");
    });
}

/// Who has left is gone at once, and for the TTL no heartbeat brings it back, not even one with a higher number. To leave
/// twice is to leave.
pub fn who_has_left_is_not_brought_back_by_a_late_heartbeat<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let (mut goes, mut stays) = (Instance::new("goes", 1, ttl), Instance::new("stays", 2, ttl));
        goes.beats(&store).await;
        let before = stays.beats(&store).await;
        goes.leaves(&store).await;
        let after = stays.beats(&h.handle(&store).await).await;
        assert_eq!(who(&after), [stays.identity()]);
        assert!(after.version > before.version);
        is_refused(goes.repeats(&store).await, "it has left");
        goes.leaves(&store).await;
        for sequence in [1, 2, 1000] {
            is_refused(goes.is_late(&store, sequence).await, "it has left");
        }
        let end = stays.beats(&store).await;
        assert_eq!((who(&end), end.version), (vec![stays.identity()], after.version));
    });
}

/// A process may leave before its first heartbeat has come: that one comes late, too.
pub fn who_left_unseen_is_not_brought_in_by_a_late_heartbeat<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut stays = Instance::new("stays", 2, long_ttl(&store));
        let before = stays.beats(&store).await;
        let unseen = Instance::new("goes", 1, long_ttl(&store));
        unseen.leaves(&store).await;
        is_refused(unseen.repeats(&store).await, "it has left");
        let after = stays.beats(&store).await;
        assert_eq!((who(&after), after.version), (vec![stays.identity()], before.version), "nobody saw it");
    });
}

/// A member that is marked drains for all others, and hears of it with its next heartbeat. Its heartbeats don't take the
/// mark away, whatever they say; the operator does. Marking it twice is marking it.
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
        }
        assert_eq!(marks(&operator, "marked", None, false).await, [member.identity()]);
        let presence = member.beats(&store).await;
        assert!(!presence.drain && !view(&presence)[0].draining && !the_one(&store).await.marked);
        member.says.draining = true;
        let presence = member.beats(&store).await;
        assert!(!presence.drain && view(&presence)[0].draining, "its own will is no mark: {presence:?}");
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
        assert_eq!(marks(&store, "a", Some(&all[1]), true).await, [second.clone()]);
        assert_eq!(draining().await, [second.clone()].into());
        assert_eq!(marks(&store, "a", Some(&all[3]), false).await, [first.clone()], "the same number");
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

/// A process that was started again under its name is another member; the former one stays until its time is over, or
/// it leaves.
pub fn two_processes_of_one_name_are_two_members<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let (mut before, mut after) = (Instance::new("one", 1, ttl), Instance::new("one", 2, ttl));
        before.says.draining = true;
        let joined = before.beats(&store).await.joined;
        h.pass(Duration::from_millis(2)).await;
        let presence = after.beats(&store).await;
        assert_eq!(who(&presence), [before.identity(), after.identity()]);
        assert!(presence.joined > joined);
        let draining: Vec<bool> = view(&presence).iter().map(|member| member.draining).collect();
        assert_eq!(draining, [true, false], "each says so for itself");
        before.leaves(&store).await;
        assert_eq!(who(&after.beats(&store).await), [after.identity()]);
        is_refused(before.repeats(&store).await, "it has left");
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
        let value = |n: usize| format!("{}\0\n\"{n:02}", "🦀".repeat(Labels::MAX_VALUE_BYTES / 4 - 2));
        let labels = (0..Labels::MOST).map(|n| (name(n), value(n)));
        most.says.labels = Labels::new(labels).expect("they have the right lengths");
        let text = "two\nlines, \"quoted\" \\ and 🦀";
        let longest = format!("{text}{}", "x".repeat(Metadata::MAX_TEXT_BYTES - text.len()));
        most.says.metadata.host = Some("höst.example".into());
        most.says.metadata.pid = Some(u32::MAX);
        most.says.metadata.text = Some(longest.into());
        let mut odd = Instance::new("odd", 2, ttl).takes_part_in(&[0, 1, u64::MAX]);
        let labels = [(" ", ""), ("a", "=,;:"), ("É", "e\u{301}"), ("\0", "\0\0")];
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

/// What is done with a member does nothing to a lease and a timer of its name, and the other way round.
pub fn a_member_and_what_has_the_same_name_are_distinct<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let timer = TimerName::new("same").expect("a short name");
        let holder = Candidate::new(&lease("same"), 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        let (view, _) = read(&store, &timer, Some(5)).await;
        assert_eq!(names(&store).await, []);
        let mut member = Instance::new("same", 1, long_ttl(&store));
        member.beats(&store).await;
        assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
        member.leaves(&store).await;
        assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
        assert_eq!(read(&store, &timer, None).await.0.base, view.base);
        let mut member = Instance::new("same", 2, long_ttl(&store));
        member.beats(&store).await;
        holder.gives_back(&store, token).await;
        ask(&store, request(&timer, TimerAct::Forget)).await;
        assert_eq!(names(&store).await, [member.identity()]);
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

/// Operations on one member are carried out in the order of the batch, whatever stands between them.
pub fn operations_on_one_member_keep_their_order<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let member = Instance::new("in order", 1, ttl).says;
        let beat =
            |sequence, draining| Operation::Heartbeat(Heartbeat { sequence, draining, ..member.clone() });
        let leave = Leave { identity: member.identity.clone(), ttl, timeout: member.timeout };
        let other = |number| Candidate::new(&lease("between"), number, 0, ttl).acquire().into();
        let batch = vec![
            beat(1, false),
            other(1),
            beat(2, true),
            other(2),
            beat(3, false),
            leave.into(),
            beat(4, true),
        ];
        let mut outcomes = run_batch(&store, batch).await;
        is_refused(outcomes.remove(6), "it has left before");
        assert_eq!(outcomes.remove(5), Ok(Answer::Leave));
        outcomes.remove(3).expect("what stands between is carried out, too");
        outcomes.remove(1).expect("what stands between is carried out, too");
        let presences: Vec<_> = outcomes.into_iter().map(present).collect();
        let draining: Vec<bool> = presences.iter().map(|presence| view(presence)[0].draining).collect();
        assert_eq!(draining, [false, true, false]);
        assert!(presences.is_sorted_by(|one, next| one.version < next.version), "{presences:?}");
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

/// A restart of the store loses no member whose TTL is not over, nor its mark, and brings back none that has left.
pub fn reopening_keeps_members<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let (mut stays, mut goes) = (Instance::new("stays", 1, ttl), Instance::new("goes", 2, ttl));
        goes.beats(&store).await;
        let before = stays.beats(&store).await;
        marks(&store, "stays", None, true).await;
        goes.leaves(&store).await;
        store.close().await;
        let store = h.reopen(store).await;
        assert_eq!(names(&store).await, [stays.identity()]);
        is_refused(goes.repeats(&store).await, "it has left");
        stays.says.joined = None;
        let after = stays.beats(&store).await;
        assert!(after.drain && after.version > before.version);
        assert_eq!(after.joined, before.joined);
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
