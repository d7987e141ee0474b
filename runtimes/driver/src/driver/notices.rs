//! What the node says: commands for the store and for workloads, notices for the application.

use std::sync::Arc;
use std::time::SystemTime;

use tenure_core::{
    AcquireFailure, Command, Instant, LeaseKey, LossReason, Notice, ReleaseOutcome, Stop, StopReason, Token,
};
use tenure_store::{Acquire, Holder, Operation, Release, Renew};

use super::Driver;
use crate::acquire::Progress;
use crate::carrier::Order;
use crate::hold::Hold;
use crate::lease::LostReason;
use crate::runtime::Runtime;
use crate::span::Span;
use crate::trouble::Kind;
use crate::watches::Watch;

impl<R: Runtime> Driver<R> {
    pub(super) fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Acquire { id, lease, n, ttl, floor, wait, timeout } => {
                let Some(name) = self.node.name(lease).cloned() else { return };
                let mut metadata = self.metadata.clone();
                metadata.text = self.node.text(lease).cloned();
                let owner = self.node.owner(n);
                let acquire = Acquire { name, owner, ttl, floor, wait, metadata, timeout };
                self.carrier.order(now, Order { id, lease, operation: Operation::Acquire(acquire) });
            }
            Command::Renew { id, lease, n, token, ttl, timeout } => {
                let Some(name) = self.node.name(lease).cloned() else { return };
                tracing::trace!(target: "tenure", lease = name.as_str(), %token, "renewing");
                let renew = Renew { name, owner: self.node.owner(n), token, ttl, timeout };
                self.carrier.order(now, Order { id, lease, operation: Operation::Renew(renew) });
            }
            Command::Release { id, lease, n, token, timeout } => {
                let Some(name) = self.node.name(lease).cloned() else { return };
                let release = Release { name, owner: self.node.owner(n), token, timeout };
                self.carrier.order(now, Order { id, lease, operation: Operation::Release(release) });
            }
            Command::Watch { id, name } => self.carrier.watch(name, Watch::On(id)),
            Command::Unwatch { name } => self.carrier.watch(name, Watch::Off),
            Command::StartWorkload { worker, lease, token, .. } => self.start_work(now, worker, lease, token),
            Command::DrainWorkload { lease, why } => self.stop(lease, Stop::Ask, why),
            Command::StopWorkload { lease, how, why } => self.stop(lease, how, why),
        }
    }

    fn stop(&mut self, lease: LeaseKey, how: Stop, why: StopReason) {
        let Some(hold) = self.entries.of(lease).and_then(|entry| entry.hold.as_ref()) else { return };
        tracing::debug!(target: "tenure", lease = hold.name.as_str(), token = %hold.token, ?how, ?why, "stopping");
        match (how, why) {
            // From the fence on nothing revives the guard, though there still is time to end in order.
            (_, StopReason::Fence) => hold.lose(why, LostReason::Expired),
            (_, StopReason::Lost) => hold.lose(why, LostReason::NotYours),
            (Stop::Hard, _) => hold.lose(why, LostReason::Stopped(why)),
            (Stop::Ask, _) => hold.ask(why),
        }
        if how == Stop::Hard {
            hold.kill();
        }
    }

    pub(super) fn notice(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Acquired { lease, n, token, deadlines } => {
                let owner = self.node.owner(n);
                let text = self.node.text(lease).cloned();
                let Some(entry) = self.entries.of(lease) else { return };
                self.stats.acquired += 1;
                tracing::info!(target: "tenure", lease = entry.name.as_str(), %token, "lease acquired");
                let mut holder = Holder::new(owner.to_string());
                holder.token = Some(token);
                holder.ttl = Some(entry.ttl);
                holder.since = Some(SystemTime::now());
                holder.metadata = self.metadata.clone();
                holder.metadata.text = text;
                let clock = Arc::clone(&self.clock);
                let hold = Arc::new(Hold::new(entry.name.clone(), owner, token, deadlines, clock));
                if let Some(grant) = entry.grant.take() {
                    // If nobody takes it, the request to give it back is in the queue already.
                    let _given_up = grant.send(Ok(Arc::clone(&hold)));
                }
                self.entries.hold(lease, hold, holder);
            }
            Notice::Renewed { lease, deadlines } => {
                self.stats.renewed += 1;
                if let Some(hold) = self.entries.of(lease).and_then(|entry| entry.hold.as_ref()) {
                    tracing::debug!(target: "tenure", lease = hold.name.as_str(), token = %hold.token, "lease renewed");
                    hold.renew(deadlines);
                }
            }
            Notice::InDoubt { lease, deadlines } => {
                if let Some(hold) = self.entries.of(lease).and_then(|entry| entry.hold.clone()) {
                    hold.doubt();
                    let left = Span(deadlines.fence_at.saturating_since(now));
                    let error = self.entries.error(&hold.name);
                    let text =
                        format_args!("a renewal failed; without one the work must stop in {left}: {error}");
                    self.trouble.warn(now, Kind::InDoubt, Some(&hold.name), text);
                }
            }
            Notice::RenewalStarved { lease, late_by } => {
                self.stats.starved += 1;
                let name = self.node.name(lease);
                let late_by = Span(late_by);
                let text = format_args!(
                    "renewal starved: it was sent {late_by} late because something blocked the runtime's \
                     threads; move blocking work off them, or start Tenure on a runtime of its own"
                );
                self.trouble.warn(now, Kind::Starved, name, text);
            }
            Notice::Lost { lease, token, why } => self.lost(now, lease, token, why),
            Notice::Waiting { lease, token, until } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let (name, candidate) = (entry.name.clone(), entry.candidate.clone());
                tracing::debug!(target: "tenure", lease = name.as_str(), ?token, "waiting: the lease is held");
                if let Some(candidate) = candidate {
                    candidate.report(Progress::Waiting { holder: self.entries.holder(&name), until });
                }
            }
            Notice::Retrying { lease, failure: _ } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let (name, unheard, candidate) = (entry.name.clone(), entry.unheard, entry.candidate.clone());
                let error = self.entries.error(&name);
                if unheard {
                    let text = format_args!("not acquired yet, and tried again: {error}");
                    self.trouble.warn(now, Kind::Store, Some(&name), text);
                }
                if let Some(candidate) = candidate {
                    candidate.report(Progress::Retrying { error });
                }
            }
            Notice::GrantedTooLate { lease, token } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let text =
                    "the store granted the lease so late that no time for work was left; it is given back";
                self.trouble.warn(now, Kind::TooLate, Some(&entry.name), text);
                if let Some(candidate) = &entry.candidate {
                    candidate.report(Progress::GrantedTooLate { token });
                }
            }
            Notice::Failed { lease, why } => self.failed(now, lease, why),
            Notice::Released { lease, outcome } => self.released(lease, outcome),
            Notice::Ended { lease } => {
                // Only a hold that was lost ends without having been released.
                if let Some(outcome) = self.entries.remove(lease).and_then(|entry| entry.outcome) {
                    let _nobody_waits = outcome.send(ReleaseOutcome::NotHeld);
                }
            }
            Notice::Campaigning { worker, lease } => self.campaigns(worker, lease),
            Notice::Restarting { worker, failures, at } => self.restarting(now, worker, failures, at),
            Notice::Stuck { worker, lease } => self.stuck(now, worker, lease),
            Notice::WorkerEnded { worker } => self.worker_ended(worker),
            other => {
                tracing::debug!(target: "tenure", notice = ?other, "a notice that this version does not know")
            }
        }
    }

    fn lost(&mut self, now: Instant, lease: LeaseKey, token: Token, why: LossReason) {
        self.stats.lost += 1;
        // The guard keeps its hold; for everybody else it is over.
        let Some(hold) = self.entries.unhold(lease) else { return };
        if why == LossReason::NotYours {
            self.entries.forgotten(lease);
        }
        let (stop, reason) = match why {
            LossReason::NotYours => (StopReason::Lost, LostReason::NotYours),
            LossReason::Abandoned => (StopReason::MaxHold, LostReason::Abandoned),
            _ => (StopReason::Fence, LostReason::Expired),
        };
        hold.lose(stop, reason);
        let text = format_args!("the lease (token {token}) is lost: {reason}");
        self.trouble.warn(now, Kind::Lost, Some(&hold.name), text);
    }

    fn failed(&mut self, now: Instant, lease: LeaseKey, why: AcquireFailure) {
        let Some(entry) = self.entries.of(lease) else { return };
        if entry.worker.is_some() {
            return self.worker_refused(now, lease, why);
        }
        let (name, Some(grant)) = (entry.name.clone(), entry.grant.take()) else { return };
        // The candidate itself gave up, and is gone.
        if why == AcquireFailure::GivenUp {
            return;
        }
        let error = self.entries.acquire_error(&name, why);
        tracing::debug!(target: "tenure", "not acquired: {error}");
        let _nobody_waits = grant.send(Err(error));
    }

    fn released(&mut self, lease: LeaseKey, outcome: ReleaseOutcome) {
        self.stats.released += 1;
        self.entries.unhold(lease);
        let Some(entry) = self.entries.of(lease) else { return };
        entry.record(false);
        tracing::info!(target: "tenure", lease = entry.name.as_str(), ?outcome, "lease released");
        if let Some(waiting) = entry.outcome.take() {
            let _nobody_waits = waiting.send(outcome);
        }
    }
}
