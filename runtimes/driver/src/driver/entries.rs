//! What the driver knows of each candidacy, hold and name, besides what the node knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::{AcquireFailure, Instant, LeaseKey, LeaseName, LeaseOptions, ReleaseOutcome, Token};
use tenure_store::{Holder, StoreError};

use crate::acquire::{AcquireError, Candidate};
use crate::events;
use crate::hold::Hold;
use crate::periodic;
use crate::request::Ticket;
use crate::subject::Subject;
use crate::worker;

/// A candidacy, and the hold that comes of it.
pub(super) struct Entry {
    /// The lease, or the tick that is claimed.
    pub(super) subject: Subject,
    /// `None` for a worker's and for a run's.
    pub(super) ticket: Option<Ticket>,
    pub(super) times: Times,
    pub(super) candidate: Option<Arc<Candidate>>,
    /// The candidate waits for as long as it takes and hears nothing of failures.
    pub(super) unheard: bool,
    /// Takes the guard's hold, or the reason why there is none; once.
    pub(super) grant: Option<oneshot::Sender<Result<Arc<Hold>, AcquireError>>>,
    /// Whose run it is for.
    pub(super) host: Option<Host>,
    pub(super) hold: Option<Arc<Hold>>,
    /// Since when it waits, or has waited.
    pub(super) since: Instant,
    /// Since when it is held.
    pub(super) granted: Option<Instant>,
    /// Since when a renewal is under way, with all that is tried again.
    pub(super) renewing: Option<Instant>,
    /// Whether it was granted, and the store may still have a record of that.
    pub(super) recorded: bool,
    /// Waits for the end of the release.
    pub(super) outcome: Option<oneshot::Sender<ReleaseOutcome>>,
}

impl Entry {
    /// The candidacy under which something is to run; nobody waits for its notices.
    pub(super) const fn of_run(now: Instant, subject: Subject, times: Times, host: Host) -> Self {
        Self {
            subject,
            ticket: None,
            times,
            candidate: None,
            unheard: true,
            grant: None,
            host: Some(host),
            hold: None,
            since: now,
            granted: None,
            renewing: None,
            recorded: false,
            outcome: None,
        }
    }

    /// Whether the store may have a record of it.
    pub(super) fn record(&mut self, recorded: bool) {
        if self.recorded != recorded
            && let Some(host) = &self.host
        {
            host.record(recorded);
        }
        self.recorded = recorded;
    }
}

/// What the driver must know of the options of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) ttl: Duration,
    /// How long the work may take to end once it drains.
    grace: Duration,
    /// How long it may take to end once it is stopped.
    stop_budget: Duration,
}

impl Times {
    pub(super) const fn of(options: &LeaseOptions) -> Self {
        let (ttl, stop_budget) = (options.timing.ttl(), options.timing.stop_budget());
        Self { ttl, grace: options.grace, stop_budget }
    }
}

/// What has runs under leases and claims.
#[derive(Clone)]
pub(super) enum Host {
    Worker(Arc<worker::Tie>),
    Periodic(Arc<periodic::Tie>),
}

impl Host {
    fn record(&self, recorded: bool) {
        match self {
            Self::Worker(tie) => tie.record(recorded),
            Self::Periodic(tie) => tie.record(recorded),
        }
    }
}

/// A name that anybody here is interested in.
#[derive(Default)]
struct Known {
    entries: usize,
    /// Who was last said to have the lease.
    holder: Option<Holder>,
    /// What the store last failed with, if it has not answered well since.
    error: Option<StoreError>,
}

#[derive(Default)]
pub(super) struct Entries {
    /// In the order of their keys, so that messages have an order.
    leases: BTreeMap<LeaseKey, Entry>,
    tickets: HashMap<Ticket, LeaseKey>,
    names: HashMap<Subject, Known>,
    held: usize,
}

impl Entries {
    pub(super) fn insert(&mut self, key: LeaseKey, entry: Entry) {
        self.tickets.extend(entry.ticket.map(|ticket| (ticket, key)));
        self.names.entry(entry.subject.clone()).or_default().entries += 1;
        self.leases.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: LeaseKey) -> Option<Entry> {
        self.unhold(key);
        let mut entry = self.leases.remove(&key)?;
        entry.record(false);
        entry.ticket.map(|ticket| self.tickets.remove(&ticket));
        if let Some(known) = self.names.get_mut(&entry.subject) {
            known.entries -= 1;
            if known.entries == 0 {
                self.names.remove(&entry.subject);
            }
        }
        Some(entry)
    }

    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.leases.len() + self.tickets.len() + self.names.len()
    }

    pub(super) fn key(&self, ticket: Ticket) -> Option<LeaseKey> {
        self.tickets.get(&ticket).copied()
    }

    pub(super) fn of(&mut self, key: LeaseKey) -> Option<&mut Entry> {
        self.leases.get_mut(&key)
    }

    /// The lease is held; `holder` is what others are told of it.
    pub(super) fn hold(&mut self, key: LeaseKey, hold: Arc<Hold>, holder: Holder) {
        let Some(entry) = self.leases.get_mut(&key) else { return };
        entry.record(true);
        if entry.hold.replace(hold).is_none() {
            self.held += 1;
        }
        if let Some(known) = self.names.get_mut(&entry.subject) {
            known.holder = Some(holder);
            known.error = None;
        }
    }

    /// The lease is not held any more.
    pub(super) fn unhold(&mut self, key: LeaseKey) -> Option<Arc<Hold>> {
        let entry = self.leases.get_mut(&key)?;
        let hold = entry.hold.take()?;
        self.held -= 1;
        if let Some(known) = self.names.get_mut(&entry.subject) {
            known.holder = None;
        }
        Some(hold)
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.leases.values().filter_map(|entry| entry.hold.as_ref())
    }

    /// How long all work that goes on may take to end once it drains, or is stopped.
    pub(super) fn patience(&self, hard: bool) -> Duration {
        let held = self.leases.values().filter(|entry| entry.hold.is_some());
        let patience = held.map(
            |Entry { times: Times { grace, stop_budget, .. }, .. }| {
                if hard { *stop_budget } else { grace.saturating_add(*stop_budget) }
            },
        );
        patience.max().unwrap_or_default()
    }

    /// The leases and claims under which work goes on, leases first, with their tokens.
    pub(super) fn working(&self) -> Vec<(Subject, Token)> {
        let holds = self.leases.values().filter_map(|entry| entry.hold.as_ref());
        let mut working: Vec<_> = holds.map(|hold| (hold.subject.clone(), hold.token)).collect();
        working.sort_unstable();
        working
    }

    /// Whether nothing that was held waits to be given back.
    pub(super) fn are_released(&self) -> bool {
        self.leases.values().all(|entry| !entry.recorded)
    }

    /// The leases and claims that were held and not given back, each once, leases first.
    pub(super) fn unreleased(&self) -> Vec<Subject> {
        let open = self.leases.values().filter(|entry| entry.recorded);
        let mut names: Vec<_> = open.map(|entry| entry.subject.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The store has no record of it any more. What is held is another grant: that was the answer to an earlier one.
    pub(super) fn forgotten(&mut self, key: LeaseKey) {
        if let Some(entry) = self.leases.get_mut(&key) {
            entry.record(entry.hold.is_some());
        }
    }

    /// The store said who has the lease.
    pub(super) fn held_by(&mut self, subject: &Subject, holder: Holder) {
        if let Some(known) = self.names.get_mut(subject) {
            known.holder = Some(holder);
            known.error = None;
        }
    }

    /// Whether the store has not answered well since it last failed.
    pub(super) fn fails(&self, subject: &Subject) -> bool {
        self.names.get(subject).is_some_and(|known| known.error.is_some())
    }

    /// The store answered well.
    pub(super) fn answered(&mut self, subject: &Subject) {
        if let Some(known) = self.names.get_mut(subject) {
            known.error = None;
        }
    }

    pub(super) fn failed(&mut self, subject: &Subject, error: StoreError) {
        if let Some(known) = self.names.get_mut(subject) {
            known.error = Some(error);
        }
    }

    pub(super) fn holder(&self, subject: &Subject) -> Option<Holder> {
        self.names.get(subject)?.holder.clone()
    }

    /// Why there is no lease of this name.
    pub(super) fn acquire_error(&self, name: &LeaseName, why: AcquireFailure) -> AcquireError {
        let subject = Subject::Lease(name.clone());
        let (lease, error) = (name.clone(), Box::new(self.error(&subject)));
        match why {
            AcquireFailure::Busy => AcquireError::Busy { holder: self.holder(&subject).map(Box::new), lease },
            AcquireFailure::Unreachable => AcquireError::Unreachable { error, lease },
            AcquireFailure::Refused => AcquireError::Refused { error, lease },
            AcquireFailure::StoreRegressed { token, floor } => {
                AcquireError::StoreRegressed { lease, token, floor }
            }
            AcquireFailure::GrantedTooLate => AcquireError::TooLate { lease },
            AcquireFailure::Draining => AcquireError::Draining { lease },
            AcquireFailure::ShuttingDown => AcquireError::ShuttingDown { lease },
            other => {
                events::unknown(format_args!("a failure that this version does not know: {other:?}"));
                AcquireError::Unreachable { error, lease }
            }
        }
    }

    /// What the store last failed with; without a word of its own, that it did not answer.
    pub(super) fn error(&self, subject: &Subject) -> StoreError {
        let error = self.names.get(subject).and_then(|known| known.error.clone());
        error.unwrap_or_else(|| StoreError::unknown("it did not answer in time").about(subject))
    }
}
