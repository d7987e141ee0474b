//! Warnings that don't come in floods.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use tenure_core::{AcquireFailure, Instant, Token};

#[cfg(test)]
use crate::events::Definition;
use crate::events::{LOST_TARGET, TARGET};
use crate::subject::Subject;

/// Kinds of trouble, each limited on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request to the store failed or was not answered.
    Store,
    /// The store has lost its memory.
    Regressed,
    /// A renewal failed.
    InDoubt,
    /// A lease was lost.
    Lost,
    /// The driver was kept from running.
    Starved,
    /// A grant came too late.
    TooLate,
    /// The work of a worker or a run failed.
    Work,
    /// It was stopped, and does not end.
    Stuck,
    /// Ticks were missed, or not run.
    Missed,
    /// Ticks were not run because a run was going on, as the policy has it.
    Overlap,
    /// A schedule can't be read.
    Unreadable,
    /// The store's clock was set back.
    Rebased,
    /// A heartbeat failed.
    Heartbeat,
    /// The record of a run could not be written.
    Record,
    /// The store, or this program, does what it must not do.
    Bug,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Store,
        Self::Regressed,
        Self::InDoubt,
        Self::Lost,
        Self::Starved,
        Self::TooLate,
        Self::Work,
        Self::Stuck,
        Self::Missed,
        Self::Overlap,
        Self::Unreadable,
        Self::Rebased,
        Self::Heartbeat,
        Self::Record,
        Self::Bug,
    ];

    /// The name of its events.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Store => "store.failed",
            Self::Regressed => "store.regressed",
            Self::InDoubt => "lease.in_doubt",
            Self::Lost => "lease.lost",
            Self::Starved => "lease.starved",
            Self::TooLate => "lease.granted_too_late",
            Self::Work => "work.failed",
            Self::Stuck => "work.stuck",
            Self::Missed => "tick.missed",
            Self::Overlap => "tick.overlapped",
            Self::Unreadable => "timer.unreadable",
            Self::Rebased => "timer.rebased",
            Self::Heartbeat => "instance.heartbeat_failed",
            Self::Record => "record.lost",
            Self::Bug => "store.misbehaved",
        }
    }

    /// Whether it is what the user wants, and not trouble.
    const fn is_wanted(self) -> bool {
        matches!(self, Self::Overlap)
    }

    /// What they come to in the summary.
    const fn what(self) -> &'static str {
        match self {
            Self::Store => "requests to the store failed",
            Self::Regressed => "grants had tokens that were not above those seen before",
            Self::InDoubt => "renewals failed and are tried again",
            Self::Lost => "leases were lost",
            Self::Starved => "renewals were sent late because this program was kept from running",
            Self::TooLate => "leases were granted too late to be of use",
            Self::Work => "work failed",
            Self::Stuck => "work was stopped and does not end",
            Self::Missed => "ticks were missed",
            Self::Overlap => "ticks were skipped because a run was going on",
            Self::Unreadable => "schedules could not be read",
            Self::Rebased => "timers count on from now, since the store's clock was set back",
            Self::Heartbeat => "heartbeats failed and are tried again",
            Self::Record => "records of runs could not be written",
            Self::Bug => "surprises in the store's answers",
        }
    }
}

/// What a case is about, and what is told of it in fields.
#[derive(Clone, Copy, Default)]
pub(crate) struct Case<'a> {
    pub(crate) subject: Option<&'a Subject>,
    pub(crate) token: Option<Token>,
    pub(crate) reason: Option<&'static str>,
}

impl<'a> From<&'a Subject> for Case<'a> {
    fn from(subject: &'a Subject) -> Self {
        Some(subject).into()
    }
}

impl<'a> From<Option<&'a Subject>> for Case<'a> {
    fn from(subject: Option<&'a Subject>) -> Self {
        Self { subject, ..Self::default() }
    }
}

impl Case<'_> {
    pub(crate) const fn with_token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    pub(crate) const fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}

/// The first of each kind are logged as they come; what follows within half a minute becomes one line.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    windows: [Window; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct Window {
    ends_at: Option<Instant>,
    /// How many were logged one by one.
    single: u32,
    /// How many were not.
    more: u64,
    subjects: HashSet<Subject>,
    last: String,
}

/// So many are logged one by one.
const SINGLE: u32 = 3;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(30);

impl Trouble {
    /// Logs, or counts, one case.
    pub(crate) fn warn<'a>(
        &mut self,
        now: Instant,
        kind: Kind,
        case: impl Into<Case<'a>>,
        text: impl fmt::Display,
    ) {
        let case = case.into();
        self.sum_up(now);
        let Some(window) = self.windows.get_mut(kind as usize) else { return };
        window.ends_at.get_or_insert(now + WINDOW);
        let single = window.single < SINGLE;
        write(kind, single, case, &text);
        if single {
            window.single += 1;
            return;
        }
        window.more += 1;
        window.subjects.extend(case.subject.cloned());
        window.last = text.to_string();
    }

    /// When the next summary is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.windows.iter().filter(|window| window.more > 0).filter_map(|window| window.ends_at).min()
    }

    /// Logs the summaries that are due.
    pub(crate) fn sum_up(&mut self, now: Instant) {
        for (window, kind) in self.windows.iter_mut().zip(Kind::ALL) {
            let Some(ends_at) = window.ends_at.filter(|ends_at| *ends_at <= now) else { continue };
            if window.more == 0 {
                *window = Window::default();
                continue;
            }
            let leases = window.subjects.iter().all(|subject| subject.lease().is_some());
            let concerned = match window.subjects.len() {
                0 => String::new(),
                count if leases => format!(", {count} leases concerned"),
                count => format!(", {count} of leases, ticks and jobs concerned"),
            };
            let (what, more, last) = (kind.what(), window.more, &window.last);
            let line = format_args!("{what}: {more} more within {WINDOW:?}{concerned}; the last: {last}");
            let of = kind.name();
            if kind.is_wanted() {
                tracing::info!(target: TARGET, event = SUMMARY, of, more, "{line}");
            } else {
                tracing::warn!(target: TARGET, event = SUMMARY, of, more, "{line}");
            }
            // As long as it goes on, only summaries are logged.
            *window =
                Window { single: SINGLE, ends_at: Some(ends_at.max(now) + WINDOW), ..Window::default() };
        }
    }

    /// Logs what was not logged yet, at the end.
    pub(crate) fn flush(&mut self) {
        self.sum_up(Instant::MAX);
    }
}

/// What it is that a candidacy under which something was to run has failed.
pub(crate) fn refused(subject: &Subject, why: AcquireFailure) -> (Kind, Case<'_>) {
    match why {
        AcquireFailure::StoreRegressed { token, .. } => {
            (Kind::Regressed, Case::from(subject).with_token(token))
        }
        _ => (Kind::Store, subject.into()),
    }
}

/// The name of the lines that sum up.
pub(crate) const SUMMARY: &str = "trouble.summary";

fn write(kind: Kind, single: bool, case: Case<'_>, text: &dyn fmt::Display) {
    let Case { subject, token, reason } = case;
    let (lease, timer) = (subject.and_then(Subject::lease), subject.and_then(Subject::timer));
    let (tick, job) = (subject.and_then(Subject::tick), subject.and_then(Subject::job));
    let (event, token) = (kind.name(), token.map(Token::get));
    macro_rules! write {
        ($level:ident, $target:expr) => {
            tracing::$level!(target: $target, event, lease, timer, tick, job, token, reason, "{text}")
        };
    }
    match (single, kind) {
        (false, _) => write!(debug, TARGET),
        // Apart, for programs that tell of it by themselves.
        (true, Kind::Lost) => write!(warn, LOST_TARGET),
        (true, kind) if kind.is_wanted() => write!(info, TARGET),
        (true, _) => write!(warn, TARGET),
    }
}

/// What may be told by [`Trouble`], for the guide.
#[cfg(test)]
pub(crate) fn defined() -> Vec<Definition> {
    let kinds = Kind::ALL.into_iter().map(|kind| {
        let fields: &[&str] = match kind {
            Kind::Store => &["lease", "timer", "tick"],
            Kind::Regressed | Kind::InDoubt | Kind::TooLate => &["lease", "timer", "tick", "token"],
            Kind::Starved => &["lease", "timer", "tick"],
            Kind::Lost => &["lease", "timer", "tick", "token", "reason"],
            Kind::Work => &["lease", "timer", "tick", "reason"],
            Kind::Stuck => &["lease", "timer", "tick"],
            Kind::Missed | Kind::Overlap => &["timer", "tick", "reason"],
            Kind::Unreadable | Kind::Rebased => &["timer"],
            Kind::Heartbeat => &[],
            Kind::Record => &["job"],
            Kind::Bug => &["lease", "timer", "tick"],
        };
        let about = match kind {
            Kind::Store => "A request to the store failed, was not answered, or was refused.",
            Kind::Regressed => {
                "The store granted a token that is not above those seen before: it has lost its memory. The grant is \
                 given back. A candidate that hears of it by an error makes no line."
            }
            Kind::InDoubt => "A renewal failed, and is tried again; the text says until when the work may go on.",
            Kind::Lost => {
                "A lease or a claim is lost; `reason` is `expired`, `not_yours` or `abandoned`. The only event of the \
                 target `tenure::lost`."
            }
            Kind::Starved => "A renewal was sent late because this program was kept from running.",
            Kind::TooLate => "The store granted a lease so late that no time for work was left.",
            Kind::Work => "Work returned an error or panicked; `reason` as `outcome` with `work.ended`.",
            Kind::Stuck => "Work was stopped and does not end: it blocks its thread.",
            Kind::Missed => "Ticks were missed, or not run; `reason` as with the metric `tenure_ticks_missed_total`.",
            Kind::Overlap => "A tick is not run because a run is going on, as the policy has it.",
            Kind::Unreadable => "The schedule at the store can't be read by this program: no ticks until it can.",
            Kind::Rebased => "The store's clock was set back; ticks count on from now.",
            Kind::Heartbeat => "A heartbeat failed, and is tried again.",
            Kind::Record => "A run is not recorded as it went.",
            Kind::Bug => "The store, or its adapter, does what it must not do.",
        };
        let level = if kind.is_wanted() { tracing::Level::INFO } else { tracing::Level::WARN };
        let target = if kind == Kind::Lost { LOST_TARGET } else { TARGET };
        Definition { name: kind.name(), level, target, fields: fields.into(), about: about.into() }
    });
    let summary = Definition {
        name: SUMMARY,
        level: tracing::Level::WARN,
        target: TARGET,
        fields: vec!["of", "more"],
        about: "So many `more` events of the name `of` came within half a minute, and were logged at `debug` only. Of \
                `tick.overlapped` at `info`."
            .into(),
    };
    kinds.chain([summary]).collect()
}

#[cfg(test)]
mod tests {
    use tenure_core::LeaseName;

    use super::*;

    #[test]
    fn a_flood_becomes_a_few_lines_and_ends_when_it_ends() {
        let mut trouble = Trouble::default();
        let lease = Subject::Lease(LeaseName::new("a").unwrap());
        let second = |n: u64| Instant::ZERO + Duration::from_secs(n);
        for n in 0..60 {
            for _ in 0..1000 {
                trouble.warn(second(n), Kind::Store, &lease, "no");
            }
        }
        let window = &trouble.windows[Kind::Store as usize];
        assert_eq!(window.single, SINGLE);
        assert_eq!(window.more, 30 * 1000);
        assert_eq!(trouble.deadline(), Some(second(60)));
        trouble.sum_up(second(60));
        assert_eq!(trouble.deadline(), None);
        // A window without a case: the next is logged by itself again.
        trouble.sum_up(second(90));
        trouble.warn(second(91), Kind::Store, &lease, "no");
        assert_eq!(trouble.windows[Kind::Store as usize].single, 1);
    }
}
