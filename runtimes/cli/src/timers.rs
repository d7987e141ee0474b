//! `tenure timers`: what ticks when, and who runs which tick.

use comfy_table::Table;
use serde_json::{Value, json};
use tenure::store_contract::{Claim, StoreTime};
use tenure::{Tick, TimerEntry};

use crate::args::{Timers, TimersAction};
use crate::failure::Failure;
use crate::holder::{instance, printable, span, time};
use crate::list::{self, millis, system_time, unknown};
use crate::say;
use crate::store::Place;

/// Lists the timers, or forgets one.
pub(crate) async fn timers(args: &Timers, place: &Place) -> Result<u8, Failure> {
    match &args.action {
        None => list(args.json, place).await,
        Some(TimersAction::Forget { name }) => forget(name, place).await,
    }
}

async fn list(json: bool, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let entries = place.answer(tenure.timers()).await;
    let _ = tenure.shutdown().await;
    let entries = entries.map_err(|error| Failure::from(error).at(place.name()))?;
    list::write(json, &entries, as_json, table, || format!("there are no timers in {}", place.name()))
}

async fn forget(name: &str, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let forgotten = place.answer(tenure.forget_timer(name)).await;
    let _ = tenure.shutdown().await;
    if forgotten.map_err(|error| Failure::from(error).at(place.name()))? {
        say::line(format_args!("timer {name:?} is forgotten"));
    } else {
        say::line(format_args!("there is no timer {name:?}; nothing was done"));
    }
    Ok(0)
}

/// The first tick after the time at which the timer was looked at; `None` if its schedule can't be read here, or is over.
fn next(entry: &TimerEntry) -> Option<Tick> {
    let (record, now) = (&entry.record, entry.time.wall);
    // What is to follow counts from its time on, whether or not somebody has taken note.
    match &record.next {
        Some(next) if next.at.at <= now => tenure::schedule(&next.schedule)?.next(next.at, now),
        _ => tenure::schedule(&record.schedule)?.next(record.base, now),
    }
}

/// The last tick that somebody came to.
fn last(entry: &TimerEntry) -> u64 {
    entry.record.last.max(entry.record.claimed)
}

/// A timer as an object. The names of the fields are part of the interface; what is not known is null.
pub(crate) fn as_json(entry: &TimerEntry) -> Value {
    let mut value = json_of_record(entry);
    if entry.problem.is_some()
        && let Value::Object(fields) = &mut value
    {
        // Nothing of the record is known.
        fields.values_mut().for_each(|value| *value = Value::Null);
    }
    value["timer"] = entry.name.as_str().into();
    value["problem"] = entry.problem.as_deref().into();
    value
}

fn json_of_record(entry: &TimerEntry) -> Value {
    let record = &entry.record;
    let next = next(entry);
    json!({
        "schedule": &*record.schedule,
        "schedule_to_follow": record.next.as_ref().map(|next| &*next.schedule),
        "follows_at": record.next.as_ref().map(|next| time(system_time(next.at.at))),
        "base_tick": record.base.n,
        "base_time": time(system_time(record.base.at)),
        "last_tick": last(entry),
        "claimed_tick": record.claimed,
        "next_tick": next.map(|tick| tick.n),
        "next_time": next.map(|tick| time(system_time(tick.at))),
        "claims": record.claims.iter().map(|claim| claim_as_json(claim, entry.time)).collect::<Vec<_>>(),
    })
}

fn claim_as_json(claim: &Claim, now: StoreTime) -> Value {
    json!({
        "tick": claim.tick,
        "instance": instance(&claim.owner),
        "owner": claim.owner,
        "host": claim.metadata.host.as_deref(),
        "pid": claim.metadata.pid,
        "token": claim.token.get(),
        "since": time(system_time(claim.since)),
        "ttl_ms": millis(claim.ttl),
        "remaining_ms": millis(claim.ends.saturating_since(now.now)),
        "attempt": claim.begun,
        "attempts": claim.attempts,
        "text": claim.metadata.text.as_deref(),
    })
}

pub(crate) fn table(entries: &[TimerEntry]) -> Table {
    list::table(
        ["TIMER", "SCHEDULE", "LAST", "NEXT", "AT", "CLAIMS"],
        entries.iter().map(|entry| {
            if let Some(problem) = &entry.problem {
                let [schedule, last, next, at] = std::array::from_fn(|_| unknown());
                return [printable(entry.name.as_str()), schedule, last, next, at, printable(problem)];
            }
            let next = next(entry);
            let claims: Vec<_> =
                entry.record.claims.iter().map(|claim| describe(claim, entry.time)).collect();
            [
                printable(entry.name.as_str()),
                schedule(entry),
                last(entry).to_string(),
                next.map_or_else(unknown, |tick| tick.n.to_string()),
                next.map_or_else(unknown, |tick| time(system_time(tick.at))),
                if claims.is_empty() { unknown() } else { claims.join("\n") },
            ]
        }),
    )
}

fn schedule(entry: &TimerEntry) -> String {
    let record = &entry.record;
    let then = record.next.as_ref().map(|next| format!(", then {}", next.schedule));
    printable(&format!("{}{}", record.schedule, then.unwrap_or_default()))
}

/// One line: which tick, who has it, since when, for how much longer.
fn describe(claim: &Claim, now: StoreTime) -> String {
    let Claim { tick, owner, begun, attempts, .. } = claim;
    if claim.ttl.is_zero() {
        return format!("tick {tick}: given back, to be tried again");
    }
    let left = claim.ends.saturating_since(now.now);
    let again = if *attempts > 1 { format!(", attempt {begun} of {attempts}") } else { String::new() };
    let process = claim.metadata.pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
    let state = if left.is_zero() {
        ", abandoned".to_owned()
    } else {
        let age = now.wall.saturating_since(claim.since);
        format!(", for {}, {} left", span(age), span(left))
    };
    format!("tick {tick}: {}{process}{state}{again}", printable(instance(owner)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::store_contract::core::NextSchedule;
    use tenure::{Instant, TimerName, TimerRecord, Timestamp};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn entry(schedule: &str, next: Option<NextSchedule>, now: i64) -> TimerEntry {
        let base = Tick { n: 7, at: Timestamp::from_nanos(100 * SECOND) };
        let record = TimerRecord {
            revision: 1,
            base,
            schedule: schedule.into(),
            next,
            last: 8,
            claimed: 9,
            claims: Vec::new(),
        };
        let time = StoreTime { wall: Timestamp::from_nanos(now), now: Instant::ZERO };
        TimerEntry::new(TimerName::new("a").unwrap(), record, time)
    }

    fn shown(schedule: &str, next: Option<NextSchedule>, now: i64) -> (Value, Value) {
        let shown = as_json(&entry(schedule, next, now));
        (shown["next_tick"].clone(), shown["next_time"].clone())
    }

    #[test]
    fn the_next_tick_follows_from_schedule_base_and_time() {
        let now = 125 * SECOND;
        assert_eq!(shown("every 10s", None, now), (10.into(), "1970-01-01T00:02:10.000Z".into()));
        // Before the base, which is where a clock that was set back stands.
        assert_eq!(shown("every 10s", None, 0), (8.into(), "1970-01-01T00:01:50.000Z".into()));
        // Five minutes past each hour.
        let (_, at) = shown("cron UTC 5 * * * *", None, now);
        assert_eq!(at, "1970-01-01T00:05:00.000Z");
        assert_eq!(shown("0 3 * * 1 \u{1b}", None, now), (Value::Null, Value::Null));
    }

    #[test]
    fn a_schedule_that_is_to_follow_counts_from_its_time_on() {
        let next = NextSchedule {
            at: Tick { n: 10, at: Timestamp::from_nanos(130 * SECOND) },
            schedule: "every 60s".into(),
        };
        let at = |now: i64| shown("every 10s", Some(next.clone()), now * SECOND).0;
        assert_eq!([at(125), at(130), at(189), at(190)], [10, 11, 11, 12].map(Value::from));
    }

    #[test]
    fn of_a_timer_that_can_not_be_read_the_problem_is_shown_and_nothing_else() {
        let time = StoreTime { wall: Timestamp::EPOCH, now: Instant::ZERO };
        let entry = TimerEntry::unreadable(TimerName::new("a").unwrap(), time, "it is \u{1b}[2J damaged");
        let value = as_json(&entry);
        let known: Vec<_> = value.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()).collect();
        assert_eq!(known.len(), 2, "{value}");
        assert_eq!((&value["timer"], &value["problem"]), (&"a".into(), &"it is \u{1b}[2J damaged".into()));
        let text = table(&[entry]).to_string();
        assert!(text.contains("damaged") && !text.contains('\u{1b}') && !text.contains("1970"), "{text}");
    }

    #[test]
    fn nothing_in_a_record_is_too_odd_to_be_shown() {
        let mut entry = entry("every 10s", None, i64::MAX);
        entry.record.base.at = Timestamp::from_nanos(i64::MIN);
        entry.record.claims = vec![Claim {
            tick: u64::MAX,
            owner: "\u{1b}[2J".into(),
            token: tenure::Token::new(u64::MAX),
            ttl: Duration::MAX,
            ends: Instant::MAX,
            begun: u32::MAX,
            attempts: u32::MAX,
            since: Timestamp::from_nanos(i64::MIN),
            metadata: tenure::Metadata::new(),
        }];
        let entries = [entry];
        assert!(!as_json(&entries[0]).to_string().is_empty());
        let text = table(&entries).to_string();
        assert!(text.contains("tick 18446744073709551615") && !text.contains('\u{1b}'), "{text}");
    }
}
