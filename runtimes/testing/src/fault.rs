//! What can go wrong, by name.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What goes wrong with one instance; see [`Fleet::inject`](crate::Fleet::inject).
///
/// Each has a name that stays: `Display` writes it and `FromStr` reads it, with the time after a colon where there is
/// one.
///
/// | name | what happens |
/// |---|---|
/// | `cut-off` | Neither requests nor answers nor hints pass between the instance and the store. |
/// | `requests-lost` | Requests do not arrive; they are not carried out and never answered. |
/// | `replies-lost` | Requests are carried out and never answered. |
/// | `hints-lost` | The store's hints do not arrive. Once it is over, one says that some are missing. |
/// | `requests-late:3s` | Requests arrive this much later, also those that nobody waits for any more. |
/// | `replies-late:3s` | Requests are carried out at once and answered this much later. |
/// | `requests-repeated:3s` | Requests arrive at once, and a second time this much later. |
/// | `connection-broken` | Requests are carried out, and the connection breaks before the answer: an error, at once. |
/// | `unavailable` | The store can't be reached, and that is known at once: nothing is carried out. |
/// | `refused` | The store refuses each request, as one that lacks a permission. |
/// | `frozen` | Nothing of the process runs while time passes, as in a pause of its machine, or after SIGSTOP. What was on its way to the store arrives. |
/// | `crashed` | The process ends in an instant, as after SIGKILL: nothing is given back. Start it again by its name. |
///
/// What is on its way when another fault begins is hit by that one, too.
///
/// ```
/// use std::time::Duration;
/// use tenure::testing::Fault;
///
/// assert_eq!("cut-off".parse(), Ok(Fault::CutOff));
/// assert_eq!(Fault::RequestsLate(Duration::from_secs(3)).to_string(), "requests-late:3s");
/// assert_eq!(Fault::ALL.len(), 12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// `cut-off`
    CutOff,
    /// `requests-lost`
    RequestsLost,
    /// `replies-lost`
    RepliesLost,
    /// `hints-lost`
    HintsLost,
    /// `requests-late`
    RequestsLate(Duration),
    /// `replies-late`
    RepliesLate(Duration),
    /// `requests-repeated`
    RequestsRepeated(Duration),
    /// `connection-broken`
    ConnectionBroken,
    /// `unavailable`
    Unavailable,
    /// `refused`
    Refused,
    /// `frozen`
    Frozen,
    /// `crashed`
    Crashed,
}

impl Fault {
    /// One of each kind. Those with a time have 3 s: longer than the driver waits for an answer with the default
    /// timing, and shorter than a lease lives.
    pub const ALL: &[Self] = &[
        Self::CutOff,
        Self::RequestsLost,
        Self::RepliesLost,
        Self::HintsLost,
        Self::RequestsLate(EXAMPLE),
        Self::RepliesLate(EXAMPLE),
        Self::RequestsRepeated(EXAMPLE),
        Self::ConnectionBroken,
        Self::Unavailable,
        Self::Refused,
        Self::Frozen,
        Self::Crashed,
    ];

    /// The name without the time.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CutOff => "cut-off",
            Self::RequestsLost => "requests-lost",
            Self::RepliesLost => "replies-lost",
            Self::HintsLost => "hints-lost",
            Self::RequestsLate(_) => "requests-late",
            Self::RepliesLate(_) => "replies-late",
            Self::RequestsRepeated(_) => "requests-repeated",
            Self::ConnectionBroken => "connection-broken",
            Self::Unavailable => "unavailable",
            Self::Refused => "refused",
            Self::Frozen => "frozen",
            Self::Crashed => "crashed",
        }
    }

    const fn time(&self) -> Option<Duration> {
        match self {
            Self::RequestsLate(time) | Self::RepliesLate(time) | Self::RequestsRepeated(time) => Some(*time),
            Self::CutOff
            | Self::RequestsLost
            | Self::RepliesLost
            | Self::HintsLost
            | Self::ConnectionBroken
            | Self::Unavailable
            | Self::Refused
            | Self::Frozen
            | Self::Crashed => None,
        }
    }

    const fn with_time(self, time: Duration) -> Self {
        match self {
            Self::RequestsLate(_) => Self::RequestsLate(time),
            Self::RepliesLate(_) => Self::RepliesLate(time),
            Self::RequestsRepeated(_) => Self::RequestsRepeated(time),
            Self::CutOff
            | Self::RequestsLost
            | Self::RepliesLost
            | Self::HintsLost
            | Self::ConnectionBroken
            | Self::Unavailable
            | Self::Refused
            | Self::Frozen
            | Self::Crashed => self,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.name(), self.time())
    }
}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let read = || {
            let (name, time) = read(text)?;
            let kind = Self::ALL.iter().find(|kind| kind.name() == name)?;
            match (kind.time(), time) {
                (None, None) => Some(*kind),
                (Some(_), Some(time)) => Some(kind.with_time(time)),
                (Some(_), None) | (None, Some(_)) => None,
            }
        };
        read().ok_or_else(|| UnknownFault::new(text, Self::ALL))
    }
}

/// What goes wrong with the store, for all instances; see [`Fleet::inject_store`](crate::Fleet::inject_store).
///
/// | name | what happens |
/// |---|---|
/// | `down` | It can't be reached, and that is known at once: nothing is carried out. |
/// | `wiped` | It forgets everything: leases, timers, records, members. |
/// | `clock-ahead:1h` | Its wall clock steps this much ahead. |
/// | `clock-back:1h` | Its wall clock steps this much back. |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFault {
    /// `down`
    Down,
    /// `wiped`
    Wiped,
    /// `clock-ahead`
    ClockAhead(Duration),
    /// `clock-back`
    ClockBack(Duration),
}

impl StoreFault {
    /// One of each kind. Those with a time have an hour.
    pub const ALL: &[Self] = &[
        Self::Down,
        Self::Wiped,
        Self::ClockAhead(Duration::from_secs(3600)),
        Self::ClockBack(Duration::from_secs(3600)),
    ];

    /// The name without the time.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Wiped => "wiped",
            Self::ClockAhead(_) => "clock-ahead",
            Self::ClockBack(_) => "clock-back",
        }
    }

    const fn time(&self) -> Option<Duration> {
        match self {
            Self::ClockAhead(time) | Self::ClockBack(time) => Some(*time),
            Self::Down | Self::Wiped => None,
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.name(), self.time())
    }
}

impl FromStr for StoreFault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        match read(text) {
            Some(("down", None)) => Ok(Self::Down),
            Some(("wiped", None)) => Ok(Self::Wiped),
            Some(("clock-ahead", Some(time))) => Ok(Self::ClockAhead(time)),
            Some(("clock-back", Some(time))) => Ok(Self::ClockBack(time)),
            Some(_) | None => Err(UnknownFault::new(text, Self::ALL)),
        }
    }
}

/// The text names no fault, or lacks the time that belongs to it, or has one that does not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownFault {
    /// What was to be read.
    pub text: String,
    known: String,
}

impl UnknownFault {
    fn new(text: &str, known: &[impl ToString]) -> Self {
        let known: Vec<_> = known.iter().map(ToString::to_string).collect();
        Self { text: text.to_owned(), known: known.join(", ") }
    }
}

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no fault: use one like {}", self.text, self.known)
    }
}

impl Error for UnknownFault {}

const EXAMPLE: Duration = Duration::from_secs(3);

/// The units of times, the largest first.
const UNITS: [(&str, Duration); 4] = [
    ("h", Duration::from_secs(3600)),
    ("m", Duration::from_secs(60)),
    ("s", Duration::from_secs(1)),
    ("ms", Duration::from_millis(1)),
];

/// Writes a time in the largest unit of which it is a whole number. What is below a millisecond is left out.
fn write(f: &mut fmt::Formatter<'_>, name: &str, time: Option<Duration>) -> fmt::Result {
    let Some(time) = time else { return f.write_str(name) };
    let whole = |unit: &Duration| time.as_millis() % unit.as_millis() == 0;
    let (unit, length) = match UNITS.into_iter().find(|(_, length)| whole(length)) {
        Some(unit) if !time.is_zero() => unit,
        Some(_) | None => UNITS[2],
    };
    write!(f, "{name}:{}{unit}", time.as_millis() / length.as_millis())
}

/// The name, and the time after the colon if there is one.
fn read(text: &str) -> Option<(&str, Option<Duration>)> {
    let Some((name, time)) = text.split_once(':') else { return Some((text, None)) };
    let digits = time.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = time.split_at(digits);
    let (_, length) = UNITS.into_iter().find(|(known, _)| *known == unit)?;
    Some((name, Some(length.checked_mul(count.parse().ok()?)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_read_as_it_is_written() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(*fault));
        }
        for fault in StoreFault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(*fault));
        }
        for millis in [0, 1, 999, 1000, 61_000, 120_000, 7_200_000, 7_200_001] {
            let fault = Fault::RepliesLate(Duration::from_millis(millis));
            assert_eq!(fault.to_string().parse(), Ok(fault), "{fault}");
        }
    }

    #[test]
    fn what_names_no_fault_is_refused_with_what_does() {
        for text in [
            "",
            "cutoff",
            "cut-off:3s",
            "requests-late",
            "requests-late:",
            "requests-late:3",
            "requests-late:s",
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(
                error.contains("cut-off, requests-lost") && error.contains("requests-late:3s"),
                "{error}"
            );
        }
        for text in ["down:1s", "clock-ahead", "clock-back:99999999999999999999h", "cut-off"] {
            let error = text.parse::<StoreFault>().unwrap_err().to_string();
            assert!(error.contains("down, wiped, clock-ahead:1h"), "{error}");
        }
    }
}
