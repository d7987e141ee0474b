//! The periodic jobs of a node, joined with their timers, claims and workers.

use alloc::vec::Vec;

use super::{Node, Place};
use crate::command::{ClaimEnd, Command, Exit, Misuse, Output};
use crate::jitter::Jitter;
use crate::lease::{Lease, LeaseOptions, Phase, WaitLimit};
use crate::name::{CoordinatorKey, LeaseKey, PeriodicKey, TimerKey, TimerName, WorkerKey};
use crate::notice::{AcquireFailure, Notice};
use crate::periodic::{Overlap, Periodic, PeriodicOptions, Refused, Run};
use crate::planted::{Bug, planted};
use crate::time::Instant;
use crate::timer::{DueTick, Missed, TickMiss, TimerEnd};
use crate::worker::{Restart, RestartPolicy, Worker, WorkerOptions};

/// The claim that a lease stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) periodic: PeriodicKey,
    pub(super) timer: TimerKey,
    pub(super) tick: u64,
    pub(super) end: ClaimEnd,
    /// The run has a lease of its own.
    pub(super) beside: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeriodicEntry {
    pub(super) periodic: Periodic,
    pub(super) name: TimerName,
}

impl<J: Jitter> Node<J> {
    /// Makes a periodic job: from now on its workload is started for each tick that this instance gets, until the job
    /// is drained. The timer has the job's name, and is shared with all instances that have the job.
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`]; [`Misuse::OverlapUnderLease`] if runs under one lease are to
    /// overlap; [`Misuse::Config`] if a setting of the timer breaks a rule.
    pub fn start_periodic(
        &mut self,
        now: Instant,
        name: TimerName,
        options: PeriodicOptions,
    ) -> Result<PeriodicKey, Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        if options.lease.is_some() && options.overlap == Overlap::Allow {
            return Err(Misuse::OverlapUnderLease);
        }
        options.timer.check()?;
        self.clamp(now);
        let key = PeriodicKey(self.next_machine());
        let timer = self.enter_timer(name.clone(), options.timer.clone(), Some(key));
        self.periodics.insert(key, PeriodicEntry { periodic: Periodic::new(key, timer, options), name });
        Ok(key)
    }

    /// Claims nothing any more for this job. Runs are told to end in order, within the grace of their options.
    /// [`Notice::PeriodicEnded`] tells when nothing runs. Harmless when repeated.
    ///
    /// # Errors
    /// [`Misuse::UnknownPeriodic`] for a key that this node never made.
    pub fn drain_periodic(&mut self, now: Instant, periodic: PeriodicKey) -> Result<(), Misuse> {
        self.end_periodic(now, periodic, Self::drain_worker)
    }

    /// Like [`Node::drain_periodic`], without a grace: runs are stopped hard at once.
    ///
    /// # Errors
    /// [`Misuse::UnknownPeriodic`] for a key that this node never made.
    pub fn stop_periodic(&mut self, now: Instant, periodic: PeriodicKey) -> Result<(), Misuse> {
        self.end_periodic(now, periodic, Self::stop_worker)
    }

    fn end_periodic(
        &mut self,
        now: Instant,
        key: PeriodicKey,
        end: impl Fn(&mut Self, Instant, WorkerKey) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        if !self.was_made(key.0) || (self.lives(key.0) && !self.periodics.contains_key(&key)) {
            return Err(Misuse::UnknownPeriodic(key));
        }
        self.clamp(now);
        if let Some(entry) = self.periodics.get_mut(&key) {
            let (timer, runs) = (entry.periodic.timer, entry.periodic.runs.keys().copied());
            let runs: Vec<_> = runs.collect();
            self.end_timer(timer);
            self.end_job(key, TimerEnd::Stopped);
            for run in runs {
                end(self, now, run)?;
            }
        }
        Ok(())
    }

    /// The name of a periodic job and of its timer; `None` once [`Notice::PeriodicEnded`] was polled.
    #[must_use]
    pub fn periodic_name(&self, periodic: PeriodicKey) -> Option<&TimerName> {
        self.periodics.get(&periodic).map(|entry| &entry.name)
    }

    /// The periodic job and the tick that a worker runs; `None` for workers of other kinds, and for one that has
    /// ended.
    #[must_use]
    pub fn run(&self, worker: WorkerKey) -> Option<(PeriodicKey, DueTick)> {
        let periodic = self.workers.get(&worker)?.run()?;
        let run = self.periodics.get(&periodic)?.periodic.runs.get(&worker)?;
        Some((periodic, run.due))
    }

    /// The timer and the number of the tick that a lease is the claim of; `None` for leases of other kinds.
    #[must_use]
    pub fn claim(&self, lease: LeaseKey) -> Option<(&TimerName, u64)> {
        let Place::Claim { claim, name } = &self.leases.get(&lease)?.place else { return None };
        Some((name, claim.tick))
    }

    /// A tick of the job is due here.
    pub(super) fn job_ticked(&mut self, key: PeriodicKey, due: DueTick) {
        let Some(entry) = self.periodics.get_mut(&key) else { return };
        let dropped = entry.periodic.ticked(self.now, due);
        self.output.extend(dropped.into_iter().map(Output::Notice));
        if self.drain.on {
            self.pass_over(key);
        }
        self.go_on(key);
        self.held_up(key, due.tick.n);
    }

    /// A tick that could not be claimed at once may be one to be made up for.
    fn held_up(&mut self, key: PeriodicKey, tick: u64) {
        let Some(entry) = self.periodics.get(&key) else { return };
        let unanswered = |run: &Run| {
            let candidate = self.leases.get(&run.claim.unwrap_or(run.lease));
            !run.started && !run.watched && candidate.is_some_and(|entry| entry.lease.is_unanswered())
        };
        let runs = entry.periodic.runs.iter().filter(|(_, run)| unanswered(run));
        let unanswered: Vec<_> = runs.map(|(worker, _)| *worker).collect();
        if let Some(entry) = self.periodics.get_mut(&key) {
            entry.periodic.held_up(tick, &unanswered);
        }
    }

    /// While the instance drains, what waits is not claimed here.
    fn pass_over(&mut self, key: PeriodicKey) {
        if let Some(entry) = self.periodics.get_mut(&key) {
            let passed = entry.periodic.pass_over();
            self.output.extend(passed.into_iter().map(Output::Notice));
        }
    }

    /// Likewise, for all jobs and for what they have begun to claim.
    pub(super) fn drain_jobs(&mut self) {
        let jobs: Vec<_> = self.periodics.keys().copied().collect();
        for job in jobs {
            self.pass_over(job);
            if let Some(entry) = self.periodics.get_mut(&job) {
                entry.periodic.give_up();
            }
        }
    }

    /// Claims what may be claimed now. A candidate that waits in vain makes room for it.
    pub(super) fn go_on(&mut self, key: PeriodicKey) {
        self.give_way(key);
        self.claim_next(key);
    }

    /// How far the candidacy of a run has come that is not started.
    fn candidacy(&self, run: &Run) -> Option<Phase> {
        let candidate = self.leases.get(&run.claim.unwrap_or(run.lease));
        candidate.filter(|_| !run.started).map(|candidate| candidate.lease.phase())
    }

    /// Whether the store has told this run to wait for the end of another attempt at its tick.
    fn is_to_watch(&self, entry: &PeriodicEntry, run: &Run) -> bool {
        let claims = run.claim.is_some() || entry.periodic.options.lease.is_none();
        let waits = self.candidacy(run) == Some(Phase::Waiting(AcquireFailure::Busy));
        claims && waits && entry.periodic.waits_for_its_own(&run.due)
    }

    /// Candidates that wait, and don't watch, make room for later ones, if they are too many together; where ticks are
    /// caught up, one that waits for a run keeps its place. A request that is under way is not given up: else a store
    /// that is slower than the timer would never let any tick be run.
    fn give_way(&mut self, key: PeriodicKey) {
        let Some(entry) = self.periodics.get(&key) else { return };
        let catches_up = entry.periodic.options.timer.missed != Missed::Skip;
        let gives_way = |run: &Run| match self.candidacy(run) {
            Some(Phase::Waiting(AcquireFailure::Busy)) => !run.watched && !catches_up,
            Some(Phase::Idle | Phase::Waiting(_)) => !run.watched,
            Some(Phase::Deciding | Phase::Holding | Phase::Done) | None => false,
        };
        let runs = entry.periodic.runs.iter().filter(|(_, run)| gives_way(run));
        let waiting: Vec<_> = runs.map(|(worker, _)| *worker).collect();
        // The oldest come first.
        let superseded = entry.periodic.give_way(waiting.len());
        for worker in waiting.into_iter().take(superseded) {
            if let Some(run) = self.run_mut(worker) {
                run.refused = Some(Refused::Missed(TickMiss::Superseded));
            }
            let _known = self.drain_worker(self.now, worker);
        }
    }

    /// Claims what may be claimed now, one tick after the other. Where runs may overlap, one that waits for another
    /// instance's holds nobody up.
    fn claim_next(&mut self, key: PeriodicKey) {
        loop {
            let Some(entry) = self.periodics.get(&key) else { return };
            let allow = entry.periodic.options.overlap == Overlap::Allow;
            // The store grants no number below one that it has granted: an answer must come before the next request.
            let undecided = |run: &Run| match self.candidacy(run) {
                Some(Phase::Waiting(AcquireFailure::Busy)) if allow => false,
                Some(_) | None => !run.started && !run.watched,
            };
            if !entry.periodic.may_claim() || entry.periodic.runs.values().any(undecided) {
                return;
            }
            let Some(entry) = self.periodics.get_mut(&key) else { return };
            let Some(due) = entry.periodic.next(self.now) else { return };
            self.begin_run(key, due, false);
        }
    }

    /// A candidacy of a run may have come to wait: what is pending behind it may not have to.
    pub(super) fn settle_run(&mut self, key: LeaseKey) {
        let Some(entry) = self.leases.get(&key) else { return };
        if let (Phase::Waiting(_), Some(worker)) = (entry.lease.phase(), entry.worker)
            && let Some(periodic) = self.workers.get(&worker).and_then(|entry| entry.run())
            && let Some(job) = self.periodics.get(&periodic)
            && let Some(run) = job.periodic.runs.get(&worker)
        {
            // Also while it looks again, and if that fails: its tick was claimed, and no later claim takes it away.
            let watched = run.watched || self.is_to_watch(job, run);
            if let Some(run) = self.run_mut(worker) {
                run.watched = watched;
            }
            let job = self.periodics.get(&periodic);
            if let Some(oldest) = job.and_then(|job| job.periodic.watched_too_many()) {
                if let Some(run) = self.run_mut(oldest) {
                    run.refused = Some(Refused::NotOurs);
                }
                let _known = self.drain_worker(self.now, oldest);
            }
            self.go_on(periodic);
        }
    }

    /// Ticks that others have claimed and not finished, where they may be tried again.
    pub(super) fn watch_unfinished(&mut self, key: PeriodicKey) {
        let Some(entry) = self.periodics.get(&key) else { return };
        if !entry.periodic.watches() || entry.periodic.is_ending() || self.drain.on {
            return;
        }
        let Some(timer) = self.timers.get(&entry.periodic.timer) else { return };
        let ticks = timer.timer.unfinished();
        let unseen = ticks.into_iter().filter(|due| !entry.periodic.has(due.tick.n));
        for due in unseen.take(entry.periodic.room_to_watch()).collect::<Vec<_>>() {
            if self.periodics.get(&key).is_some_and(|entry| entry.periodic.run_options(&due).is_some()) {
                self.begin_run(key, due, true);
            }
        }
    }

    /// Enters the candidacy under which the tick is to be run.
    fn begin_run(&mut self, key: PeriodicKey, due: DueTick, watched: bool) {
        let Some(entry) = self.periodics.get(&key) else { return };
        let Some(options) = entry.periodic.run_options(&due) else {
            let skipped = entry.periodic.skipped(due.tick.n, TickMiss::TooLate);
            return self.output.push_back(Output::Notice(skipped));
        };
        let lease_name = entry.periodic.options.lease.clone();
        let limit = entry.periodic.options.timer.late_limit.filter(|_| lease_name.is_some());
        let latest = limit.map(|limit| self.now + limit.saturating_sub(due.late));
        let worker = WorkerKey(self.next_machine());
        let mut worker_options = WorkerOptions::new(options.clone());
        worker_options.restart = RestartPolicy::new(Restart::Never);
        let machine = Worker::once(self.now, worker, worker_options, self.jitter.0.fork());
        self.enter_run(worker, machine, key);
        let lease = match lease_name {
            Some(name) => self.enter(name, options, Some(worker)),
            None => self.enter_claim(key, due.tick.n, options, worker),
        };
        let run = Run {
            due,
            lease,
            claim: None,
            latest,
            granted: false,
            started: false,
            watched,
            end: ClaimEnd::NotStarted,
            refused: None,
        };
        if let Some(entry) = self.periodics.get_mut(&key) {
            entry.periodic.runs.insert(worker, run);
        }
        self.campaigns(worker, lease);
    }

    fn enter_claim(
        &mut self,
        periodic: PeriodicKey,
        tick: u64,
        options: LeaseOptions,
        worker: WorkerKey,
    ) -> LeaseKey {
        let key = LeaseKey(self.next_machine());
        let lease = Lease::new(self.now, key, options, self.jitter.0.fork());
        if let Some(entry) = self.periodics.get(&periodic) {
            let beside = entry.periodic.options.lease.is_some();
            let timer = entry.periodic.timer;
            let claim = Claim { periodic, timer, tick, end: ClaimEnd::NotStarted, beside };
            let place = Place::Claim { claim, name: entry.name.clone() };
            self.insert_lease(key, lease, place, Some(worker));
        }
        self.settle(key);
        key
    }

    /// Begins the campaign of a claim that is at rest. What waits for the end of one goes on once that is settled.
    pub(super) fn settle_claim(&mut self, key: LeaseKey) {
        let Some(entry) = self.leases.get_mut(&key) else { return };
        let Place::Claim { claim, .. } = &entry.place else { return };
        if let Some(job) = self.periodics.get_mut(&claim.periodic) {
            let unsettled = &mut job.periodic.unsettled;
            if entry.lease.is_ending() {
                unsettled.insert(key);
            } else if unsettled.remove(&key) {
                let periodic = claim.periodic;
                return self.go_on(periodic);
            }
        }
        if entry.lease.phase() != Phase::Idle {
            return;
        }
        let own = self.periodics.get(&claim.periodic).map(|entry| entry.periodic.floor);
        self.last_n.0 += 1;
        entry.lease.campaign(self.now, self.last_n, self.floor.max(own.unwrap_or_default()), false);
        self.refresh(key);
    }

    /// What the lease of a claim says to the store, in the terms of claims.
    pub(super) fn as_claim(&self, claim: Claim, output: Output) -> Output {
        let Claim { periodic, tick, end, timer: _, beside: _ } = claim;
        match output {
            Output::Command(Command::Acquire { id, lease, n, ttl, floor, wait: _, timeout }) => {
                let job = self.periodics.get(&periodic).map(|entry| &entry.periodic);
                let due = job.and_then(|job| job.runs.values().find(|run| run.due.tick.n == tick));
                let overlap = job.zip(due).map_or(Overlap::Skip, |(job, run)| job.overlap(&run.due));
                let attempts = job.map_or(1, |job| job.options.attempts);
                Output::Command(Command::ClaimTick {
                    id,
                    lease,
                    n,
                    tick,
                    ttl,
                    floor,
                    attempts,
                    overlap,
                    timeout,
                })
            }
            Output::Command(Command::Release { id, lease, n, token, timeout }) => {
                Output::Command(Command::FinishTick { id, lease, n, tick, token, end, timeout })
            }
            output => output,
        }
    }

    /// Whether this is the claim beside the lease of a run.
    pub(super) fn is_beside(&self, lease: LeaseKey) -> bool {
        let worker = self.leases.get(&lease).and_then(|entry| entry.worker);
        let entry = worker.and_then(|worker| Some((worker, self.workers.get(&worker)?.run()?)));
        let run = entry.and_then(|(worker, job)| self.periodics.get(&job)?.periodic.runs.get(&worker));
        run.is_some_and(|run| run.claim == Some(lease))
    }

    fn run_mut(&mut self, worker: WorkerKey) -> Option<&mut Run> {
        let periodic = self.workers.get(&worker)?.run()?;
        self.periodics.get_mut(&periodic)?.periodic.runs.get_mut(&worker)
    }

    /// What a run makes of what its lease or claim says, before its worker hears it; `None` if that is all.
    pub(super) fn through_run(&mut self, worker: WorkerKey, output: Output) -> Option<Output> {
        let Some(periodic) = self.workers.get(&worker).and_then(|entry| entry.run()) else {
            return Some(output);
        };
        let Some(run) = self.run_mut(worker) else { return Some(output) };
        let (lease, claim, tick) = (run.lease, run.claim, run.due.tick.n);
        if let Output::Notice(
            Notice::Acquired { lease: granted, .. } | Notice::GrantedTooLate { lease: granted, .. },
        ) = &output
            && self.claim(*granted).is_some()
            && let Some(run) = self.run_mut(worker)
        {
            run.granted = true;
        }
        match &output {
            Output::Notice(Notice::Acquired { lease: acquired, token, .. }) => {
                let token = *token;
                let job = self.periodics.get_mut(&periodic)?;
                if Some(*acquired) == claim {
                    job.periodic.floor = job.periodic.floor.max(token);
                    self.claimed(worker, lease);
                    return None;
                }
                if job.periodic.options.lease.is_some() {
                    if self.leases.get(&lease).is_none_or(|entry| entry.lease.held().is_none()) {
                        // It is to be stopped already: nothing is claimed under it.
                        return Some(output);
                    }
                    // The run starts once the tick is claimed, too.
                    let latest = job.periodic.runs.get(&worker)?.latest;
                    let mut options = job.periodic.options.run.clone();
                    options.wait = match latest {
                        Some(latest) => WaitLimit::AtMost(latest.saturating_since(self.now)),
                        None => WaitLimit::Forever,
                    };
                    let claim = self.enter_claim(periodic, tick, options, worker);
                    if let Some(run) = self.run_mut(worker) {
                        run.claim = Some(claim);
                    }
                    self.output.push_back(output);
                    if planted(Bug::ClaimNotWaitedFor) {
                        self.claimed(worker, lease);
                    }
                    return None;
                }
                job.periodic.floor = job.periodic.floor.max(token);
            }
            Output::Notice(Notice::Failed { why, .. }) => {
                let job = self.periodics.get_mut(&periodic)?;
                let run = job.periodic.runs.get(&worker)?;
                let refused = job.periodic.refused(run, *why);
                job.periodic.runs.get_mut(&worker)?.refused.get_or_insert(refused);
                if claim.is_some() {
                    // The tick is not to be had: the lease goes back.
                    self.work_ended(lease, Exit::NotStarted);
                    return None;
                }
            }
            Output::Notice(_)
            | Output::Command(Command::DrainWorkload { .. } | Command::StopWorkload { .. })
                if claim.is_some() && output_lease(&output) == claim =>
            {
                // Under a lease the run is that lease's affair.
                return None;
            }
            _ => {}
        }
        Some(output)
    }

    /// The claim beside a lease was granted: the run may start, if the lease is still held.
    fn claimed(&mut self, worker: WorkerKey, lease: LeaseKey) {
        let held = self.leases.get(&lease).and_then(|entry| entry.lease.held());
        match held {
            Some((n, token)) => self.worker_acquired(worker, lease, n, token),
            None => self.work_ended(lease, Exit::NotStarted),
        }
    }

    /// Whether a run may start: its claim may have been granted because that of a run before it is over at the store,
    /// while its work has still to end here. Workers of other kinds may.
    pub(super) fn may_run(&mut self, worker: WorkerKey) -> bool {
        let job = self.workers.get(&worker).and_then(|entry| entry.run());
        let Some(entry) = job.and_then(|job| self.periodics.get_mut(&job)) else { return true };
        let others = entry.periodic.runs.values().any(|run| run.started);
        let may = !others || entry.periodic.options.overlap == Overlap::Allow;
        if !may && let Some(run) = entry.periodic.runs.get_mut(&worker) {
            run.refused = Some(Refused::Missed(TickMiss::Overlap));
        }
        may
    }

    /// A worker's start has left.
    pub(super) fn run_started(&mut self, worker: WorkerKey) {
        let Some(periodic) = self.workers.get(&worker).and_then(|entry| entry.run()) else { return };
        let Some(entry) = self.periodics.get_mut(&periodic) else { return };
        let Some(run) = entry.periodic.runs.get_mut(&worker) else { return };
        run.started = true;
        let skipped = entry.periodic.started();
        self.output.extend(skipped.into_iter().map(Output::Notice));
        // Until it has ended, whatever goes to the store says of the run that it has begun.
        self.set_end(worker, ClaimEnd::Interrupted);
    }

    /// What the store is to be told of the run from now on.
    fn set_end(&mut self, worker: WorkerKey, end: ClaimEnd) {
        let Some(run) = self.run_mut(worker) else { return };
        run.end = end;
        let claim = run.claim.unwrap_or(run.lease);
        if let Some(entry) = self.leases.get_mut(&claim)
            && let Place::Claim { claim, .. } = &mut entry.place
        {
            claim.end = end;
        }
    }

    /// How the tick's claim is to be ended. What is said of a run that has ended before changes nothing.
    pub(super) fn run_exited(&mut self, worker: WorkerKey, exit: Exit) {
        if self.is_running(worker) {
            let end = match exit {
                Exit::Completed | Exit::Failed if planted(Bug::FinishedAsNotStarted) => ClaimEnd::NotStarted,
                Exit::Completed | Exit::Failed => ClaimEnd::Finished,
                Exit::Stopped => ClaimEnd::Interrupted,
                Exit::NotStarted => ClaimEnd::NotStarted,
            };
            self.set_end(worker, end);
        }
    }

    /// The claim beside the lease of a run is ended before that is given back: whoever gets it next finds no claim.
    pub(super) fn finish_beside(&mut self, worker: WorkerKey) {
        let Some(claim) = self.run_mut(worker).and_then(|run| run.claim) else { return };
        if let Some(entry) = self.leases.get_mut(&claim)
            && entry.lease.phase() == Phase::Holding
        {
            entry.lease.end(self.now);
            self.settle(claim);
        }
    }

    /// A worker of one run has ended.
    pub(super) fn run_over(&mut self, periodic: PeriodicKey, worker: WorkerKey) {
        let Some(entry) = self.periodics.get_mut(&periodic) else { return };
        let Some(run) = entry.periodic.runs.remove(&worker) else { return };
        self.output.extend(entry.periodic.missed(&run).map(Output::Notice));
        if let Some(claim) = run.claim
            && let Some(entry) = self.leases.get_mut(&claim)
        {
            entry.lease.end(self.now);
            self.settle(claim);
        }
        self.go_on(periodic);
        self.job_over(periodic);
    }

    /// Claims nothing any more for this job.
    pub(super) fn end_job(&mut self, key: PeriodicKey, why: TimerEnd) {
        let Some(entry) = self.periodics.get_mut(&key) else { return };
        entry.periodic.end(why);
        self.job_over(key);
    }

    fn job_over(&mut self, key: PeriodicKey) {
        let over = self.periodics.get(&key).and_then(|entry| entry.periodic.over());
        if let Some(why) = over {
            self.periodics.remove(&key);
            self.output.push_back(Output::Notice(Notice::PeriodicEnded { periodic: key, why }));
        }
    }

    /// Ends all jobs and timers; their runs are drained by whoever calls this.
    pub(super) fn end_timers(&mut self) {
        let timers: Vec<_> = self.timers.keys().copied().collect();
        for timer in timers {
            self.end_timer(timer);
        }
        let jobs: Vec<_> = self.periodics.keys().copied().collect();
        for job in jobs {
            self.end_job(job, TimerEnd::Stopped);
        }
    }

    /// Whether anything with this number is there now.
    pub(super) fn lives(&self, machine: u64) -> bool {
        self.leases.contains_key(&LeaseKey(machine))
            || self.workers.contains_key(&WorkerKey(machine))
            || self.slots.contains_key(&machine)
            || self.timers.contains_key(&TimerKey(machine))
            || self.periodics.contains_key(&PeriodicKey(machine))
            || self.coordinators.contains_key(&CoordinatorKey(machine))
            || self.is_member(machine)
    }
}

fn output_lease(output: &Output) -> Option<LeaseKey> {
    match output {
        Output::Notice(notice) => notice.lease(),
        Output::Command(Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. }) => {
            Some(*lease)
        }
        Output::Command(_) | Output::Wait(_) => None,
    }
}
