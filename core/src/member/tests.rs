//! Every row of the table at the head of the machine, and the bounds of its settings.

use alloc::format;
use alloc::vec::Vec;

use super::*;
use crate::jitter::SplitMix;
use crate::name::{Identity, Incarnation};

const TTL: Duration = Duration::from_secs(15);

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn identity(incarnation: u128) -> Identity {
    Identity::new("host", Incarnation::new(incarnation)).expect("a fine name")
}

fn says(draining: bool) -> Says {
    Says { draining, digests: Arc::from([]) }
}

/// A membership whose first heartbeat is due at once: every 5 s, each with 2.5 s to be answered.
fn fresh() -> Membership<SplitMix> {
    Membership::new(ms(0), MemberKey(1), MemberOptions::default(), says(false), SplitMix::new(5))
}

fn outputs(membership: &mut Membership<SplitMix>) -> Vec<Output> {
    core::iter::from_fn(|| membership.next_output()).collect()
}

fn notices(membership: &mut Membership<SplitMix>) -> Vec<Notice> {
    let notice = |output| if let Output::Notice(notice) = output { Some(notice) } else { None };
    outputs(membership).into_iter().filter_map(notice).collect()
}

/// Does what is due, which must be one command.
fn due(membership: &mut Membership<SplitMix>, now: Instant) -> Command {
    assert_eq!(membership.deadline(), Some(now));
    membership.timeout(now);
    assert!(membership.deadline().is_none_or(|at| at > now), "it is due again and again");
    match &outputs(membership)[..] {
        [Output::Command(command)] => command.clone(),
        other => panic!("a command was expected, not {other:?}"),
    }
}

fn beat(membership: &mut Membership<SplitMix>, now: Instant) -> CommandId {
    let command = due(membership, now);
    let Command::Heartbeat { id, .. } = command else { panic!("a heartbeat was expected, not {command:?}") };
    id
}

fn goodbye(membership: &mut Membership<SplitMix>, now: Instant) -> CommandId {
    let command = due(membership, now);
    let Command::Leave { id, ttl: TTL, .. } = command else { panic!("{command:?}") };
    id
}

fn joined_at() -> Timestamp {
    Timestamp::from_nanos(1_000)
}

fn view(version: u64, members: u128) -> Presence {
    Presence::new(joined_at(), version, (0..members).map(|n| Member::new(identity(n), joined_at())))
}

/// One whose first heartbeat was answered at 10 ms, by a view of so many members.
fn among(members: u128) -> Membership<SplitMix> {
    let mut membership = fresh();
    let id = beat(&mut membership, ms(0));
    assert_eq!(membership.present(ms(10), id, view(1, members)), Heard { view: true, ..Heard::default() });
    let count = members as usize;
    assert_eq!(
        notices(&mut membership),
        [Notice::Joined { joined: joined_at() }, Notice::MembersChanged { version: 1, count }]
    );
    membership
}

#[test]
fn a_heartbeat_leaves_at_once_and_then_one_in_each_interval_counted_from_when_the_last_one_left() {
    let mut membership = among(1);
    for n in 1..5 {
        let id = beat(&mut membership, ms(n * 5_000));
        assert_eq!(id.sequence, n);
        assert_eq!(
            membership.present(ms(n * 5_000 + 900), id, Presence::unchanged(joined_at(), 1)),
            Heard::default()
        );
        assert_eq!(notices(&mut membership), []);
    }
}

#[test]
fn a_heartbeat_says_what_is_known_here_and_asks_for_no_more() {
    let mut membership = fresh();
    let first = due(&mut membership, ms(0));
    let Command::Heartbeat { id, sequence: 0, joined: None, known: None, .. } = first else {
        panic!("{first:?}")
    };
    membership.present(ms(1), id, view(7, 1));
    outputs(&mut membership);
    let second = due(&mut membership, ms(5_000));
    let Command::Heartbeat { sequence: 1, joined, known: Some(7), ttl: TTL, timeout, .. } = second else {
        panic!("{second:?}")
    };
    assert_eq!((joined, timeout), (Some(joined_at()), Duration::from_millis(2_500)));
}

#[test]
fn what_has_changed_is_said_at_once_and_only_if_it_has() {
    let mut membership = among(1);
    membership.say(ms(100), says(false));
    assert_eq!(membership.deadline(), Some(ms(5_000)));
    membership.say(ms(100), says(true));
    let command = due(&mut membership, ms(100));
    assert!(matches!(command, Command::Heartbeat { draining: true, .. }), "{command:?}");
}

#[test]
fn what_has_changed_while_a_heartbeat_is_under_way_is_said_after_it() {
    let mut membership = among(1);
    let id = beat(&mut membership, ms(5_000));
    membership.say(ms(5_100), says(true));
    assert_eq!(membership.deadline(), Some(ms(7_500)), "one at a time");
    membership.present(ms(5_200), id, Presence::unchanged(joined_at(), 1));
    assert!(membership.deadline() <= Some(ms(5_200)));
    membership.timeout(ms(5_200));
    let all = outputs(&mut membership);
    assert!(matches!(all[..], [Output::Command(Command::Heartbeat { draining: true, .. })]), "{all:?}");
}

#[test]
fn a_hint_brings_a_heartbeat_at_once_and_hundreds_of_them_bring_one_in_each_part_of_the_interval() {
    let mut membership = among(8);
    membership.hinted(ms(1_000));
    let id = beat(&mut membership, ms(1_000));
    // While it is under way, and after it.
    for at in 1_001..1_100 {
        membership.hinted(ms(at));
    }
    membership.present(ms(1_100), id, Presence::unchanged(joined_at(), 1));
    for at in 1_101..1_150 {
        membership.hinted(ms(at));
    }
    let at = ms(1_000) + Duration::from_secs(5) / 32;
    beat(&mut membership, at);
}

#[test]
fn the_more_members_there_are_the_longer_a_hint_is_spread_out_up_to_half_of_the_interval() {
    let latest = |members: u128| {
        let mut membership = among(members);
        let spread = (0..200).map(|_| {
            let mut other = membership.clone();
            membership.hinted(ms(1_000));
            core::mem::swap(&mut other.jitter, &mut membership.jitter);
            let at = core::mem::replace(&mut membership, other).deadline().expect("it is planned");
            at.saturating_since(ms(1_000))
        });
        spread.max().expect("there are some")
    };
    assert_eq!(latest(8), Duration::ZERO);
    let hundred = latest(100);
    assert!(hundred > Duration::from_millis(80) && hundred <= Duration::from_millis(100), "{hundred:?}");
    let many = latest(9_000);
    assert!(many > Duration::from_secs(2) && many <= Duration::from_millis(2_500), "{many:?}");
}

#[test]
fn the_ages_of_a_view_are_true_when_it_came_also_after_answers_that_say_it_has_not_changed() {
    let mut membership = among(2);
    let id = beat(&mut membership, ms(5_000));
    membership.present(ms(5_010), id, Presence::unchanged(joined_at(), 1));
    let (members, at) = membership.members().expect("it was answered");
    assert_eq!((members.len(), at), (2, ms(10)));
}

#[test]
fn an_answer_that_comes_after_a_later_one_changes_nothing() {
    let mut membership = fresh();
    let first = beat(&mut membership, ms(0));
    membership.timeout(ms(2_500));
    outputs(&mut membership);
    let at = membership.deadline().expect("it is tried again");
    let second = beat(&mut membership, at);
    membership.present(at, second, view(5, 3));
    outputs(&mut membership);
    let before = membership.clone();
    let stale = Heard { stale: true, ..Heard::default() };
    assert_eq!(membership.present(at, first, view(9, 1)), stale);
    assert_eq!(membership.present(at, second, view(9, 1)), stale, "the same answer twice");
    assert_eq!(membership, before);
}

#[test]
fn an_answer_that_comes_late_counts_if_none_has_come_since() {
    let mut membership = fresh();
    let first = beat(&mut membership, ms(0));
    membership.timeout(ms(2_500));
    outputs(&mut membership);
    let at = membership.deadline().expect("it is tried again");
    let second = beat(&mut membership, at);
    assert!(membership.present(at, first, view(5, 3)).view);
    outputs(&mut membership);
    assert_eq!(membership.deadline(), Some(at + Duration::from_millis(2_500)), "the second is under way");
    // Whichever the store has carried out first, the view does not go back.
    assert!(membership.present(at, second, view(4, 2)).stale);
    assert_eq!(membership.members().map(|(members, _)| members.len()), Some(3));
    assert!(membership.deadline() > Some(at + Duration::from_millis(2_500)), "it was answered all the same");
}

#[test]
fn a_store_that_has_lost_its_memory_is_believed_once_the_heartbeat_certainly_came_after_it() {
    let mut membership = among(3);
    let id = beat(&mut membership, ms(5_000));
    let lost = view(0, 1);
    assert!(membership.present(ms(5_010), id, lost).view);
    assert_eq!(membership.members().map(|(members, _)| members.len()), Some(1));
}

#[test]
fn when_an_instance_has_joined_is_taken_from_the_first_answer_and_told_once() {
    let mut membership = among(1);
    let id = beat(&mut membership, ms(5_000));
    let mut other = view(2, 1);
    other.joined = Timestamp::from_nanos(9);
    membership.present(ms(5_001), id, other);
    assert_eq!(notices(&mut membership), [Notice::MembersChanged { version: 2, count: 1 }]);
    let next = due(&mut membership, ms(10_000));
    let Command::Heartbeat { joined, .. } = next else { panic!("{next:?}") };
    assert_eq!(joined, Some(joined_at()));
}

#[test]
fn that_an_operator_wants_a_drain_is_told_when_it_changes() {
    let mut membership = among(1);
    for (drain, mark) in [(true, true), (true, false), (false, true), (false, false)] {
        let now = membership.deadline().expect("there is a next one");
        let id = beat(&mut membership, now);
        let answer = Presence { drain, ..Presence::unchanged(joined_at(), 1) };
        assert_eq!(membership.present(now, id, answer), Heard { mark, ..Heard::default() });
        assert_eq!(membership.is_marked(), drain);
    }
}

#[test]
fn what_was_heard_of_an_operators_wish_is_said_from_then_on_in_case_the_store_loses_it() {
    let (mut membership, mut heard) = (among(1), false);
    for drain in [true, true, false, false] {
        let now = membership.deadline().expect("there is a next one");
        let Command::Heartbeat { id, marked, .. } = due(&mut membership, now) else { panic!() };
        assert_eq!(marked, heard);
        membership.present(now, id, Presence { drain, ..Presence::unchanged(joined_at(), 1) });
        notices(&mut membership);
        heard = drain;
    }
}

#[test]
fn that_an_operators_wish_was_heard_of_is_said_at_once_and_once() {
    let mut membership = among(1);
    for (at, drain) in [(5_000, true), (10_010, false)] {
        let id = beat(&mut membership, ms(at));
        let answer = Presence { drain, ..Presence::unchanged(joined_at(), 1) };
        membership.present(ms(at + 10), id, answer.clone());
        assert_eq!(membership.deadline(), Some(ms(at + 10)));
        let Command::Heartbeat { id, marked, .. } = due(&mut membership, ms(at + 10)) else { panic!() };
        assert_eq!(marked, drain);
        membership.present(ms(at + 20), id, answer);
        assert_eq!(membership.deadline(), Some(ms(at + 5_010)), "the next is one of the calm");
    }
}

#[test]
fn one_that_hears_of_a_wish_with_a_late_answer_says_so_once_the_heartbeat_under_way_is_answered() {
    let mut membership = among(1);
    let late = beat(&mut membership, ms(5_000));
    membership.timeout(ms(7_500));
    notices(&mut membership);
    let again = membership.deadline().expect("it is tried again");
    let under_way = beat(&mut membership, again);
    let marked = Presence { drain: true, ..Presence::unchanged(joined_at(), 1) };
    assert!(membership.present(again, late, marked.clone()).mark);
    let answered = again + Duration::from_millis(20);
    membership.present(answered, under_way, marked);
    assert_eq!(membership.deadline(), Some(again), "it left before that was known");
}

#[test]
fn a_failure_is_told_once_and_what_failed_is_tried_again_after_growing_rests() {
    let mut membership = among(1);
    let mut at = ms(5_000);
    for (n, longest) in [625, 1_250, 2_500, 5_000, 5_000, 5_000].into_iter().enumerate() {
        let id = beat(&mut membership, at);
        assert!(membership.failed(at, id, Failure::NotExecuted));
        let told = if n == 0 {
            Vec::from([Notice::HeartbeatFailed { failure: Failure::NotExecuted }])
        } else {
            Vec::new()
        };
        assert_eq!(notices(&mut membership), told);
        let next = membership.deadline().expect("it is tried again");
        let rest = next.saturating_since(at);
        let longest = Duration::from_millis(longest);
        assert!(rest >= longest / 2 && rest <= longest, "{rest:?} after {n} failures");
        at = next;
    }
    let id = beat(&mut membership, at);
    membership.present(at, id, Presence::unchanged(joined_at(), 1));
    let id = beat(&mut membership, at + Duration::from_secs(5));
    membership.failed(at, id, Failure::Refused);
    assert_eq!(notices(&mut membership), [Notice::HeartbeatFailed { failure: Failure::Refused }]);
}

#[test]
fn what_is_not_answered_in_time_has_failed_and_its_failure_counts_no_second_time() {
    let mut membership = among(1);
    let id = beat(&mut membership, ms(5_000));
    membership.timeout(ms(7_499));
    assert_eq!(outputs(&mut membership), []);
    membership.timeout(ms(7_500));
    assert_eq!(notices(&mut membership), [Notice::HeartbeatFailed { failure: Failure::Unknown }]);
    let before = membership.clone();
    assert!(!membership.failed(ms(7_600), id, Failure::Unknown));
    assert_eq!(membership, before);
    assert!(membership.deadline() <= Some(ms(8_125)));
}

#[test]
fn whoever_leaves_says_so_again_and_again_until_it_is_not_listed_in_any_case() {
    let mut membership = among(1);
    assert!(membership.leave(ms(100)));
    assert!(!membership.leave(ms(100)), "it is on its way");
    membership.say(ms(100), says(true));
    membership.hinted(ms(100));
    let mut at = ms(100);
    let mut tries = 0;
    while at < ms(17_500) {
        goodbye(&mut membership, at);
        tries += 1;
        let timeout = membership.deadline().expect("it is waited for");
        membership.timeout(timeout);
        at = membership.deadline().unwrap_or(Instant::MAX);
    }
    // The heartbeat of 0 ms may have come to the store until 2.5 s later, and counts for 15 s.
    assert!((4..30).contains(&tries), "{tries}");
    let end = ms(17_500);
    if membership.deadline().is_some() {
        membership.timeout(end);
    }
    assert_eq!(notices(&mut membership), [Notice::Left]);
    assert_eq!(membership.deadline(), None);
}

#[test]
fn the_answer_to_any_request_to_leave_will_do() {
    let mut membership = among(1);
    let heartbeat = CommandId { machine: 1, sequence: 0 };
    assert!(!membership.is_leave(heartbeat));
    membership.leave(ms(100));
    let id = goodbye(&mut membership, ms(100));
    assert!(membership.is_leave(id) && !membership.is_leave(heartbeat));
    membership.timeout(ms(2_600));
    // It was given up, and is answered before the next one leaves.
    assert!(membership.left());
    assert_eq!(notices(&mut membership), [Notice::Left]);
    assert!(!membership.left());
    assert_eq!(outputs(&mut membership), []);
}

#[test]
fn a_request_to_leave_that_is_refused_is_not_repeated_one_that_fails_is() {
    let mut membership = among(1);
    membership.leave(ms(100));
    let id = goodbye(&mut membership, ms(100));
    assert!(membership.failed(ms(101), id, Failure::NotExecuted));
    let at = membership.deadline().expect("it is tried again");
    let id = goodbye(&mut membership, at);
    assert!(membership.failed(at, id, Failure::Refused));
    assert_eq!(notices(&mut membership), [Notice::Left]);
}

#[test]
fn nobody_need_be_told_of_one_that_nobody_has_heard_of() {
    let mut membership = fresh();
    assert!(membership.leave(ms(0)));
    assert_eq!(notices(&mut membership), [Notice::Left]);
    assert_eq!(membership.deadline(), None);
}

#[test]
fn the_answer_to_a_heartbeat_that_was_under_way_means_nothing_to_one_that_leaves() {
    let mut membership = among(1);
    let beat = beat(&mut membership, ms(5_000));
    membership.leave(ms(5_100));
    let before = membership.clone();
    let marked = Presence { drain: true, ..view(2, 3) };
    assert_eq!(membership.present(ms(5_200), beat, marked), Heard { stale: true, ..Heard::default() });
    assert!(!membership.failed(ms(5_200), beat, Failure::Unknown));
    assert_eq!(membership, before);
    goodbye(&mut membership, ms(5_100));
}

#[test]
fn a_reply_to_what_was_never_sent_is_misuse() {
    let membership = among(1);
    let unknown = CommandId { machine: 1, sequence: 1 };
    assert_eq!(membership.check(unknown), Err(Misuse::UnknownCommand(unknown)));
    assert_eq!(membership.check(CommandId { machine: 1, sequence: 0 }), Ok(()));
}

#[test]
fn in_an_hour_of_calm_there_is_one_heartbeat_in_each_interval_and_few_more_while_the_store_fails() {
    for fails in [false, true] {
        let mut membership = among(1);
        let mut beats = 0;
        while let Some(at) = membership.deadline().filter(|at| *at < ms(3_600_000)) {
            membership.timeout(at);
            for output in outputs(&mut membership) {
                let Output::Command(Command::Heartbeat { id, .. }) = output else { continue };
                beats += 1;
                if fails {
                    membership.failed(at, id, Failure::NotExecuted);
                } else {
                    membership.present(at, id, Presence::unchanged(joined_at(), 1));
                }
            }
        }
        assert!(if fails { (720..1_440).contains(&beats) } else { beats == 719 }, "{beats}");
    }
}

#[test]
fn at_the_end_of_time_nothing_is_due_any_more() {
    let mut membership = among(1);
    membership.timeout(Instant::MAX);
    assert_eq!(outputs(&mut membership).len(), 1);
    assert_eq!(membership.deadline(), None);
    membership.leave(Instant::MAX);
    assert!(membership.deadline().is_none_or(|at| at < Instant::MAX));
}

#[test]
fn settings_that_make_an_instance_look_dead_are_refused() {
    let with = |ttl, heartbeat| MemberOptions { ttl, heartbeat, ..MemberOptions::default() };
    let second = Duration::from_secs(1);
    assert_eq!(with(second * 15, None).check(), Ok(()));
    assert_eq!(with(second * 15, Some(Duration::from_millis(7_500))).check(), Ok(()));
    for (ttl, heartbeat, field) in [
        (second * 15, Some(Duration::from_millis(7_501)), "heartbeat"),
        (second * 15, Some(Duration::from_micros(999)), "heartbeat"),
        (Duration::from_micros(1), None, "member ttl"),
        (Duration::MAX, None, "member ttl"),
    ] {
        let error = format!("{}", with(ttl, heartbeat).check().expect_err("it does not fit"));
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn labels_are_bounded_and_of_two_with_one_name_the_later_counts() {
    let labels = Labels::new([("zone", "a"), ("build", "1"), ("zone", "b")]).expect("they fit");
    assert!(labels.iter().eq([("build", "1"), ("zone", "b")]));
    assert!(!labels.is_empty() && labels.get("rack").is_none());
    assert_eq!(Labels::new([("", ""); 0]), Ok(Labels::default()));
    let many = |n: usize| Labels::new((0..n).map(|n| (format!("label-{n}"), "x")));
    assert!(many(Labels::MOST).is_ok() && many(Labels::MOST + 1).is_err());
    assert!(Labels::new([("", "x")]).is_err());
    let long = |n| "x".repeat(n);
    assert!(Labels::new([(long(64), long(255))]).is_ok());
    assert!(Labels::new([(long(65), long(1))]).is_err());
    assert!(Labels::new([(long(1), long(256))]).is_err());
}

#[test]
fn a_label_that_does_not_fit_is_named_and_not_repeated_whole() {
    let told =
        |name: &str, value: &str| format!("{}", Labels::new([(name, value)]).expect_err("it does not fit"));
    assert_eq!(told("", "a"), "the name of a label is \"\", but it must have 1 to 64 bytes");
    let (long, cut) = ("ä".repeat(300), "ä".repeat(40));
    assert_eq!(
        told(&long, "a"),
        format!("the name of a label is \"{cut}\"..., but it must have 1 to 64 bytes")
    );
    let expected = format!(
        "the value of a label is \"{cut}\"..., but it must have at most 255 bytes, not 600, in label \"zone\""
    );
    assert_eq!(told("zone", &long), expected);
    let expected = "the name of a label is \"a\\nb\", but it must have no control characters";
    assert_eq!(told("a\nb", "a"), expected);
    let expected =
        "the value of a label is \"\\u{1b}[2J\", but it must have no control characters, in label \"zone\"";
    assert_eq!(told("zone", "\u{1b}[2J"), expected);
    let error = Labels::new((0..=Labels::MOST).map(|n| (format!("{n}"), ""))).expect_err("too many");
    assert_eq!(format!("{error}"), "the number of labels is more than 16, but it must be at most 16");
}
