//! Periodic jobs and timers: what instances ask for, what the store makes of it, and what goes wrong with them.

use std::time::Duration;

use tenure_core::{
    Command, CommandId, Event, Every, Exit, Failure, LeaseKey, LeaseOptions, Missed, Notice, Overlap,
    PeriodicKey, PeriodicOptions, Reply, TimerName, TimerOptions, WorkerKey, WorkerOptions,
};
use tenure_store::{Answer, TimerAct, TimerAnswer};

use super::super::member::{CLAIM, Candidacy, Worker};
use super::super::store::Absence;
use super::super::world::Schedule;
use super::super::{MOST_JOBS, MOST_NAMES};
use super::{Condition, Fact, Fault, Fleet, Happening, MS, SECOND, What};
use crate::store::timer_act;

/// Where the store's wall clock begins: in the year 2023.
pub(super) const WALL: u64 = 1_700_000_000 * SECOND;
/// The most that the wall clock is set, in either direction.
const LARGEST_STEP: u64 = 100 * SECOND;

impl Fleet {
    /// What jobs and timers there are.
    pub(super) fn make_schedules(&mut self) {
        let names = self.world.names.len();
        let jobs = 1 + self.tape.base().pick(MOST_JOBS);
        for nth in 0..=jobs {
            let lane = self.tape.of(Fault::Jobs);
            let mut period = || Duration::from_nanos(300 * MS + lane.below(2 * SECOND));
            let periods = [period(), period()];
            let missed = match lane.pick(4) {
                3 => Missed::CatchUp { at_most: 3 },
                2 => Missed::CatchUp { at_most: 1 },
                _ => Missed::Skip,
            };
            let late_limit = (lane.pick(4) == 3).then(|| Duration::from_nanos(200 * MS + lane.below(SECOND)));
            let lease = (lane.pick(4) == 3).then(|| lane.pick(names.min(MOST_NAMES)));
            let overlap = [Overlap::Skip, Overlap::Queue, Overlap::Allow][lane.pick(3)];
            let overlap = if lease.is_some() && overlap == Overlap::Allow { Overlap::Skip } else { overlap };
            let attempts = 1 + lane.pick(2) as u32;
            let name = if nth < jobs { format!("job-{nth}") } else { "timer".into() };
            let name = TimerName::new(name).expect("a fine name");
            let lease = lease.filter(|_| nth < jobs);
            let schedule = Schedule { name, periods, missed, late_limit, overlap, attempts, lease };
            self.world.schedules.push(schedule);
            self.world.claims_trusted_from.push(0);
            self.world.forgotten.push(false);
        }
        self.world.jobs = jobs;
    }

    /// How long a job may take, healthy as everything is, until it has run again: for that long it is looked at.
    pub(in crate::simulation) fn patience(&self) -> u64 {
        if self.world.jobs == 0 { 0 } else { 14 * SECOND }
    }

    /// A process begins with the jobs and timers that it does not have.
    pub(super) fn start_missing(&mut self, member: usize) {
        for index in 0..self.world.schedules.len() {
            let node = &self.world.members[member];
            if !node.jobs.iter().any(|(_, job)| *job == index)
                && !node.timers.iter().any(|(_, timer)| *timer == index)
            {
                self.start_schedule(member, index);
            }
        }
    }

    fn start_schedule(&mut self, member: usize, index: usize) {
        let schedule = self.world.schedules[index].clone();
        let other = usize::from(self.chance(Fault::Wall, member, 4));
        let mut options = TimerOptions::new(Every::new(schedule.periods[other]).expect("it fits"));
        (options.missed, options.late_limit) = (schedule.missed, schedule.late_limit);
        options.timeout = Duration::from_millis(500);
        let run = self.lease_options(member);
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        if index < self.world.jobs {
            let mut options = PeriodicOptions::new(options, run);
            (options.overlap, options.attempts) = (schedule.overlap, schedule.attempts);
            options.lease = schedule.lease.map(|lease| self.world.names[lease].clone());
            if let Ok(job) = node.node.start_periodic(now, schedule.name, options) {
                node.jobs.push((job, index));
            }
        } else if let Ok(timer) = node.node.start_timer(now, schedule.name, options) {
            node.timers.push((timer, index));
        }
    }

    /// A job or timer that was ended begins again.
    pub(super) fn start_again(&mut self, life: usize, schedule: usize) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        match self.world.members[member].condition {
            Condition::Paused { until } if until < u64::MAX => {
                self.plan(until, Happening::Job { life, schedule })
            }
            Condition::Up if !self.world.members[member].shut => {
                self.start_missing(member);
                self.pump(member, None);
            }
            _ => {}
        }
    }

    /// A user ends a run, or a job.
    pub(super) fn act_on_job(
        &mut self,
        member: usize,
        lease: LeaseKey,
        works: bool,
        action: u64,
        little: bool,
    ) {
        let now = self.reads_clock(member);
        match action {
            1 if works => self.exited(member, lease, Exit::Completed),
            2 | 3 => {
                let Some((job, _)) = self.world.members[member].candidacy(lease).and_then(|it| it.run) else {
                    return;
                };
                self.struck(member, What::Drain);
                let node = &mut self.world.members[member];
                for (key, _) in node.jobs.iter().filter(|(_, other)| *other == job) {
                    let _ = if little {
                        node.node.stop_periodic(now, *key)
                    } else {
                        node.node.drain_periodic(now, *key)
                    };
                }
            }
            _ => return,
        }
        self.pump(member, None);
    }

    /// A tick is to be claimed, or the lease under which it is to be run.
    pub(super) fn claims(
        &mut self,
        member: usize,
        worker: WorkerKey,
        lease: LeaseKey,
        periodic: PeriodicKey,
        tick: u64,
    ) {
        let options = self.world.timing;
        let node = &mut self.world.members[member];
        let Some((_, job)) = node.jobs.iter().find(|(key, _)| *key == periodic).copied() else {
            let what = format!("node {member} speaks of {periodic}, which has ended");
            self.violation.get_or_insert(super::Violation::new("what has ended stays silent", what));
            return;
        };
        let name = self.world.schedules[job].lease.unwrap_or(CLAIM);
        let candidacy = Candidacy::new(lease, name, LeaseOptions::new(options));
        node.candidacies.push(Candidacy { worker: Some(worker), run: Some((job, tick)), ..candidacy });
    }

    /// The worker of a run has something to say.
    pub(super) fn run_notice(&mut self, member: usize, key: WorkerKey, notice: &Notice) {
        let options = WorkerOptions::new(LeaseOptions::new(self.world.timing));
        // It is over after its one run, as if it were drained.
        let worker = Worker { key, name: CLAIM, options, draining: true, share: false };
        self.note(&Fact::WorkerNoticed { member, worker: &worker, notice });
    }

    /// A run goes on for up to one period and a half.
    pub(super) fn plan_end_of_run(&mut self, member: usize, job: usize, lease: LeaseKey) {
        let longest = self.world.schedules[job].periods[0].as_nanos() as u64 * 3 / 2;
        let at = self.world.now + 10 * MS + self.tape.at(Fault::Jobs, member).below(longest);
        let life = self.world.members[member].life;
        self.plan(at, Happening::Finish { life, lease });
    }

    pub(super) fn timer_notice(&mut self, member: usize, notice: &Notice) {
        let node = &self.world.members[member];
        let life = node.life;
        let job = |key: PeriodicKey| node.jobs.iter().find(|(other, _)| *other == key).map(|(_, job)| *job);
        let timer = |key| {
            let own = node.timers.iter().find(|(other, _)| *other == key).map(|(_, timer)| *timer);
            own.or_else(|| job(node.node.timer_periodic(key)?))
        };
        let schedule = match notice {
            Notice::Ticked { timer: key, .. }
            | Notice::TicksMissed { timer: key, .. }
            | Notice::ScheduleChanged { timer: key, .. }
            | Notice::ScheduleUnreadable { timer: key }
            | Notice::Rebased { timer: key, .. }
            | Notice::TimerRetrying { timer: key, .. }
            | Notice::TimerEnded { timer: key, .. } => timer(*key),
            Notice::TickSkipped { periodic, .. } | Notice::PeriodicEnded { periodic, .. } => job(*periodic),
            _ => None,
        };
        let Some(schedule) = schedule else {
            let what = format!("node {member} says {notice:?} of what has ended");
            self.violation.get_or_insert(super::Violation::new("what has ended stays silent", what));
            return;
        };
        self.note(&Fact::TimerNoticed { member, schedule, notice });
        let node = &mut self.world.members[member];
        match notice {
            Notice::TimerEnded { .. } => node.timers.retain(|(_, timer)| *timer != schedule),
            Notice::PeriodicEnded { .. } => node.jobs.retain(|(_, job)| *job != schedule),
            _ => return,
        }
        self.plan(self.world.now + SECOND / 5, Happening::Job { life, schedule });
    }

    /// A node has a request about a timer for the store.
    pub(super) fn send_timer(&mut self, member: usize, command: &Command) {
        let node = &self.world.members[member];
        let life = node.life;
        let asked = timer_act(&node.node, command);
        let (Some(id), Some((name, act))) = (command.id(), asked) else {
            let what = format!("node {member} says {command} of what has ended");
            self.violation.get_or_insert(super::Violation::new("what has ended stays silent", what));
            return;
        };
        let schedule = self.world.schedule(&name).expect("only timers of ours are asked for");
        let lost = self.chance(Fault::Loss, member, 8);
        if lost || !self.world.members[member].asks {
            return self.note(&Fact::Lost { life, id: Some(id), what: "request" });
        }
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 8) {
            let later = at + self.delay(member);
            let act = act.clone();
            self.plan(later, Happening::TimerRequest { life, schedule, id, act, served: false });
        }
        self.plan(at, Happening::TimerRequest { life, schedule, id, act, served: false });
    }

    /// A request about a timer reaches the store.
    pub(super) fn arrive_timer(
        &mut self,
        life: usize,
        schedule: usize,
        id: CommandId,
        act: TimerAct,
        served: bool,
    ) {
        let (now, member) = (self.world.now, self.place(life));
        let failed = |failure| Event::Reply { id, reply: Reply::Failed(failure) };
        if now < self.world.store.down_until {
            let swallowed = match self.world.store.absence {
                Absence::Mixed => self.tape.at(Fault::Restart, member).one_in(2),
                Absence::Refuses => false,
                Absence::Swallows => true,
            };
            return if swallowed {
                self.note(&Fact::Lost { life, id: Some(id), what: "request" })
            } else {
                self.answer_timer(life, failed(Failure::NotExecuted))
            };
        }
        if now < self.world.store.slow_until && !served {
            let at = now + self.tape.at(Fault::Slow, member).below(500 * MS);
            return self.plan(at, Happening::TimerRequest { life, schedule, id, act, served: true });
        }
        if self.chance(Fault::Trouble, member, 12) {
            let refused = self.tape.at(Fault::Trouble, member).one_in(8);
            let failure = if refused { Failure::Refused } else { Failure::NotExecuted };
            return self.answer_timer(life, failed(failure));
        }
        let answer = self.execute_timer(life, schedule, id, &act);
        if self.chance(Fault::ReplyLost, member, 10) || !self.world.members[member].hears {
            return self.note(&Fact::Lost { life, id: Some(id), what: "answer" });
        }
        let unsure = self.chance(Fault::Trouble, member, 12);
        let event = if unsure { failed(Failure::Unknown) } else { Answer::Timer(answer).event(id) };
        self.answer_timer(life, event);
    }

    fn execute_timer(&mut self, life: usize, schedule: usize, id: CommandId, act: &TimerAct) -> TimerAnswer {
        let world = &mut self.world;
        let name = world.schedules[schedule].name.clone();
        let before = world.store.timer(&name).cloned();
        let answer = world.store.execute_timer(world.now, &name, act);
        let after = world.store.timer(&name).cloned();
        if matches!(answer, TimerAnswer::Granted(_)) {
            self.grants += 1;
        }
        self.note(&Fact::TimerExecuted {
            life,
            schedule,
            id,
            act,
            before: before.as_ref(),
            answer: &answer,
            after: after.as_ref(),
        });
        answer
    }

    fn answer_timer(&mut self, life: usize, event: Event) {
        let member = self.place(life);
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 10) {
            let later = at + self.delay(member);
            let event = event.clone();
            self.plan(later, Happening::Read { life, event });
        }
        self.plan(at, Happening::Read { life, event });
    }

    /// The store's wall clock is set, or a timer is forgotten.
    pub(super) fn upset_timers(&mut self) {
        if self.world.schedules.is_empty() {
            return;
        }
        let (now, schedules) = (self.world.now, self.world.schedules.len());
        let lane = self.tape.of(Fault::Wall);
        let by = lane.below(LARGEST_STEP) >> (2 * lane.below(6));
        match lane.pick(5) {
            0 | 1 => {
                self.world.store.wall.step(by as i64);
                self.struck(None, What::WallSet);
            }
            2 | 3 => {
                self.world.store.wall.step(-(by as i64));
                self.world.wall_set_back = Some(now);
                self.struck(None, What::WallSetBack);
            }
            _ => {
                let schedule = lane.pick(schedules);
                let name = self.world.schedules[schedule].name.clone();
                self.world.store.model.timers.remove(&name);
                self.world.claims_trusted_from[schedule] = now + self.outlived();
                self.world.forgotten[schedule] = true;
                self.struck(None, What::TimerForgotten);
            }
        }
    }
}
