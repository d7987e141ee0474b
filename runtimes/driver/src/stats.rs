//! Counts of what the driver does.

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
    /// Renewals acknowledged.
    pub renewed: u64,
    /// Leases given back, or found to be over when they were.
    pub released: u64,
    /// Leases lost.
    pub lost: u64,
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
