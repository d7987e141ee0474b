//! Warnings that don't come in floods.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use tenure_core::Instant;

use crate::subject::Subject;

/// Kinds of trouble, each limited on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request to the store failed or was not answered.
    Store,
    /// A renewal failed.
    InDoubt,
    /// A lease was lost.
    Lost,
    /// The driver was kept from running.
    Starved,
    /// A grant came too late.
    TooLate,
    /// The work of a worker or a run failed, or does not end.
    Work,
    /// Ticks were missed, or not run.
    Missed,
    /// Ticks were not run because a run was going on, as the policy has it.
    Overlap,
    /// A schedule can't be followed as it was.
    Schedule,
    /// A heartbeat failed.
    Heartbeat,
    /// The record of a run could not be written.
    Record,
    /// The store, or this program, does what it must not do.
    Bug,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Store,
        Self::InDoubt,
        Self::Lost,
        Self::Starved,
        Self::TooLate,
        Self::Work,
        Self::Missed,
        Self::Overlap,
        Self::Schedule,
        Self::Heartbeat,
        Self::Record,
        Self::Bug,
    ];

    const fn what(self) -> &'static str {
        match self {
            Self::Store => "requests to the store failed",
            Self::InDoubt => "renewals failed and are tried again",
            Self::Lost => "leases were lost",
            Self::Starved => "renewals were sent late because this program was kept from running",
            Self::TooLate => "leases were granted too late to be of use",
            Self::Work => "work failed, or does not end",
            Self::Missed => "ticks were missed",
            Self::Overlap => "ticks were skipped because a run was going on",
            Self::Schedule => "schedules could not be followed",
            Self::Heartbeat => "heartbeats failed and are tried again",
            Self::Record => "records of runs could not be written",
            Self::Bug => "surprises in the store's answers",
        }
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
    pub(crate) fn warn(
        &mut self,
        now: Instant,
        kind: Kind,
        subject: Option<&Subject>,
        text: impl fmt::Display,
    ) {
        self.sum_up(now);
        let Some(window) = self.windows.get_mut(kind as usize) else { return };
        window.ends_at.get_or_insert(now + WINDOW);
        if window.single < SINGLE {
            window.single += 1;
            let (lease, timer) = (subject.and_then(Subject::lease), subject.and_then(Subject::timer));
            let (tick, job) = (subject.and_then(Subject::tick), subject.and_then(Subject::job));
            match kind {
                // Apart, for programs that tell of it by themselves.
                Kind::Lost => tracing::warn!(target: "tenure::lost", lease, timer, tick, "{text}"),
                // It is what the user wants.
                Kind::Overlap => tracing::info!(target: "tenure", timer, tick, "{text}"),
                _ => tracing::warn!(target: "tenure", lease, timer, tick, job, "{text}"),
            }
            return;
        }
        tracing::debug!(target: "tenure", about = subject.map(tracing::field::display), "{text}");
        window.more += 1;
        window.subjects.extend(subject.cloned());
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
            match kind {
                Kind::Overlap => tracing::info!(target: "tenure", "{line}"),
                _ => tracing::warn!(target: "tenure", "{line}"),
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
                trouble.warn(second(n), Kind::Store, Some(&lease), "no");
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
        trouble.warn(second(91), Kind::Store, Some(&lease), "no");
        assert_eq!(trouble.windows[Kind::Store as usize].single, 1);
    }
}
