//! Records of timers and views of the members, as a store tells them that means well, and as one might that does not.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    AnySchedule, Digest, Every, Identity, Incarnation, Member, NextSchedule, Presence, Tick, TimerView,
    Timestamp,
};

use super::step::Shape;

/// More claims than any honest record has.
const MANY: u64 = 4_000;

/// One of the schedules that are asked for.
pub(super) fn schedule(number: u8) -> AnySchedule {
    let period = match number % 8 {
        0..=3 => Duration::from_millis(200),
        4 => Duration::from_millis(300),
        5 => Every::MIN,
        6 => Duration::from_secs(3_600),
        _ => Every::MAX,
    };
    Every::new(period).expect("it lies within the limits").into()
}

/// The record and the time that these bytes stand for: mostly near to what is there, sometimes far off.
pub(super) fn view(shape: Shape, near: u64, wall: Timestamp) -> (TimerView, Timestamp) {
    let [revision, base_n, base_at, text, next, next_n, next_at, next_text, last, claimed, unfinished, at] =
        shape;
    let at = time(at, wall);
    let view = TimerView {
        revision: number(revision, 1),
        base: Tick { n: number(base_n, near), at: time(base_at, at) },
        schedule: self::text(text),
        next: (next % 3 == 0).then(|| NextSchedule {
            at: Tick { n: number(next_n, near), at: time(next_at, at) },
            schedule: self::text(next_text),
        }),
        last: number(last, near),
        claimed: number(claimed, near),
        unfinished: match unfinished % 8 {
            0 => (0..MANY).collect(),
            1 => (0..MANY).map(|n| u64::MAX - n).collect(),
            2 => vec![near; 40],
            3..=5 => (near.saturating_sub(2)..=near).collect(),
            _ => Vec::new(),
        },
    };
    (view, at)
}

/// The answer to a heartbeat that these bytes stand for. It lists this instance or not, others that are like it or not,
/// and some more than once.
pub(super) fn presence(
    shape: Shape,
    own: &Identity,
    digests: &Arc<[Digest]>,
    version: u64,
    wall: Timestamp,
) -> Presence {
    let [joined, drain, with_view, next, many, members @ ..] = shape;
    let joined = time(joined, wall);
    let version = number(next, version);
    let mut presence = if with_view % 5 == 0 {
        Presence::unchanged(joined, version)
    } else {
        let copies = if many == 255 { 500 } else { 1 };
        let members = members.into_iter().take(usize::from(many % 8));
        Presence::new(
            joined,
            version,
            members.flat_map(|byte| vec![member(byte, own, digests, wall); copies]),
        )
    };
    presence.drain = drain % 6 == 0;
    presence
}

fn member(byte: u8, own: &Identity, digests: &Arc<[Digest]>, wall: Timestamp) -> Member {
    let identity = match byte % 4 {
        0 => own.clone(),
        other => Identity::new("other", Incarnation::new(other.into())).expect("a short name"),
    };
    let mut member = Member::new(identity, time(byte.rotate_left(3), wall));
    member.age = match byte / 4 % 4 {
        0 => Duration::ZERO,
        1 => Duration::MAX,
        few => Duration::from_millis(300) * u32::from(few),
    };
    member.draining = byte.is_multiple_of(7);
    member.digests = match byte / 16 % 4 {
        0 => [].into(),
        1 => [Digest::new(u64::from(byte)); 3].into(),
        _ => digests.clone(),
    };
    member
}

fn number(byte: u8, near: u64) -> u64 {
    let few = u64::from(byte / 16);
    match byte % 16 {
        0 => 0,
        1 => u64::MAX - few,
        2 => 1 << (few * 4),
        3..=5 => near.saturating_sub(few),
        6 => near.saturating_add(1_000 * few),
        7 => few,
        _ => near,
    }
}

fn time(byte: u8, near: Timestamp) -> Timestamp {
    let few = u32::from(byte / 16);
    match byte % 16 {
        0 => Timestamp::EPOCH,
        1 => Timestamp::MAX,
        2 => Timestamp::from_nanos(i64::MIN + i64::from(few)),
        3 => near + Duration::from_secs(1 << (2 * few)),
        4 => near.saturating_sub(Duration::from_secs(1 << (2 * few))),
        5..=7 => near + Duration::from_millis(100) * few,
        8..=11 => near.saturating_sub(Duration::from_millis(100) * few),
        _ => near,
    }
}

fn text(byte: u8) -> Arc<str> {
    match byte % 12 {
        0 => "".into(),
        1 => "every 0.000000001s".into(),
        2 => "every 99999999999999999999s".into(),
        3 => "every -1s".into(),
        4 => "30 1 * * * \u{1f552}".into(),
        5 => "x".repeat(100_000).into(),
        _ => schedule(byte / 12).text().into(),
    }
}
