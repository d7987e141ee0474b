//! Timers and claims of their ticks: a key for each timer, with its record as JSON.
//!
//! What becomes of a record is decided here, by [`TimerRecord::apply`]: it is read together with the server's time, and
//! written on the condition that it is what it was. The token of a grant is made as it is written.

mod format;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use redis::Value;
use tenure_core::{Instant, TimerName, Token};
use tenure_json::Unreadable;
use tenure_json::timer::{self, Loaded};
use tenure_store::{
    StoreError, StoreTime, TickClaim, TimerAct, TimerAnswer, TimerEntry, TimerRecord, TimerRequest,
    check_claim_floor, clock,
};

use self::format::Written;
use crate::client::Client;
use crate::error::strange;
use crate::keys::{Route, TIMER};
use crate::leases::{HIGHEST_FLOOR, no_high_water};
use crate::looking::PATIENCE;
use crate::record::millis;
use crate::reply::{self, KEPT, again, only_read, parts, unreadable};
use crate::script::{self, Call};

/// What to do about a record that can't be read.
const ADVICE: &str = "until then its ticks can't be told; an operator can forget it";

/// A timer whose record will be kept for less than this gets the whole time again when it is read. So reading is hardly
/// ever writing.
const KEEP_AGAIN_BELOW: u64 = (KEPT.as_secs() - 24 * 3600) * 1000;

/// So many records are read side by side for a list.
pub(crate) const READ_AT_ONCE: usize = 32;

/// What stands in a timer's key.
struct Read {
    time: StoreTime,
    /// `None` if there is nothing.
    value: Option<Vec<u8>>,
    /// It is of another type.
    foreign: bool,
}

impl Client {
    /// Carries out an operation on a timer.
    pub(crate) async fn carry_out(&self, request: &TimerRequest) -> Result<TimerAnswer, StoreError> {
        self.limits.check_timer(request)?;
        check_claim_floor(request, HIGHEST_FLOOR)?;
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let (route, key) = keys.timer(&request.name);
        if request.act == TimerAct::Forget {
            // Also one that can't be read: it is what is left to do with it.
            let removed = self.forget(route, &key, "GET", until).await?;
            return Ok(if removed { TimerAnswer::Removed } else { TimerAnswer::NotYours });
        }
        let high_water = keys.high_water(route);
        loop {
            let read = self.read_timer(route, &key, until).await?;
            let time = read.time;
            let loaded = read.loaded().map_err(|problem| unreadable(&problem, &key, ADVICE))?;
            let (before, unreadable) = match loaded {
                Some(Loaded { record, unreadable }) => (Some(record), unreadable),
                None => (None, Vec::new()),
            };
            let mut record = before.clone();
            let given = |_| Ok::<_, StoreError>(Token::ZERO);
            let answer = TimerRecord::apply(&mut record, &request.act, time, given)?;
            let Some(record) = record.filter(|record| before.as_ref() != Some(record)) else {
                return Ok(answer);
            };
            let mut call = Call::new()
                .key(&key)
                .key(&high_water)
                .arg(read.value.as_deref().unwrap_or_default())
                .arg(millis(KEPT));
            match format::write(&record, &unreadable) {
                Written::Whole(text) => call.push_arg(text),
                Written::AroundToken(first, rest) => {
                    call.push_arg(first);
                    call.push_arg(rest);
                    call.push_arg(floor(&request.act, before.as_ref()).get());
                }
            }
            let written = self.server.run(route, &script::TIMER_WRITE, &call, until).await?;
            match parts(&written, &key)? {
                [Value::BulkString(what), token] if what == b"written" => {
                    return match (answer, reply::number(token)) {
                        (TimerAnswer::Granted(Token::ZERO), Some(token)) => {
                            Ok(TimerAnswer::Granted(Token::new(token)))
                        }
                        (TimerAnswer::Granted(Token::ZERO), None) => Err(strange(&written)),
                        (answer, _) => Ok(answer),
                    };
                }
                [Value::BulkString(what)] if what == b"changed" => again(until).await?,
                [Value::BulkString(what), Value::BulkString(value)] if what == b"high" => {
                    return Err(no_high_water(&high_water, value));
                }
                _ => return Err(strange(&written)),
            }
        }
    }

    /// At most `most` timers after `after`, in the order of their names' bytes.
    pub(crate) async fn list_timers(
        &self,
        after: Option<TimerName>,
        most: usize,
    ) -> Result<Vec<TimerEntry>, StoreError> {
        let mut after = after;
        loop {
            let names = self.page(TIMER, after.as_ref(), most, |name| TimerName::new(name).ok()).await?;
            after = names.last().cloned();
            let found: Vec<Option<TimerEntry>> = stream::iter(names)
                .map(|name| self.timer_entry(name))
                .buffered(READ_AT_ONCE)
                .try_collect()
                .await?;
            let found: Vec<TimerEntry> = found.into_iter().flatten().collect();
            // That all of a page were forgotten meanwhile does not mean that nothing follows.
            if !found.is_empty() || after.is_none() {
                return Ok(found);
            }
        }
    }

    /// A timer as it is now, `None` if it is gone.
    async fn timer_entry(&self, name: TimerName) -> Result<Option<TimerEntry>, StoreError> {
        let until = clock::now() + PATIENCE;
        let keys = self.server.keys(until).await?;
        let (route, key) = keys.timer(&name);
        let read = self.read_timer(route, &key, until).await?;
        let time = read.time;
        Ok(match read.loaded() {
            Ok(Some(loaded)) => Some(TimerEntry::new(name, loaded.record, time)),
            Ok(None) => None,
            // The others are to be seen all the same.
            Err(problem) => {
                Some(TimerEntry::unreadable(name, time, unreadable(&problem, &key, ADVICE).message))
            }
        })
    }

    async fn read_timer(&self, route: Route, key: &[u8], until: Instant) -> Result<Read, StoreError> {
        let call = Call::new().key(key).arg(millis(KEPT)).arg(KEEP_AGAIN_BELOW);
        let answer = self.server.run(route, &script::TIMER_READ, &call, until).await.map_err(only_read)?;
        let Value::Array(read) = &answer else { return Err(strange(&answer)) };
        let [seconds, micros, value, wrong @ ..] = &read[..] else { return Err(strange(&answer)) };
        let time = reply::time(seconds, micros).ok_or_else(|| strange(&answer))?;
        let value = reply::bytes(value).map(<[u8]>::to_vec);
        Ok(Read { time, value, foreign: !wrong.is_empty() })
    }

    /// Removes a key of the type that this command reads; tells whether there was one.
    pub(crate) async fn forget(
        &self,
        route: Route,
        key: &[u8],
        command: &str,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let call = Call::new().key(key).arg(command);
        let answer = self.server.run(route, &script::FORGET, &call, until).await?;
        match parts(&answer, key)? {
            [Value::BulkString(what)] if what == b"removed" => Ok(true),
            [Value::BulkString(what)] if what == b"none" => Ok(false),
            _ => Err(strange(&answer)),
        }
    }
}

impl Read {
    fn loaded(&self) -> Result<Option<Loaded>, Unreadable> {
        if self.foreign {
            return Err(Unreadable::Foreign);
        }
        self.value.as_deref().map(|value| timer::read(value, None, self.time.now)).transpose()
    }
}

/// What the token of a new grant must be above: also those of claims that are still there, should the high water have been
/// lost.
fn floor(act: &TimerAct, before: Option<&TimerRecord>) -> Token {
    let asked = match act {
        TimerAct::Claim(TickClaim { floor, .. }) => *floor,
        TimerAct::Read { .. }
        | TimerAct::Change { .. }
        | TimerAct::Renew { .. }
        | TimerAct::Finish { .. }
        | TimerAct::Forget => Token::ZERO,
    };
    let earlier = before.iter().flat_map(|record| &record.claims).map(|claim| claim.token);
    earlier.filter(|token| *token <= HIGHEST_FLOOR).fold(asked, Token::max)
}
