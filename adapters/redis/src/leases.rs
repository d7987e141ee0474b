//! Leases: taken, extended and ended by scripts.

use std::time::Duration;

use futures::future::join_all;
use redis::Value;
use tenure_core::{Instant, LeaseName, Token};
use tenure_store::{
    Acquire, Acquired, Eviction, LeaseRecord, Release, Released, Renew, Renewed, StoreError, check_floor,
    clock,
};

use crate::client::Client;
use crate::error::{Failed, strange};
use crate::keys::Route;
use crate::looking::PATIENCE;
use crate::record::{self, millis};
use crate::script::{self, Call};

/// Numbers in Lua are exact up to 2^53; there must be room above the floor.
pub(crate) const HIGHEST_FLOOR: Token = Token::new((1 << 53) - (1 << 32));

/// A waiter tries again at the latest when the TTL that it was told of is over. One that did not come back this long
/// after that is gone or stuck.
pub(crate) const WAITER_GRACE: Duration = Duration::from_secs(5);

/// Who holds a lease that an operator has taken away. No process can have this name.
const EVICTED: &str = "evicted";

impl Client {
    pub(crate) async fn acquire_lease(&self, request: &Acquire) -> Result<Acquired, StoreError> {
        self.limits.check_acquire(request)?;
        check_floor(request, HIGHEST_FLOOR)?;
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(&request.name);
        // Who can't hear of a release would take the place of those who can.
        let waits = request.wait && self.pushes.watches(&of.channel);
        let high_water = keys.high_water(of.route);
        let call = Call::new()
            .key(&of.lease)
            .key(&high_water)
            .key(&of.waiters)
            .arg(request.owner.to_string())
            .arg(millis(request.ttl))
            .arg(request.floor.get())
            .arg(record::for_people(request))
            .arg(&self.handle)
            .arg(&of.channel)
            .arg(if waits { millis(WAITER_GRACE).to_string() } else { String::new() });
        let answer = self.server.run(of.route, &script::ACQUIRE, &call, until).await?;
        let Value::Array(parts) = &answer else { return Err(strange(&answer)) };
        match &parts[..] {
            [Value::BulkString(what), Value::BulkString(token)] if what == b"granted" => {
                let token = str::from_utf8(token).ok().and_then(|token| token.parse().ok());
                token.map(|token| Acquired::Granted(Token::new(token))).ok_or_else(|| strange(&answer))
            }
            [Value::BulkString(what), Value::BulkString(value), Value::Int(remaining)] if what == b"held" => {
                self.pushes.is_held(&of.channel, record::may_be_foreign(value));
                let remaining = record::remaining(*remaining);
                Ok(Acquired::Held(record::holder(value, remaining)))
            }
            [Value::BulkString(what), Value::BulkString(value)] if what == b"high" => {
                Err(no_high_water(&high_water, value))
            }
            _ => Err(not_ours(&answer, &of.lease)),
        }
    }

    /// Renews leases of one route in one call; one result for each, and each error names its lease. Their time runs from
    /// `now`.
    pub(crate) async fn renew_leases(
        &self,
        requests: &[Renew],
        now: Instant,
    ) -> Vec<Result<Renewed, StoreError>> {
        let mut results: Vec<_> = requests
            .iter()
            .map(|request| self.limits.check_renew(request).map(|()| Renewed::Renewed))
            .collect();
        let sent: Vec<usize> = (0..requests.len()).filter(|index| results[*index].is_ok()).collect();
        if sent.is_empty() {
            return results;
        }
        let together = self.lost_of(sent.iter().map(|index| &requests[*index]), now).await;
        if together.as_ref().is_err_and(|failed| failed.code() == Some("TRYAGAIN")) {
            // Their slot is being moved, and some of them are at the other node already: each by itself is found.
            let each = sent.iter().map(async |index| {
                let lost = self.lost_of(std::iter::once(&requests[*index]), now).await;
                (*index, lost.map_err(StoreError::from).flatten())
            });
            for (index, lost) in join_all(each).await {
                let renewed =
                    lost.map(|lost| if lost.is_empty() { Renewed::Renewed } else { Renewed::NotYours });
                results[index] = renewed.map_err(|error| error.about(&requests[index].name));
            }
            return results;
        }
        match together.map_err(StoreError::from).flatten() {
            Ok(lost) => {
                for place in lost {
                    results[sent[place]] = Ok(Renewed::NotYours);
                }
            }
            Err(error) => {
                for index in sent {
                    results[index] = Err(error.clone().about(&requests[index].name));
                }
            }
        }
        results
    }

    /// Renews leases of one route; tells the places of those that are not their owners' any more.
    async fn lost_of<'a>(
        &self,
        requests: impl Iterator<Item = &'a Renew> + Clone,
        now: Instant,
    ) -> Result<Result<Vec<usize>, StoreError>, Failed> {
        let until = now + requests.clone().map(|request| request.timeout).min().unwrap_or_default();
        let keys = self.server.keys(until).await.map_err(Failed::not_connected)?;
        let (mut call, mut route, mut asked) = (Call::new(), None, 0);
        let (mut key, mut mine) = (Vec::new(), Vec::new());
        for request in requests {
            let Renew { name, owner, token, ttl, timeout: _ } = request;
            route = Some(keys.write_lease(name, &mut key));
            call.push_key(&key);
            call.push_arg(millis(*ttl));
            mine.clear();
            write(&mut mine, format_args!("{token}:{owner}\n"));
            call.push_arg(&mine[..]);
            asked += 1;
        }
        let answer = self.server.try_run(route.unwrap_or(Route::FIRST), &script::RENEW, &call, until).await?;
        Ok(lost_places(&answer, asked))
    }

    pub(crate) async fn release_lease(&self, request: &Release) -> Result<Released, StoreError> {
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(&request.name);
        let call = Call::new()
            .key(of.lease)
            .key(of.waiters)
            .arg(request.owner.to_string())
            .arg(request.token.map(|token| token.to_string()).unwrap_or_default())
            .arg(&self.handle)
            .arg(of.channel);
        match self.server.run(of.route, &script::RELEASE, &call, until).await? {
            Value::Int(-1) => Ok(Released::NotYours),
            Value::Int(chosen) => Ok(Released::Released { others_chosen: chosen > 0 }),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn evict_lease(
        &self,
        name: &LeaseName,
        how: Eviction,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(name);
        let call = Call::new()
            .key(&of.lease)
            .key(of.waiters)
            .arg(match how {
                Eviction::Replace => EVICTED,
                Eviction::Delete => "delete",
            })
            .arg(of.channel);
        let answer = self.server.run(of.route, &script::EVICT, &call, until).await?;
        let Value::Array(parts) = &answer else { return Err(strange(&answer)) };
        match &parts[..] {
            [Value::BulkString(what)] if what == b"none" => Ok(None),
            [Value::BulkString(what), Value::BulkString(value), Value::Int(remaining)]
                if what == b"evicted" =>
            {
                Ok(Some(record::lease(name.clone(), value, record::remaining(*remaining))))
            }
            _ => Err(not_ours(&answer, &of.lease)),
        }
    }
}

fn write(to: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // Memory takes whatever is written to it.
    let _ = to.write_fmt(text);
}

/// The places, from 0, of those that the script for renewals says are not their owners'.
fn lost_places(answer: &Value, asked: usize) -> Result<Vec<usize>, StoreError> {
    let Value::Array(lost) = answer else { return Err(strange(answer)) };
    let place = |index: &Value| match index {
        Value::Int(index) => usize::try_from(*index - 1).ok().filter(|place| *place < asked),
        _ => None,
    };
    lost.iter().map(|index| place(index).ok_or_else(|| strange(answer))).collect()
}

/// Something that a lease's key should not hold, and what to do about it.
fn not_ours(answer: &Value, lease: &[u8]) -> StoreError {
    let Value::Array(parts) = answer else { return strange(answer) };
    match &parts[..] {
        [Value::BulkString(what), Value::BulkString(value)] if what == b"endless" => {
            let (key, value) = (record::shown(lease), record::shown(value));
            StoreError::rejected(format!(
                "the key {key:?} has the value {value:?} and no TTL: another program has put it there, and nothing will end \
                 it; delete the key if nobody needs it, and have that program set a TTL (SET … NX PX)"
            ))
        }
        [Value::BulkString(what), Value::BulkString(key)] if what == b"type" => wrong_type(key),
        _ => strange(answer),
    }
}

/// A key that holds a list, a hash or the like.
pub(crate) fn wrong_type(key: &[u8]) -> StoreError {
    StoreError::rejected(format!(
        "the key {:?} does not hold a string, so it is not one of ours: give one of the two programs another prefix, or \
         delete the key if nobody needs it",
        record::shown(key)
    ))
}

/// No token can be above what this key holds.
pub(crate) fn no_high_water(key: &[u8], value: &[u8]) -> StoreError {
    StoreError::rejected(format!(
        "the key {:?} should hold the highest token given so far, but holds {:?}: no token can be made above that; set \
         it to the highest token that your programs have seen, or delete it if they have seen none above the server's \
         clock in microseconds",
        record::shown(key),
        record::shown(value)
    ))
}
