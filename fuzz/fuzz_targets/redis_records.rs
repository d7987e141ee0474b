//! Whatever a foreign or newer program may have left in the keys of Redis.
//!
//! A first byte of `l`, `t`, `r` or `m` says that what follows is the value of a lease, a timer, a run or a member. After
//! any other there is what a program of ours writes, which has to come back unchanged, and how it is damaged then.

#![no_main]

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use tenure_core::{
    Acquisition, Digest, Identity, Incarnation, Instant, Labels, LeaseName, NextSchedule, Tick, Timestamp,
    Token,
};
use tenure_json::member;
use tenure_json::timer::{self, Loaded};
use tenure_store::{Acquire, Claim, Heartbeat, KeptRun, MemberRecord, Metadata, RunOutcome, TimerRecord};

// The adapter's own sources. They need nothing of the client library, whose build would take longer than all the rest.
// rustfmt would look for their tests in another place, and sees to them in the adapter.
#[allow(dead_code, reason = "the adapter uses more of it")]
#[path = "../../adapters/redis/src/record.rs"]
#[rustfmt::skip]
mod lease;
#[path = "../../adapters/redis/src/runs/format.rs"]
#[rustfmt::skip]
mod run;
#[path = "../../adapters/redis/src/timers/format.rs"]
#[rustfmt::skip]
mod granted;


const NOW: Instant = Instant::from_nanos(1_790_000_000_000_000_000);
const OWNER: &str = "fuzz/00000000000000000000000000000001.1";

/// What is at a key.
#[derive(Clone, Copy, Debug)]
enum Key {
    Lease,
    Timer,
    Run,
    Member,
}

/// Reads it; what can be read is written and read again, and is the same.
fn look(key: Key, value: &[u8]) {
    match key {
        Key::Lease => {
            let holder = lease::holder(value, lease::remaining(1));
            // Whoever can't read the value still says that it is held, and by whom.
            assert!(holder.token.is_some() || holder.problem.is_some());
            let _ = lease::may_be_foreign(value);
        }
        Key::Timer => {
            let Ok(found) = timer::read(value, None, NOW) else { return };
            // What can't be read goes to the end.
            let found = again(&found);
            let Loaded { record, unreadable } = again(&found);
            assert_eq!((record, unreadable), (found.record, found.unreadable));
        }
        Key::Run => {
            let Ok((number, found)) = run::read(OWNER, value) else { return };
            let text = format!("{number} {}", run::write(&found));
            assert_eq!(run::read(OWNER, text.as_bytes()), Ok((number, found)));
        }
        Key::Member => {
            let Ok(found) = member::read(value) else { return };
            assert_eq!(member::read(member::write(&found).as_bytes()), Ok(found));
        }
    }
}

/// A timer that was written and read. Nothing is lost of it.
fn again(found: &Loaded) -> Loaded {
    let granted::Written::Whole(text) = granted::write(&found.record, &found.unreadable) else {
        panic!("nothing was granted: {found:?}")
    };
    let again = timer::read(text.as_bytes(), None, NOW).expect("it is written so that it can be read");
    let claims = |of: &Loaded| {
        let mut claims: Vec<_> = of.record.claims.iter().map(|claim| format!("{claim:?}")).collect();
        claims.sort_unstable();
        claims
    };
    assert_eq!(claims(&again), claims(found));
    assert_eq!(again.unreadable, found.unreadable);
    again
}

/// What one of our programs writes.
#[derive(Debug, Arbitrary)]
enum Ours {
    Lease {
        instance: String,
        ttl: Duration,
        token: u64,
        since: u64,
        metadata: Words,
    },
    Timer {
        whole: u64,
        at: i64,
        schedule: String,
        next: Option<String>,
        claims: Vec<Claimed>,
    },
    Run {
        number: u64,
        index: Option<u64>,
        times: [i64; 2],
        ended: Option<(u8, i64)>,
        lives: u64,
        text: Option<String>,
    },
    Member {
        whole: [u64; 4],
        joined: i64,
        flags: [bool; 4],
        digests: Vec<u64>,
        labels: Vec<(String, String)>,
        metadata: Words,
    },
}

#[derive(Debug, Arbitrary)]
struct Words {
    host: Option<String>,
    pid: Option<u32>,
    text: Option<String>,
}

#[derive(Debug, Arbitrary)]
struct Claimed {
    tick: u64,
    owner: String,
    token: u64,
    whole: [u64; 2],
    small: [u32; 2],
    since: i64,
    metadata: Words,
}

impl From<Words> for Metadata {
    fn from(words: Words) -> Self {
        let mut metadata = Self::new();
        metadata.host = words.host.map(Into::into);
        metadata.pid = words.pid;
        metadata.text = words.text.map(Into::into);
        metadata
    }
}

impl From<Claimed> for Claim {
    fn from(claim: Claimed) -> Self {
        let Claimed { tick, owner, token, whole: [ttl, ends], small: [begun, attempts], since, metadata } =
            claim;
        Self {
            tick,
            // Neither of them is ever empty, or zero.
            owner: format!("o{owner}"),
            token: Token::new(token.max(1)),
            ttl: Duration::from_nanos(ttl),
            ends: Instant::from_nanos(ends),
            begun,
            attempts,
            since: Timestamp::from_nanos(since),
            metadata: metadata.into(),
        }
    }
}

impl Ours {
    /// Writes it, and holds what is read against it; `None` if no program can have such a thing.
    fn written(self) -> Option<(Key, String)> {
        Some(match self {
            Self::Lease { instance, ttl, token, since, metadata } => {
                let owner = Identity::new(instance, Incarnation::new(1)).ok()?.owner(Acquisition(1));
                let metadata = Metadata::from(metadata);
                let request = Acquire {
                    name: LeaseName::new("fuzz").ok()?,
                    owner: owner.clone(),
                    ttl,
                    floor: Token::ZERO,
                    wait: false,
                    metadata: metadata.clone(),
                    timeout: Duration::from_secs(1),
                };
                // As the script makes it.
                let value =
                    format!("{token}:{owner}\n{{\"v\":1,\"since\":{since}{}", lease::for_people(&request));
                let holder = lease::holder(value.as_bytes(), lease::remaining(1));
                assert_eq!((holder.problem, holder.token), (None, Some(Token::new(token))));
                assert_eq!((holder.owner, holder.metadata), (owner.to_string(), metadata));
                assert_eq!(holder.ttl, Some(Duration::from_millis(lease::millis(ttl))));
                assert!(!lease::may_be_foreign(value.as_bytes()));
                (Key::Lease, value)
            }
            Self::Timer { whole, at, schedule, next, claims } => {
                let tick = Tick { n: whole, at: Timestamp::from_nanos(at) };
                let mut claims: Vec<Claim> = claims.into_iter().map(Into::into).collect();
                claims.sort_by_key(|claim| claim.tick);
                let record = TimerRecord {
                    revision: whole,
                    base: tick,
                    schedule: schedule.into(),
                    next: next.map(|schedule| NextSchedule { at: tick, schedule: schedule.into() }),
                    last: whole,
                    claimed: whole,
                    claims,
                };
                let granted::Written::Whole(text) = granted::write(&record, &[]) else {
                    panic!("nothing was granted")
                };
                let found = timer::read(text.as_bytes(), None, NOW).expect("it is ours");
                assert_eq!((found.record, found.unreadable), (record, Vec::new()));
                (Key::Timer, text)
            }
            Self::Run { number, index, times: [started, silent_from], ended, lives, text } => {
                let outcomes = [RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Stopped];
                let outcome = |n: u8| outcomes[usize::from(n) % outcomes.len()];
                let run = KeptRun {
                    owner: OWNER.to_owned(),
                    index,
                    started: Timestamp::from_nanos(started),
                    ended: ended.map(|(n, at)| (outcome(n), Timestamp::from_nanos(at))),
                    lives_until: Instant::from_nanos(lives),
                    silent_from: Timestamp::from_nanos(silent_from),
                    text: text.map(Into::into),
                };
                let text = format!("{number} {}", run::write(&run));
                assert_eq!(run::read(OWNER, text.as_bytes()), Ok((number, run)));
                (Key::Run, text)
            }
            Self::Member { whole, joined, flags, digests, labels, metadata } => {
                let [sequence, since, heard, ttl] = whole;
                let [left, draining, marked, knows_mark] = flags;
                let record = MemberRecord {
                    sequence,
                    joined: Timestamp::from_nanos(joined),
                    since: Instant::from_nanos(since),
                    heard: Instant::from_nanos(heard),
                    ttl: Duration::from_nanos(ttl),
                    left,
                    draining,
                    marked,
                    knows_mark,
                    digests: digests.into_iter().take(Heartbeat::MOST_DIGESTS).map(Digest::new).collect(),
                    labels: Labels::new(labels).ok()?,
                    metadata: metadata.into(),
                };
                let text = member::write(&record);
                assert_eq!(member::read(text.as_bytes()), Ok(record));
                (Key::Member, text)
            }
        })
    }
}

/// Another byte in a place of it, or in the place of all that follows.
#[derive(Debug, Arbitrary)]
struct Damage {
    at: u16,
    byte: u8,
    ends: bool,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let key = match first {
        b'l' => Key::Lease,
        b't' => Key::Timer,
        b'r' => Key::Run,
        b'm' => Key::Member,
        _ => {
            let mut rest = Unstructured::new(rest);
            let Ok((damage, ours)) = rest.arbitrary::<(Vec<Damage>, Ours)>() else { return };
            let Some((key, text)) = ours.written() else { return };
            let mut text = text.into_bytes();
            for Damage { at, byte, ends } in damage {
                let at = usize::from(at) % text.len();
                text[at] = byte;
                text.truncate(if ends { at + 1 } else { text.len() });
            }
            return look(key, &text);
        }
    };
    look(key, rest);
});
