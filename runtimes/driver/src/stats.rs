//! Counts of what the driver does.

use std::time::Duration;

use tenure_core::{LossReason, ReleaseOutcome};

/// What a [`Tenure`](crate::Tenure) has and has done so far: a snapshot, made once per turn of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Leases that are held now, claims of ticks included.
    pub held: usize,
    /// Candidacies, holds and releases that are not settled now, workers, timers and periodic jobs.
    pub open: usize,
    /// Requests to the store that are on their way or queued now.
    pub in_flight: usize,
    /// Workers that have not ended now, those of coordinators included.
    pub workers: usize,
    /// Timers that have not ended now, those of periodic jobs not included.
    pub timers: usize,
    /// Periodic jobs that have not ended now.
    pub periodics: usize,
    /// Coordinators that have not ended now.
    pub coordinators: usize,
    /// Members of the fleet as last heard, this instance included; 0 for one that has not joined.
    pub members: usize,
    /// Runs whose record is not complete now.
    pub recording: usize,
    /// How late the ticks were that were delivered to streams, and those whose runs began, when that was: by the store's
    /// clock, and without the time that a stream was not read.
    pub lateness: Durations,
    /// Ticks delivered to streams.
    pub ticks: u64,
    /// Ticks claimed for runs of periodic jobs.
    pub claims: u64,
    /// Ticks that this instance should have delivered or run, and has not: because of downtime, lateness, overlap, or a
    /// reader who was too slow.
    pub skipped_ticks: u64,
    /// Reports about runs that were given up.
    pub lost_reports: u64,
    /// Runs of workers and periodic jobs that were handed to the runtime, those included that it came to only when the lease was over.
    pub runs: u64,
    /// Runs that failed: with an error or a panic. Those that were stopped are none of them.
    pub failed_runs: u64,
    /// Workloads that came to belong to this instance.
    pub assigned: u64,
    /// Workloads that ceased to belong to this instance: by a rebalance, a drain, or because they were removed.
    pub dropped: u64,
    /// Heartbeats that failed, or whose outcome stayed unknown.
    pub failed_heartbeats: u64,
    /// Leases acquired.
    pub acquired: u64,
    /// How long the candidates for them waited, from when the driver heard of each to its grant. Those who got nothing
    /// are not among them.
    pub waits: Durations,
    /// Renewals acknowledged, those of claims included.
    pub renewed: u64,
    /// How long they took, from when each was due to be sent to its acknowledgement, with all that was tried in between.
    pub renewals: Durations,
    /// Leases given back, or found to be over when they were. Those that were lost before are not among them.
    pub released: u64,
    /// What became of these.
    pub releases: Releases,
    /// Leases lost, and claims of ticks: from the fence on, also where their work ended in time and they were given back.
    pub lost: u64,
    /// How they were.
    pub losses: Losses,
    /// How long leases were held, from the grant until they were released or lost. Those held now are not among them.
    pub holds: Durations,
    /// Grants that were given back because their tokens were not above those seen before: the store has lost its memory.
    pub regressed: u64,
    /// Renewals sent too late because the driver was kept from running.
    pub starved: u64,
    /// Operations sent to the store.
    pub operations: u64,
    /// Requests that carried them.
    pub batches: u64,
    /// Operations that failed, or whose outcome stayed unknown.
    pub failures: u64,
    /// Requests that were dropped long after everybody had given up on them.
    pub abandoned_requests: u64,
    /// Replies that came too late to matter, or twice.
    pub stale_replies: u64,
    /// Times that the clock was seen to run backwards.
    pub clock_backwards: u64,
}

/// How many durations were measured, and how long they were. What is not counted here (quantiles, for example) the
/// feature `metrics` has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The longest of them; zero if there was none.
    pub longest: Duration,
}

impl Durations {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.longest = self.longest.max(duration);
    }

    pub(crate) fn extend(&mut self, duration: Option<Duration>) {
        duration.into_iter().for_each(|duration| self.add(duration));
    }

    /// Their mean; `None` if there was none.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.total.as_nanos().checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// How leases and claims were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Their time ran out without an acknowledged renewal.
    pub expired: u64,
    /// The store said that they were not this process's any more.
    pub not_yours: u64,
    /// They were held for the maximum time, and the work did not end.
    pub abandoned: u64,
}

impl Losses {
    pub(crate) const fn add(&mut self, why: LossReason) {
        match why {
            LossReason::NotYours => self.not_yours += 1,
            LossReason::Abandoned => self.abandoned += 1,
            // A way that this version does not know is the worst of those that it does.
            _ => self.expired += 1,
        }
    }
}

/// What became of leases that were given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Releases {
    /// The store removed the record: the next candidate had it at once.
    pub confirmed: u64,
    /// The record was not this process's any more.
    pub not_held: u64,
    /// The store never answered, and the record was over by its TTL.
    pub expired: u64,
}

impl Releases {
    pub(crate) const fn add(&mut self, outcome: ReleaseOutcome) {
        match outcome {
            ReleaseOutcome::Released => self.confirmed += 1,
            ReleaseOutcome::NotHeld => self.not_held += 1,
            _ => self.expired += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_count_a_sum_the_longest_and_a_mean() {
        let mut durations = Durations::default();
        assert_eq!(durations.mean(), None);
        for seconds in [1, 5, 3] {
            durations.add(Duration::from_secs(seconds));
        }
        let Durations { count, total, longest } = durations;
        assert_eq!((count, total, longest), (3, Duration::from_secs(9), Duration::from_secs(5)));
        assert_eq!(durations.mean(), Some(Duration::from_secs(3)));
    }
}
