//! A periodic job: each tick of a timer is run on one instance of the fleet.
//!
//! ```text
//!   tick due --> pending --> claiming --> running --> over
//!                   |         |  |  ^ again, if the claimant dies and attempts are left
//!                   |         |  '--'
//!                   '---------'--> skipped: too late, superseded, overlapping, refused
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | a tick is due | it is claimed: the store grants each number to one claimant, and none below the last |
//! | the claim is granted | the run starts under it; it is renewed, and fences the run, as a lease does |
//! | the claim is refused | somebody else has the tick; where it may be tried again, this instance watches it until it is finished, and claims later ones meanwhile |
//! | a run is still going on | by the policy the tick is skipped, waits for its end, or runs beside it |
//! | a later tick is due before this one could be claimed | by the timer's policy the earlier one is dropped, or comes first; a request that is under way decides before that |
//! | the store does not answer, and ticks are caught up | what is due meanwhile is made up for: runs come one after the other, and skip none of it |
//! | the grant comes to nothing: too late, drained, or an earlier run here has still to end | the claim goes back unused, and the tick is told of as skipped |
//! | the run ends | the tick is finished, or left to another attempt if the run was stopped; the next one is claimed once the store has answered to that, or the claim is over by its TTL |
//! | drained | nothing is claimed any more; over once nothing runs |
//!
//! Each run is a worker of one run (`worker.rs`), whose lease is the claim of its tick. With a lease of a name, that is
//! acquired first, and the run starts under it; the claim then only sees to it that no tick is run twice.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::command::ClaimEnd;
use crate::lease::{LeaseOptions, WaitLimit};
use crate::name::{LeaseKey, LeaseName, PeriodicKey, TimerKey, Token, WorkerKey};
use crate::notice::{AcquireFailure, Notice};
use crate::time::Instant;
use crate::timer::{DueTick, Missed, TickMiss, TimerEnd, TimerOptions};

#[cfg(feature = "model")]
mod model;
#[cfg(test)]
mod tests;

/// What becomes of a tick that is due while a run of the job is going on, on whatever instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum Overlap {
    /// It is not run.
    #[default]
    Skip,
    /// It waits until the run has ended; of several the latest, or as many as the timer catches up.
    Queue,
    /// It runs beside it, at most 16 in the whole fleet.
    Allow,
}

/// What a periodic job does, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeriodicOptions {
    /// When it runs.
    pub timer: TimerOptions,
    /// The timing of each run's claim, its grace and its text. How long to wait follows from the timer's limit of
    /// lateness, whatever stands here.
    pub run: LeaseOptions,
    /// A lease under which the runs are to be, beside whatever else uses it.
    pub lease: Option<LeaseName>,
    /// What becomes of a tick while a run is going on.
    pub overlap: Overlap,
    /// How many runs of one tick may be begun at most. With one, a run whose process dies is not repeated: at most
    /// once. With more it is, elsewhere, as long as attempts are left: at least once, so work must bear being repeated.
    pub attempts: u32,
}

impl PeriodicOptions {
    /// The most claims that a timer has at a time. Its record stays small on every store.
    pub const MOST_RUNS: usize = 16;

    /// Claims each tick, at most once, without overlap.
    #[must_use]
    pub const fn new(timer: TimerOptions, run: LeaseOptions) -> Self {
        Self { timer, run, lease: None, overlap: Overlap::Skip, attempts: 1 }
    }
}

/// The machine of one periodic job. The node joins it with its timer and the workers of its runs.
#[derive(Clone, Debug)]
pub(crate) struct Periodic {
    pub(crate) key: PeriodicKey,
    pub(crate) timer: TimerKey,
    pub(crate) options: PeriodicOptions,
    /// With the time at which they were delivered.
    pending: VecDeque<(DueTick, Instant)>,
    pub(crate) runs: BTreeMap<WorkerKey, Run>,
    /// The claims that are being ended at the store. Until they are, another one would be refused for them.
    pub(crate) unsettled: BTreeSet<LeaseKey>,
    /// Above every token of a claim that was granted here.
    pub(crate) floor: Token,
    /// Why nothing is claimed any more.
    ending: Option<TimerEnd>,
}

/// A tick that is claimed, to be claimed, or run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) due: DueTick,
    /// Under which it runs.
    pub(crate) lease: LeaseKey,
    /// The claim beside it, if that is a lease of a name.
    pub(crate) claim: Option<LeaseKey>,
    /// From when on it is too late to claim it beside a lease.
    pub(crate) latest: Option<Instant>,
    /// Its claim was granted here, be it too late.
    pub(crate) granted: bool,
    /// The workload was told to start.
    pub(crate) started: bool,
    /// It was claimed elsewhere, and is watched until it is finished.
    pub(crate) watched: bool,
    /// What became of it.
    pub(crate) end: ClaimEnd,
    /// Why it was not claimed, if that is known.
    pub(crate) refused: Option<Refused>,
}

/// Why a tick was not claimed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refused {
    /// Another has it, or nobody here wants it any more.
    NotOurs,
    /// It is not run, as far as is known.
    Missed(TickMiss),
}

/// Options take no part in it: they don't change.
impl PartialEq for Periodic {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Periodic {}

impl core::hash::Hash for Periodic {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        self.parts().hash(hasher);
    }
}

impl Periodic {
    fn parts(&self) -> impl PartialEq + core::hash::Hash + '_ {
        let Self { key, timer, options: _, pending, runs, unsettled, floor, ending } = self;
        (key, timer, pending, runs, unsettled, floor, ending)
    }

    pub(crate) fn new(key: PeriodicKey, timer: TimerKey, options: PeriodicOptions) -> Self {
        let (pending, runs, unsettled) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        Self { key, timer, options, pending, runs, unsettled, floor: Token::ZERO, ending: None }
    }

    /// A tick is due; returns those that are dropped for it, or itself, and why.
    pub(crate) fn ticked(&mut self, now: Instant, due: DueTick) -> Vec<Notice> {
        if self.ending.is_some() {
            return Vec::new();
        }
        let working = self.runs.values().any(|run| run.started);
        if self.overlap(&due) == Overlap::Skip && working {
            return Vec::from([self.skipped(due.tick.n, TickMiss::Overlap)]);
        }
        let room = self.options.timer.missed.at_once() as usize;
        let dropped = (self.pending.len() + 1).saturating_sub(room);
        let dropped: Vec<_> = self.pending.drain(..dropped).collect();
        self.pending.push_back((due, now));
        dropped.iter().map(|(due, _)| self.skipped(due.tick.n, TickMiss::Superseded)).collect()
    }

    /// Whether a tick waits to be claimed, and nothing that was begun already has to come before it.
    pub(crate) fn may_claim(&self) -> bool {
        // What is only watched takes no place from those that come after it.
        let full = self.runs.values().filter(|run| !run.watched).count() >= PeriodicOptions::MOST_RUNS;
        let busy = !self.unsettled.is_empty() || self.runs.values().any(|run| run.started);
        !self.pending.is_empty() && !full && (self.options.overlap == Overlap::Allow || !busy)
    }

    /// A tick is due that waits behind these claims, which the store has not answered, or behind the end of one. If no
    /// run is known to go on, it overlaps with none: where ticks are caught up, it is made up for, and so are those
    /// before it. Else the first run that starts would skip all the others.
    pub(crate) fn held_up(&mut self, n: u64, unanswered: &[WorkerKey]) {
        let catches_up = matches!(self.options.timer.missed, Missed::CatchUp { .. });
        let held_up = !unanswered.is_empty() || !self.unsettled.is_empty();
        let working = self.runs.values().any(|run| run.started);
        if let Some((due, _)) = self.pending.back_mut()
            && due.tick.n == n
            && catches_up
            && held_up
            && !working
        {
            due.catching_up = true;
            for worker in unanswered {
                if let Some(run) = self.runs.get_mut(worker) {
                    run.due.catching_up = true;
                }
            }
        }
    }

    /// How many of the candidates that wait make room for the ticks that wait behind them: together they are too many.
    pub(crate) fn give_way(&self, candidates: usize) -> usize {
        let room = self.options.timer.missed.at_once() as usize;
        let too_many = (self.pending.len() + candidates).saturating_sub(room);
        if self.may_claim() { too_many.min(candidates) } else { 0 }
    }

    /// Whether ticks that another has claimed are watched until they are finished.
    pub(crate) fn watches(&self) -> bool {
        self.options.attempts > 1
    }

    /// How many more ticks may be watched. The store keeps no more claims than that either.
    pub(crate) fn room_to_watch(&self) -> usize {
        PeriodicOptions::MOST_RUNS.saturating_sub(self.watched().count())
    }

    /// The oldest of the ticks that are watched, if there are more than may be.
    pub(crate) fn watched_too_many(&self) -> Option<WorkerKey> {
        let oldest = self.watched().min_by_key(|(_, run)| run.due.tick.n);
        oldest.filter(|_| self.watched().count() > PeriodicOptions::MOST_RUNS).map(|(worker, _)| *worker)
    }

    fn watched(&self) -> impl Iterator<Item = (&WorkerKey, &Run)> {
        self.runs.iter().filter(|(_, run)| run.watched && !run.started)
    }

    /// Whether the claim of this tick, if it is told to wait, waits for the end of another attempt at the same tick,
    /// not for that of another tick.
    pub(crate) fn waits_for_its_own(&self, due: &DueTick) -> bool {
        self.watches() && self.overlap(due) == Overlap::Skip
    }

    /// A run has started; returns the ticks that are skipped for that.
    pub(crate) fn started(&mut self) -> Vec<Notice> {
        let (skipped, kept) = core::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(due, _)| self.overlap(due) == Overlap::Skip);
        self.pending = kept;
        let skipped: VecDeque<(DueTick, Instant)> = skipped;
        skipped.iter().map(|(due, _)| self.skipped(due.tick.n, TickMiss::Overlap)).collect()
    }

    /// The tick to be claimed next, as late as it is by now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<DueTick> {
        let (mut due, delivered) = self.pending.pop_front()?;
        due.late = due.late.saturating_add(now.saturating_since(delivered));
        Some(due)
    }

    /// Whether this tick is here already.
    pub(crate) fn has(&self, n: u64) -> bool {
        self.runs.values().any(|run| run.due.tick.n == n)
            || self.pending.iter().any(|(due, _)| due.tick.n == n)
    }

    /// What the lease of this tick's run asks for; `None` if it is too late for it.
    pub(crate) fn run_options(&self, due: &DueTick) -> Option<LeaseOptions> {
        let mut options = self.options.run.clone();
        options.wait = match self.options.timer.late_limit {
            Some(limit) => WaitLimit::AtMost(limit.checked_sub(due.late)?),
            None => WaitLimit::Forever,
        };
        if self.options.lease.is_some() && self.overlap(due) == Overlap::Skip {
            options.wait = WaitLimit::No;
        }
        Some(options)
    }

    /// What becomes of this tick while a run is going on: those that are made up for come one after the other.
    pub(crate) fn overlap(&self, due: &DueTick) -> Overlap {
        match self.options.overlap {
            Overlap::Skip if due.catching_up => Overlap::Queue,
            overlap => overlap,
        }
    }

    /// What it means for a run that its candidacy has failed.
    pub(crate) fn refused(&self, run: &Run, why: AcquireFailure) -> Refused {
        let of_lease = self.options.lease.is_some() && run.claim.is_none();
        match why {
            AcquireFailure::TickTaken | AcquireFailure::GivenUp | AcquireFailure::ShuttingDown => {
                Refused::NotOurs
            }
            AcquireFailure::Draining => Refused::Missed(TickMiss::Draining),
            AcquireFailure::TickOverlaps => Refused::Missed(TickMiss::Overlap),
            AcquireFailure::Busy if of_lease => Refused::Missed(TickMiss::Overlap),
            // Its run goes on elsewhere.
            AcquireFailure::Busy if run.watched || self.waits_for_its_own(&run.due) => Refused::NotOurs,
            AcquireFailure::Busy | AcquireFailure::Unreachable | AcquireFailure::GrantedTooLate => {
                Refused::Missed(TickMiss::TooLate)
            }
            AcquireFailure::Refused | AcquireFailure::StoreRegressed { .. } => {
                Refused::Missed(TickMiss::Refused)
            }
        }
    }

    /// What is to be told of a run that is over, if its tick was not run.
    pub(crate) fn missed(&self, run: &Run) -> Option<Notice> {
        if run.end != ClaimEnd::NotStarted {
            return None;
        }
        let why = match run.refused {
            Some(Refused::Missed(why)) if !self.is_ending() => why,
            // Its time was over before it could start.
            None if !self.is_ending() => TickMiss::TooLate,
            // Nobody else was to have it meanwhile, and maybe nobody has it now.
            Some(_) | None if run.granted => TickMiss::GivenBack,
            Some(_) | None => return None,
        };
        Some(self.skipped(run.due.tick.n, why))
    }

    pub(crate) fn skipped(&self, tick: u64, why: TickMiss) -> Notice {
        Notice::TickSkipped { periodic: self.key, tick, why }
    }

    /// What waits to be claimed is not claimed here; returns what is to be told of it.
    pub(crate) fn pass_over(&mut self) -> Vec<Notice> {
        let passed: Vec<_> = self.pending.drain(..).collect();
        passed.iter().map(|(due, _)| self.skipped(due.tick.n, TickMiss::Draining)).collect()
    }

    /// What has not begun yet of what is claimed here will not. Where another attempt is watched, that has the tick.
    pub(crate) fn give_up(&mut self) {
        for run in self.runs.values_mut().filter(|run| !run.started) {
            let missed = Refused::Missed(TickMiss::Draining);
            run.refused.get_or_insert(if run.watched { Refused::NotOurs } else { missed });
        }
    }

    /// Claims nothing any more.
    pub(crate) fn end(&mut self, why: TimerEnd) {
        self.ending.get_or_insert(why);
        self.pending.clear();
    }

    /// Why it is over, once nothing runs.
    pub(crate) fn over(&self) -> Option<TimerEnd> {
        self.ending.filter(|_| self.runs.is_empty())
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }
}
