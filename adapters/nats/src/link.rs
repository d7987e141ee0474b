//! The way to the bucket: a connection that is made when it is first needed, and what is read and written over it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use serde_json::{Value, json};
use tenure_core::{Instant, Timestamp};
use tenure_store::{StoreError, StoreTime, clock};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time;

use crate::bucket;
use crate::connection::{Connection, NoAnswer};
use crate::error::{Refusal, only_read, strange};
use crate::names::Names;
use crate::options::NatsOptions;
use crate::times;

/// How long one request may take of those that say nothing about it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the trace of a record is kept that was removed, for those who watch the bucket by other means.
const PURGED: Duration = Duration::from_secs(10);

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, StoreError>>>;

/// The way to the bucket.
pub(crate) struct Link {
    options: NatsOptions,
    pub(crate) names: Names,
    connecting: Mutex<Option<Connecting>>,
    /// When the bucket was made that was last looked at.
    checked: AsyncMutex<String>,
    /// One above the number of gaps at which the bucket was last looked at; zero if it is to be looked at again.
    checked_at: AtomicU64,
    /// Rises when the bucket turns out to be another one.
    epoch: AtomicU64,
}

/// A record as it stands, or the trace of one that is gone.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) subject: String,
    /// The number of the write.
    pub(crate) sequence: u64,
    /// The server's time of it.
    pub(crate) time: Timestamp,
    /// It is the trace of a record that has ended.
    pub(crate) gone: bool,
    /// What the server ends it after.
    pub(crate) ttl: Option<Duration>,
    pub(crate) data: Vec<u8>,
}

/// What a conditional write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Written, with this number.
    Written(u64),
    /// The condition did not hold: nothing was written.
    Changed,
}

impl Link {
    pub(crate) fn new(options: &NatsOptions) -> Self {
        Self {
            options: options.clone(),
            names: Names::new(&options.bucket),
            connecting: Mutex::new(None),
            checked: AsyncMutex::new(String::new()),
            checked_at: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// Rises when the bucket turns out to be another one: what was read before is of no use then.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The connection, whatever the bucket is like; made if there is none. Must be polled where the library's tasks can run.
    async fn connection(&self, until: Instant) -> Result<Arc<Connection>, StoreError> {
        let connecting = {
            let mut connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
            let make = || {
                let options = self.options.clone();
                let task = tokio::spawn(async move { Connection::open(&options).await.map(Arc::new) });
                let made = task.map(|made| {
                    made.unwrap_or_else(|_| {
                        Err(StoreError::transient("the store was closed while connecting"))
                    })
                });
                made.boxed().shared()
            };
            connecting.get_or_insert_with(make).clone()
        };
        let rest = until.saturating_since(clock::now());
        let made = time::timeout(rest, connecting.clone()).await.map_err(|_| {
            StoreError::transient(format!("there was no connection to {} in {rest:?} yet", self.options))
        })?;
        if made.is_err() {
            let mut current = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
            if current.as_ref().is_some_and(|current| current.ptr_eq(&connecting)) {
                *current = None;
            }
        }
        made
    }

    /// The connection, with a bucket that can be used.
    pub(crate) async fn ready(&self, until: Instant) -> Result<Arc<Connection>, StoreError> {
        let connection = self.connection(until).await?;
        let gaps = || *connection.events.gaps().borrow();
        if self.checked_at.load(Ordering::Acquire) == gaps() + 1 {
            return Ok(connection);
        }
        let rest = until.saturating_since(clock::now());
        let late = |_| StoreError::transient("the bucket is not looked at yet");
        let mut checked = time::timeout(rest, self.checked.lock()).await.map_err(late)?;
        let at = gaps();
        if self.checked_at.load(Ordering::Acquire) == at + 1 {
            return Ok(connection);
        }
        let limit = until.min(clock::now() + self.options.connect_timeout);
        let created = bucket::ensure(&connection, &self.options, &self.names, limit).await?;
        if *checked != created {
            *checked = created;
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.checked_at.store(at + 1, Ordering::Release);
        Ok(connection)
    }

    /// Forgets the connection; whoever needs one makes another.
    pub(crate) async fn close(&self) {
        let connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.checked_at.store(0, Ordering::Release);
        if let Some(Some(Ok(connection))) = connecting.map(FutureExt::now_or_never) {
            let _ = time::timeout(PATIENCE, connection.client.flush()).await;
            // What listens ends by it.
            let _ = time::timeout(PATIENCE, connection.client.drain()).await;
        }
    }

    /// What stands under a subject, as the leader of the stream has it.
    pub(crate) async fn get(&self, subject: &str, until: Instant) -> Result<Option<Stored>, StoreError> {
        self.message(&json!({ "last_by_subj": subject }), until).await
    }

    /// The first of what stands under these subjects whose number is not below this.
    pub(crate) async fn next(
        &self,
        subjects: &str,
        sequence: u64,
        until: Instant,
    ) -> Result<Option<Stored>, StoreError> {
        self.message(&json!({ "seq": sequence.max(1), "next_by_subj": subjects }), until).await
    }

    async fn message(&self, which: &Value, until: Instant) -> Result<Option<Stored>, StoreError> {
        let what = format!("STREAM.MSG.GET.{}", self.names.stream());
        let answer = self.read(&what, which, until).await?;
        match Refusal::of(&answer) {
            None => stored(&answer).map(Some).ok_or_else(|| strange(&answer)),
            Some(refusal) if refusal.code == Refusal::NO_MESSAGE => Ok(None),
            Some(refusal) => Err(self.refused(&refusal)),
        }
    }

    /// The time of the server that leads the stream. It goes by the same clock as records do that end.
    pub(crate) async fn time(&self, until: Instant) -> Result<StoreTime, StoreError> {
        let info = self.info(&Value::Null, until).await?;
        time_of(&info).ok_or_else(|| strange(&info))
    }

    /// The subjects that match, and the server's time.
    pub(crate) async fn subjects(
        &self,
        filter: &str,
        until: Instant,
    ) -> Result<(StoreTime, BTreeSet<String>), StoreError> {
        let mut found = BTreeSet::new();
        loop {
            let request = json!({ "subjects_filter": filter, "offset": found.len() });
            let info = self.info(&request, until).await?;
            let time = time_of(&info).ok_or_else(|| strange(&info))?;
            let page = info.get("state").and_then(|state| state.get("subjects")).and_then(Value::as_object);
            let before = found.len();
            found.extend(page.into_iter().flat_map(|page| page.keys().cloned()));
            let total = info.get("total").and_then(Value::as_u64).unwrap_or_default();
            if found.len() as u64 >= total || found.len() == before {
                return Ok((time, found));
            }
        }
    }

    async fn info(&self, request: &Value, until: Instant) -> Result<Value, StoreError> {
        let info = self.read(&format!("STREAM.INFO.{}", self.names.stream()), request, until).await?;
        match Refusal::of(&info) {
            None => Ok(info),
            Some(refusal) => Err(self.refused(&refusal)),
        }
    }

    async fn read(&self, what: &str, request: &Value, until: Instant) -> Result<Value, StoreError> {
        let connection = self.ready(until).await?;
        match connection.ask_again(what, request, until).await {
            Ok(answer) => Ok(answer),
            Err(no_answer) => Err(only_read(self.unanswered(no_answer))),
        }
    }

    /// Writes a record if the last write there has this number; zero if there must be none. Sent once.
    pub(crate) async fn write(
        &self,
        subject: &str,
        data: Vec<u8>,
        last: u64,
        ttl: Duration,
        until: Instant,
    ) -> Result<Wrote, StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
        headers.insert("Nats-TTL", format!("{}s", times::seconds(ttl)));
        self.publish(subject, headers, data, until).await
    }

    /// Writes a record that has no end, on the same condition.
    pub(crate) async fn write_endless(
        &self,
        subject: &str,
        data: Vec<u8>,
        last: u64,
        until: Instant,
    ) -> Result<Wrote, StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
        self.publish(subject, headers, data, until).await
    }

    /// Writes a record that nothing depends on, whatever stands there.
    pub(crate) async fn put(
        &self,
        subject: &str,
        data: Vec<u8>,
        ttl: Duration,
        until: Instant,
    ) -> Result<Wrote, StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-TTL", format!("{}s", times::seconds(ttl)));
        self.publish(subject, headers, data, until).await
    }

    /// Removes a record if the last write there has this number. A trace of it stays for a while, which ends by itself.
    pub(crate) async fn purge(&self, subject: &str, last: u64, until: Instant) -> Result<Wrote, StoreError> {
        let mut headers = purge(PURGED);
        headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
        self.publish(subject, headers, Vec::new(), until).await
    }

    /// Removes a record that nothing depends on, whatever stands there.
    pub(crate) async fn remove(&self, subject: &str, until: Instant) -> Result<Wrote, StoreError> {
        self.publish(subject, purge(Duration::from_secs(1)), Vec::new(), until).await
    }

    async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        data: Vec<u8>,
        until: Instant,
    ) -> Result<Wrote, StoreError> {
        let connection = self.ready(until).await?;
        let answer = match connection.request(subject, Some(headers), data, until).await {
            Ok(answer) => answer,
            Err(no_answer) => return Err(self.unanswered(no_answer)),
        };
        let strange = |text: &[u8]| strange(&Value::from(String::from_utf8_lossy(text)));
        let answer: Value = serde_json::from_slice(&answer.payload).map_err(|_| strange(&answer.payload))?;
        match Refusal::of(&answer) {
            None => {
                let sequence = answer.get("seq").and_then(Value::as_u64).filter(|sequence| *sequence > 0);
                sequence.map(Wrote::Written).ok_or_else(|| strange(answer.to_string().as_bytes()))
            }
            Some(refusal) if refusal.condition_failed() => Ok(Wrote::Changed),
            Some(refusal) => Err(self.refused(&refusal)),
        }
    }

    /// Tells all who listen, once; nobody answers.
    pub(crate) async fn tell(&self, subject: String, text: String) {
        let until = clock::now() + PATIENCE;
        if let Ok(connection) = self.ready(until).await {
            // What can't be told now is no news later.
            let _ = time::timeout(PATIENCE, connection.client.publish(subject, text.into())).await;
        }
    }

    fn refused(&self, refusal: &Refusal) -> StoreError {
        if refusal.code == Refusal::NO_STREAM {
            self.checked_at.store(0, Ordering::Release);
        }
        refusal.error()
    }

    fn unanswered(&self, no_answer: NoAnswer) -> StoreError {
        match no_answer {
            NoAnswer::Refused(error) | NoAnswer::Late(error) => error,
            NoAnswer::Nobody => {
                self.checked_at.store(0, Ordering::Release);
                StoreError::transient("the stream of the bucket has no leader now, or is gone")
            }
        }
    }
}

fn purge(trace: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("KV-Operation", "PURGE");
    headers.insert("Nats-Rollup", "sub");
    headers.insert("Nats-TTL", format!("{}s", times::seconds(trace)));
    headers
}

fn time_of(info: &Value) -> Option<StoreTime> {
    let wall = times::parse(info.get("ts")?.as_str()?)?;
    Some(StoreTime { wall, now: instant(wall) })
}

/// The server's wall clock as the clock of expiry, which it is.
pub(crate) fn instant(wall: Timestamp) -> Instant {
    Instant::from_nanos(u64::try_from(wall.as_nanos()).unwrap_or_default())
}

/// A message as the server tells it.
fn stored(answer: &Value) -> Option<Stored> {
    let message = answer.get("message")?;
    let bytes = |name: &str| match message.get(name) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(value) => STANDARD.decode(value.as_str()?).ok(),
    };
    let headers = bytes("hdrs")?;
    let headers = String::from_utf8_lossy(&headers);
    let header = |name: &str| {
        headers.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let gone = header("Nats-Marker-Reason").is_some()
        || header("KV-Operation").is_some_and(|operation| matches!(operation, "DEL" | "PURGE"));
    Some(Stored {
        subject: message.get("subject")?.as_str()?.to_owned(),
        sequence: message.get("seq")?.as_u64()?,
        time: times::parse(message.get("time")?.as_str()?)?,
        gone,
        ttl: header("Nats-TTL").and_then(times::ttl),
        data: bytes("data")?,
    })
}

/// Somebody else was faster: waits a moment, so that those who meet don't meet again.
///
/// # Errors
/// There is no time for another attempt.
pub(crate) async fn again(until: Instant) -> Result<(), StoreError> {
    let mut bits = [0; 1];
    // Without random numbers all wait equally long, which does no harm where one of them always succeeds.
    let _ = getrandom::fill(&mut bits);
    let pause = Duration::from_millis(1 + u64::from(bits[0]) % 20);
    if clock::now() + pause >= until {
        return Err(StoreError::transient("others change the same record all the time; nothing was done"));
    }
    time::sleep(pause).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: &str, data: Option<&str>) -> Stored {
        let mut message = json!({
            "subject": "$KV.t.lease.ka", "seq": 1_796_130_328_619_953_u64, "time": "2026-12-01T13:05:28.5Z",
            "hdrs": STANDARD.encode(headers),
        });
        if let Some(data) = data {
            message["data"] = STANDARD.encode(data).into();
        }
        stored(&json!({ "message": message })).unwrap()
    }

    #[test]
    fn a_record_and_the_traces_of_one_are_told_apart_by_their_headers() {
        let record = message("NATS/1.0\r\nNats-TTL: 2s\r\n\r\n", Some("{}"));
        assert_eq!(
            (record.gone, record.ttl, &*record.data),
            (false, Some(Duration::from_secs(2)), &b"{}"[..])
        );
        assert_eq!(record.sequence, 1_796_130_328_619_953);
        assert!(!message("", None).gone, "an empty record is one");
        for headers in
            ["Nats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s", "KV-Operation: PURGE", "kv-operation:DEL"]
        {
            assert!(message(&format!("NATS/1.0\r\n{headers}\r\n\r\n"), None).gone, "{headers}");
        }
        assert!(!message("NATS/1.0\r\nKV-Operation: PUT\r\n\r\n", None).gone);
        assert!(stored(&json!({ "message": { "seq": 1 } })).is_none());
    }
}
