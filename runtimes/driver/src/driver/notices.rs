//! What the node says: commands for the store and for workloads, notices for the application.

use std::sync::Arc;

use tenure_core::{
    AcquireFailure, Command, CommandId, Instant, LeaseKey, LossReason, Notice, ReleaseOutcome, Stop,
    StopReason, Token,
};
use tenure_store::{Holder, Operation};

use super::Driver;
use super::entries::Host;
use crate::acquire::Progress;
use crate::carrier::{By, Order};
use crate::events;
use crate::fleet::DrainReason;
use crate::hold::Hold;
use crate::lease::LostReason;
use crate::reason;
use crate::runtime::Runtime;
use crate::span::Span;
use crate::subject::Subject;
use crate::trouble::{Case, Kind};
use crate::watches::Watch;

impl<R: Runtime> Driver<R> {
    pub(super) fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Acquire { id, lease, .. }
            | Command::Renew { id, lease, .. }
            | Command::Release { id, lease, .. }
            | Command::FinishTick { id, lease, .. } => self.ask(now, id, By::Lease(lease), &command),
            Command::ClaimTick { id, lease, .. } => {
                self.claim_beside(now, lease);
                self.ask(now, id, By::Lease(lease), &command);
            }
            Command::ReadTimer { id, timer, .. } | Command::ChangeTimer { id, timer, .. } => {
                self.ask(now, id, By::Timer(timer), &command);
            }
            Command::Heartbeat { id, sequence, draining, .. } => {
                events::heartbeat(sequence, draining);
                self.ask(now, id, By::Member, &command);
            }
            Command::Leave { id, .. } => {
                self.leaves(now);
                self.ask(now, id, By::Member, &command);
            }
            Command::Watch { id, name } => self.carrier.watch(name, Watch::On(id)),
            Command::Unwatch { name } => self.carrier.watch(name, Watch::Off),
            Command::StartWorkload { worker, lease, token, .. } => self.start_work(now, worker, lease, token),
            Command::DrainWorkload { lease, why } => self.stop(now, lease, Stop::Ask, why),
            Command::StopWorkload { lease, how, why } => self.stop(now, lease, how, why),
        }
    }

    /// Has the store asked what a command wants to know of it.
    fn ask(&mut self, now: Instant, id: CommandId, by: By, command: &Command) {
        let Some(operation) = Operation::of(command, &self.node, &self.metadata) else { return };
        let subject = Subject::of(&operation);
        if let Command::Renew { lease, token, .. } = *command {
            events::lease_renewing(&subject, token.get());
            if let Some(entry) = self.entries.of(lease) {
                entry.renewing.get_or_insert(now);
            }
        }
        self.carrier.order(now, Order { id, by, subject, operation });
    }

    fn stop(&mut self, now: Instant, lease: LeaseKey, how: Stop, why: StopReason) {
        let Some(hold) = self.entries.of(lease).and_then(|entry| entry.hold.as_ref()) else { return };
        events::lease_stopping(&hold.subject, hold.token.get(), reason::stop(how), reason::stopped(why));
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
        if why == StopReason::Fence {
            // Its work is over, though the rest of its time may do to give it back.
            self.tell_lost(now, lease, LossReason::Expired);
        }
    }

    /// Its work has ended. If that has found itself past the fence, it may have been faster than the news of it here.
    pub(super) fn unhold(&mut self, now: Instant, lease: LeaseKey) {
        let over = self.entries.of(lease).and_then(|entry| entry.hold.as_ref()?.over());
        if over == Some(LostReason::Expired) {
            self.tell_lost(now, lease, LossReason::Expired);
        }
        self.entries.unhold(lease);
    }

    /// Counts the loss of a lease or a claim and tells of it, once.
    fn tell_lost(&mut self, now: Instant, lease: LeaseKey, why: LossReason) {
        let Some(entry) = self.entries.of(lease) else { return };
        let Some((hold, since)) = entry.hold.clone().zip(entry.granted.take()) else { return };
        let held = now.saturating_since(since);
        self.stats.lost += 1;
        self.stats.losses.add(why);
        self.stats.holds.extend(hold.subject.lease().map(|_| held));
        self.metrics.lost(entry.subject.is_lease(), reason::lost(why), held);
        let what = if hold.subject.lease().is_some() { "the lease" } else { "the claim" };
        let text = format_args!("{what} (token {}) is lost: {}", hold.token, lost(why));
        let case = Case::from(&hold.subject).with_token(hold.token).with_reason(reason::lost(why));
        self.trouble.warn(now, Kind::Lost, case, text);
    }

    pub(super) fn notice(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Acquired { lease, n, token, deadlines } => {
                let owner = self.node.owner(n);
                let text = self.node.text(lease).cloned();
                let since = self.runtime.wall();
                let Some(entry) = self.entries.of(lease) else { return };
                entry.granted = Some(now);
                let waited = now.saturating_since(entry.since);
                self.metrics.acquired(entry.subject.is_lease(), waited);
                match &entry.subject {
                    Subject::Lease(name) => {
                        self.stats.acquired += 1;
                        self.stats.waits.add(waited);
                        events::lease_acquired(name.as_str(), token.get());
                    }
                    subject => events::claim_granted(subject, token.get()),
                }
                let mut holder = Holder::new(owner.to_string());
                holder.token = Some(token);
                holder.ttl = Some(entry.times.ttl);
                holder.since = since;
                holder.metadata = self.metadata.clone();
                holder.metadata.text = text;
                let clock = Arc::clone(&self.clock);
                let hold = Arc::new(Hold::new(entry.subject.clone(), owner, token, deadlines, clock));
                if let Some(grant) = entry.grant.take() {
                    // If nobody takes it, the request to give it back is in the queue already.
                    let _given_up = grant.send(Ok(Arc::clone(&hold)));
                }
                self.entries.hold(lease, hold, holder);
            }
            Notice::Renewed { lease, deadlines } => {
                self.stats.renewed += 1;
                let Some(entry) = self.entries.of(lease) else { return };
                if let Some(since) = entry.renewing.take() {
                    let took = now.saturating_since(since);
                    self.stats.renewals.add(took);
                    self.metrics.renewed(took);
                }
                if let Some(hold) = &entry.hold {
                    events::lease_renewed(&hold.subject, hold.token.get());
                    hold.renew(deadlines);
                }
            }
            Notice::InDoubt { lease, deadlines } => {
                if let Some(hold) = self.entries.of(lease).and_then(|entry| entry.hold.clone()) {
                    hold.doubt();
                    let left = Span(deadlines.fence_at.saturating_since(now));
                    let error = self.entries.error(&hold.subject);
                    let text =
                        format_args!("a renewal failed; without one the work must stop in {left}: {error}");
                    self.trouble.warn(
                        now,
                        Kind::InDoubt,
                        Case::from(&hold.subject).with_token(hold.token),
                        text,
                    );
                }
            }
            Notice::RenewalStarved { lease, late_by } => {
                self.stats.starved += 1;
                let subject = self.entries.of(lease).map(|entry| entry.subject.clone());
                let late_by = Span(late_by);
                let text = format_args!(
                    "renewal starved: it was sent {late_by} late because something blocked the runtime's \
                     threads; move blocking work off them, or start Tenure on a runtime of its own"
                );
                self.trouble.warn(now, Kind::Starved, subject.as_ref(), text);
            }
            Notice::Lost { lease, token: _, why } => self.lost(now, lease, why),
            Notice::Waiting { lease, token, until } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let (subject, candidate) = (entry.subject.clone(), entry.candidate.clone());
                events::lease_waiting(&subject, token.map(Token::get));
                if let Some(candidate) = candidate {
                    candidate.report(Progress::Waiting { holder: self.entries.holder(&subject), until });
                }
            }
            Notice::Retrying { lease, failure: _ } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let (unheard, candidate) = (entry.unheard, entry.candidate.clone());
                let subject = entry.subject.clone();
                let error = self.entries.error(&subject);
                if unheard {
                    let text = format_args!("not acquired yet, and tried again: {error}");
                    self.trouble.warn(now, Kind::Store, Some(&subject), text);
                }
                if let Some(candidate) = candidate {
                    candidate.report(Progress::Retrying { error });
                }
            }
            Notice::GrantedTooLate { lease, token } => {
                let Some(entry) = self.entries.of(lease) else { return };
                let text = "the store granted it so late that no time for work was left; it is given back";
                self.trouble.warn(now, Kind::TooLate, Case::from(&entry.subject).with_token(token), text);
                if let Some(candidate) = &entry.candidate {
                    candidate.report(Progress::GrantedTooLate { token });
                }
            }
            Notice::Failed { lease, why } => self.failed(now, lease, why),
            Notice::Released { lease, outcome } => self.released(now, lease, outcome),
            Notice::Ended { lease } => {
                // Only a hold that was lost ends without having been released.
                if let Some(outcome) = self.entries.remove(lease).and_then(|entry| entry.outcome) {
                    let _nobody_waits = outcome.send(ReleaseOutcome::NotHeld);
                }
            }
            Notice::Campaigning { worker, lease } => self.campaigns(now, worker, lease),
            Notice::Restarting { worker, failures, at } => self.restarting(now, worker, failures, at),
            Notice::Stuck { worker, lease } => self.stuck(now, worker, lease),
            Notice::WorkerEnded { worker } => self.worker_ended(worker),
            Notice::Ticked { timer, due } => self.ticked(now, timer, due),
            Notice::TicksMissed { timer, .. }
            | Notice::ScheduleChanged { timer, .. }
            | Notice::ScheduleUnreadable { timer }
            | Notice::Rebased { timer, .. }
            | Notice::TimerRetrying { timer, .. } => self.timer_notice(now, timer, &notice),
            Notice::TimerEnded { timer, why } => self.timer_ended(timer, why),
            Notice::TickSkipped { periodic, tick, why } => self.tick_skipped(now, periodic, tick, why),
            Notice::PeriodicEnded { periodic, why } => self.periodic_ended(now, periodic, why),
            Notice::Joined { joined: _ } => self.joined(),
            Notice::MembersChanged { version: _, count } => self.members_changed(count),
            Notice::HeartbeatFailed { failure: _ } => self.heartbeat_failed(now),
            Notice::Left => self.left(),
            Notice::Draining { by_operator } => {
                let reason = if by_operator { DrainReason::Operator } else { DrainReason::Program };
                self.draining(now, reason);
            }
            Notice::Drained => self.drained(),
            Notice::Resumed => self.resumed(),
            Notice::WorkloadAssigned { coordinator, worker } => self.assigned(coordinator, worker),
            Notice::WorkloadDropped { coordinator, worker, why } => self.dropped(coordinator, worker, why),
            Notice::CoordinatorEnded { coordinator } => self.coordinator_ended(coordinator),
            other => {
                events::unknown(format_args!("a notice that this version does not know: {other:?}"));
            }
        }
    }

    fn lost(&mut self, now: Instant, lease: LeaseKey, why: LossReason) {
        self.tell_lost(now, lease, why);
        // The guard keeps its hold; for everybody else it is over.
        let Some(hold) = self.entries.unhold(lease) else { return };
        if why == LossReason::NotYours {
            self.entries.forgotten(lease);
        }
        let stop = match why {
            LossReason::NotYours => StopReason::Lost,
            LossReason::Abandoned => StopReason::MaxHold,
            _ => StopReason::Fence,
        };
        hold.lose(stop, lost(why));
    }

    fn failed(&mut self, now: Instant, lease: LeaseKey, why: AcquireFailure) {
        let Some(entry) = self.entries.of(lease) else { return };
        self.stats.regressed += u64::from(matches!(why, AcquireFailure::StoreRegressed { .. }));
        match &entry.host {
            Some(Host::Worker(_)) => return self.worker_refused(now, lease, why),
            Some(Host::Periodic(_)) => return self.run_refused(now, lease, why),
            None => {}
        }
        let (Subject::Lease(name), Some(grant)) = (entry.subject.clone(), entry.grant.take()) else { return };
        // The candidate itself gave up, and is gone.
        if why == AcquireFailure::GivenUp {
            return;
        }
        let error = self.entries.acquire_error(&name, why);
        events::lease_not_acquired(name.as_str(), format_args!("not acquired: {error}"));
        let _nobody_waits = grant.send(Err(error));
    }

    fn released(&mut self, now: Instant, lease: LeaseKey, outcome: ReleaseOutcome) {
        self.entries.unhold(lease);
        let Some(entry) = self.entries.of(lease) else { return };
        entry.record(false);
        // What was lost before is counted as that.
        if let Some(since) = entry.granted.take() {
            let held = now.saturating_since(since);
            self.metrics.released(entry.subject.is_lease(), reason::released(outcome), held);
            if entry.subject.is_lease() {
                self.stats.released += 1;
                self.stats.releases.add(outcome);
                self.stats.holds.add(held);
            }
        }
        match &entry.subject {
            Subject::Lease(name) => events::lease_released(name.as_str(), reason::released(outcome)),
            subject => events::claim_ended(subject, reason::released(outcome)),
        }
        if let Some(waiting) = entry.outcome.take() {
            let _nobody_waits = waiting.send(outcome);
        }
    }
}

/// What the guard is told.
const fn lost(why: LossReason) -> LostReason {
    match why {
        LossReason::NotYours => LostReason::NotYours,
        LossReason::Abandoned => LostReason::Abandoned,
        _ => LostReason::Expired,
    }
}
