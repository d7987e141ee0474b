//! Who is a member of a fleet, since when, and until when.

use std::time::Duration;

use tenure_core::{Labels, Member, TimerName};

use super::Harness;
use super::candidate::{Candidate, lease, long_ttl, run_batch, short_ttl, timing};
use super::claimant::{ask, read, request};
use super::instance::{
    Instance, LONG_AGO, is_refused, listed, marks, names, present, the_one, until_gone, view, who,
};
use crate::{Answer, Heartbeat, Leave, Operation, Renewed, Store, TimerAct};

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
