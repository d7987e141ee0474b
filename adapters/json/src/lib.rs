//! Records as texts, for stores that keep text: one JSON object each, with the number of its format in `v`.
//!
//! Whole numbers have up to 64 bits: times are nanoseconds since 1970, and lengths of time nanoseconds. A program of
//! another language must read them as they stand, not as numbers with a fraction, which are exact to 2^53 only. Fields
//! that this version does not know are not kept by it; whoever adds one that matters raises `v`.

pub mod member;
pub mod run;
pub mod timer;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
pub use serde_json::Value;
use tenure_core::{Instant, Tick, Timestamp};
use tenure_store::Metadata;

/// The format that this version writes, and the only one that it reads.
pub const FORMAT: u64 = 1;

/// Why a record can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what is no record is of others, and what is one has a problem")]
pub enum Unreadable {
    /// It is of another program: no record at all.
    Foreign,
    /// It is one, but of a newer version, or damaged; in words.
    Problem(String),
}

impl Unreadable {
    /// It is a record, and this is wrong with it.
    pub fn damaged(what: impl fmt::Display) -> Self {
        Self::Problem(format!("the record is damaged: {what}"))
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the record is that of another program"),
            Self::Problem(problem) => f.write_str(problem),
        }
    }
}

/// A record that is being written.
#[derive(Debug)]
pub struct Writer(String);

impl Writer {
    /// A whole record.
    pub fn record() -> Self {
        Self(format!("{{\"v\":{FORMAT}"))
    }

    /// An object within a record.
    pub fn within() -> Self {
        Self("{".to_owned())
    }

    /// A field.
    pub fn field(self, name: &str, value: impl Into<Value>) -> Self {
        self.raw(name, &value.into())
    }

    /// A field with what is JSON already.
    pub fn raw(mut self, name: &str, value: &impl fmt::Display) -> Self {
        let comma = if self.0.ends_with('{') { "" } else { "," };
        // A text takes whatever is written.
        let _ = write!(self.0, "{comma}\"{name}\":{value}");
        self
    }

    /// A field, if there is something to be said.
    pub fn some<T: Into<Value>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// A field that is only there if it is true.
    pub fn flag(self, name: &str, set: bool) -> Self {
        if set { self.field(name, true) } else { self }
    }

    /// A length of time, in nanoseconds; what has more than 64 bits is written as the longest.
    pub fn length(self, name: &str, time: Duration) -> Self {
        self.field(name, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// What is kept of the process.
    pub fn metadata(self, metadata: &Metadata) -> Self {
        let Metadata { host, pid, text, .. } = metadata;
        self.some("host", host.as_deref()).some("pid", *pid).some("text", text.as_deref())
    }

    /// The text.
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Objects, or anything else that was written, as an array.
pub fn array<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut text = "[".to_owned();
    for item in items {
        let comma = if text.len() > 1 { "," } else { "" };
        let _ = write!(text, "{comma}{item}");
    }
    text.push(']');
    text
}

/// An object that is being read. What is missing or wrong is an error that names the field.
#[derive(Clone, Debug)]
pub struct Object(Map<String, Value>);

impl Object {
    /// A whole record, of the format that this version reads.
    pub fn record(bytes: &[u8]) -> Result<Self, Unreadable> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else {
            return Err(Unreadable::Foreign);
        };
        match fields.get("v").map(Value::as_u64) {
            Some(Some(FORMAT)) => Ok(Self(fields)),
            Some(Some(format)) => Err(Unreadable::Problem(format!(
                "the record has format {format}, this program knows format {FORMAT}; update it to read the record"
            ))),
            Some(None) => Err(Unreadable::damaged("its format is no number")),
            None => Err(Unreadable::Foreign),
        }
    }

    /// An object within a record.
    pub fn within(value: Value) -> Result<Self, Unreadable> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Unreadable::damaged("a part of it is no object")),
        }
    }

    /// A number of 64 bits.
    pub fn whole(&self, name: &str) -> Result<u64, Unreadable> {
        self.field(name, "a whole number", Value::as_u64)
    }

    /// A number of at most 32 bits.
    pub fn small(&self, name: &str) -> Result<u32, Unreadable> {
        self.field(name, "a number of at most 32 bits", |value| value.as_u64()?.try_into().ok())
    }

    /// A time of the wall clock, in nanoseconds since 1970.
    pub fn time(&self, name: &str) -> Result<Timestamp, Unreadable> {
        self.field(name, "a time", |value| value.as_i64().map(Timestamp::from_nanos))
    }

    /// A time of the clock of expiry, in nanoseconds.
    pub fn instant(&self, name: &str) -> Result<Instant, Unreadable> {
        self.whole(name).map(Instant::from_nanos)
    }

    /// A length of time, in nanoseconds.
    pub fn length(&self, name: &str) -> Result<Duration, Unreadable> {
        self.whole(name).map(Duration::from_nanos)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<&str, Unreadable> {
        self.field(name, "a text", Value::as_str)
    }

    /// A field that is only written if it is set.
    pub fn flag(&self, name: &str) -> Result<bool, Unreadable> {
        Ok(self.optional(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A field that need not be there.
    pub fn optional<'a, T>(
        &'a self,
        name: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Unreadable> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| wrong(name, what)),
        }
    }

    /// A field that must be there; `what` says for the error what it should be.
    pub fn field<'a, T>(
        &'a self,
        name: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, Unreadable> {
        self.0.get(name).and_then(read).ok_or_else(|| wrong(name, what))
    }

    /// A tick, as `{"n":number,"at":time}`.
    pub fn tick(&self, name: &str) -> Result<Tick, Unreadable> {
        let tick = self.object(name)?.ok_or_else(|| wrong(name, "a tick"))?;
        Ok(Tick { n: tick.whole("n")?, at: tick.time("at")? })
    }

    /// An object within it, if there is one.
    pub fn object(&self, name: &str) -> Result<Option<Self>, Unreadable> {
        self.optional(name, "an object", |value| Self::within(value.clone()).ok())
    }

    /// A list.
    pub fn list(&self, name: &str) -> Result<&[Value], Unreadable> {
        self.field(name, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// What is kept of a process.
    pub fn metadata(&self) -> Result<Metadata, Unreadable> {
        let text = |name: &str| self.optional(name, "a text", |value| value.as_str().map(Arc::from));
        let mut metadata = Metadata::new();
        metadata.host = text("host")?;
        metadata.pid =
            self.optional("pid", "a number of at most 32 bits", |value| value.as_u64()?.try_into().ok())?;
        metadata.text = text("text")?;
        Ok(metadata)
    }
}

fn wrong(name: &str, what: &str) -> Unreadable {
    Unreadable::damaged(format_args!("{name:?} is not {what}"))
}
