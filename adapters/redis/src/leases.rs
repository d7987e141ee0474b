//! Leases: taken, extended and ended by scripts.

use redis::Value;
use std::time::Duration;
use tenure_core::{LeaseName, Token};
use tenure_store::{
    Acquire, Acquired, Eviction, LeaseRecord, Release, Released, Renew, Renewed, StoreError, check_floor,
    clock,
};

use crate::client::Client;
use crate::error::strange;
use crate::record;
use crate::script::{self, Call};

/// Numbers in Lua are exact up to 2^53; there must be room above the floor.
pub(crate) const HIGHEST_FLOOR: Token = Token::new((1 << 53) - (1 << 32));

impl Client {
    pub(crate) async fn acquire_lease(&self, request: &Acquire) -> Result<Acquired, StoreError> {
        self.limits.check_acquire(request)?;
        check_floor(request, HIGHEST_FLOOR)?;
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(&request.name);
        let call = Call::new()
            .key(of.lease)
            .key(keys.high_water(of.route))
            .key(of.waiters)
            .key(of.waiting)
            .arg(request.owner.to_string())
            .arg(millis(request.ttl))
            .arg(request.floor.get())
            .arg("")
            .arg(&self.handle)
            .arg(u8::from(request.wait))
            .arg(of.channel);
        let answer = self.server.run(of.route, &script::ACQUIRE, &call, until).await?;
        let Value::Array(parts) = &answer else { return Err(strange(&answer)) };
        match &parts[..] {
            [Value::BulkString(granted), Value::BulkString(token)] if granted == b"granted" => {
                let token = str::from_utf8(token).ok().and_then(|token| token.parse().ok());
                token.map(|token| Acquired::Granted(Token::new(token))).ok_or_else(|| strange(&answer))
            }
            [Value::BulkString(held), Value::BulkString(value), Value::Int(remaining)] if held == b"held" => {
                let remaining = Duration::from_millis(u64::try_from(*remaining).unwrap_or(0));
                Ok(Acquired::Held(record::holder(value, remaining)))
            }
            _ => Err(strange(&answer)),
        }
    }

    /// Renews leases of one route in one call; one result for each.
    pub(crate) async fn renew_leases(&self, requests: &[Renew]) -> Vec<Result<Renewed, StoreError>> {
        let mut results = Vec::new();
        for request in requests {
            results.push(self.renew_one(request).await.map_err(|error| error.about(&request.name)));
        }
        results
    }

    async fn renew_one(&self, request: &Renew) -> Result<Renewed, StoreError> {
        self.limits.check_renew(request)?;
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let (route, lease) = keys.lease_alone(&request.name);
        let mine = format!("{}:{}", request.token, request.owner);
        let call = Call::new().key(lease).arg(mine).arg(millis(request.ttl));
        match self.server.run(route, &script::RENEW, &call, until).await? {
            Value::Array(lost) if lost.is_empty() => Ok(Renewed::Renewed),
            Value::Array(_) => Ok(Renewed::NotYours),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn release_lease(&self, request: &Release) -> Result<Released, StoreError> {
        let until = clock::now() + request.timeout;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(&request.name);
        let call = Call::new()
            .key(of.lease)
            .key(of.waiters)
            .key(of.waiting)
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
        _how: Eviction,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        Err(StoreError::unsupported(format!("not yet: {name}")))
    }
}

/// A TTL as the server takes it, never shorter than was asked for.
pub(crate) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
