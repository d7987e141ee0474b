//! What a search adds for periodic jobs: claims, runs, and what must hold of them.
//!
//! A timer's record is read at once, whenever a node asks for it: how well a node knows the store's time is left to the
//! simulation. Requests about claims travel like those about leases.

use std::fmt::Write as _;
use std::rc::Rc;

use tenure_core::{AnySchedule, Command, Event, Exit, Identity, LeaseKey, Misuse, Notice, Token};
use tenure_store::{Answer, StoreTime, TimerAct, TimerAnswer, TimerRecord};

use super::explore::Violation;
use super::step::{Step, brief};
use super::world::{Grant, Laws, Member, Run, What, Work, World, violation};
use crate::store::{act, timer_act};

impl Step<'_> {
    fn time(&self) -> StoreTime {
        StoreTime { wall: self.world.wall, now: self.world.store_clock }
    }

    /// A node asks for its timer's record, and has the answer at once.
    pub(super) fn timer_command(&mut self, index: usize, command: &Command) -> Result<(), Violation> {
        let time = self.time();
        let World { members, store, .. } = &mut self.world;
        let member = &mut members[index];
        let (Some(id), Some((name, act))) = (command.id(), timer_act(&*member.node, command)) else {
            return Ok(());
        };
        let answer = store.execute_timer(time, &name, &act);
        let event = Answer::Timer(answer).event(id);
        Rc::make_mut(&mut member.node).handle(member.clock, event).map_err(misuse)
    }

    /// A node has something to say about a claim.
    pub(super) fn claim_command(
        &mut self,
        index: usize,
        command: Command,
        lease: LeaseKey,
    ) -> Result<(), Violation> {
        let member = &mut self.world.members[index];
        let name = member.name().to_owned();
        let Some((_, tick)) = member.node.claim(lease) else { return Ok(()) };
        if let Command::FinishTick { n, token, .. } = &command
            && let Some(run) = member.runs.iter_mut().find(|run| run.lease == lease)
            && run.grant.is_some_and(|grant| grant.n == *n && token.is_none_or(|token| token == grant.token))
        {
            if run.work != Work::None {
                return Err(violation("S9", format!("{name} finishes tick {tick} before its run has ended")));
            }
            run.grant = None;
            if member.node.valid(member.clock, lease).is_some() {
                return Err(violation("S9", format!("{name} is valid while it finishes tick {tick}")));
            }
        }
        let identity = member.node.identity().clone();
        self.send(index, identity, What::Claim(command, tick));
        Ok(())
    }

    /// The store carries out a request about a claim.
    pub(super) fn execute_claim(
        &mut self,
        index: usize,
        identity: Identity,
        command: &Command,
        tick: u64,
    ) -> Result<(), Violation> {
        let (time, name) = (self.time(), &self.laws.timer);
        let Some(act) = act(&identity, command, tick) else { return Ok(()) };
        let before = self.world.store.timers.get(name).cloned();
        let answer = self.laws.config.store.execute_timer(&mut self.world.store, time, name, &act);
        let after = self.world.store.timers.get(name);
        if let (Some(before), Some(after)) = (&before, after) {
            granted_in_order(before, after, &act, &answer)?;
        }
        if let Some(id) = command.id()
            && self.world.members[index].node.identity() == &identity
            && let Event::Reply { id, reply } = Answer::Timer(answer).event(id)
        {
            self.send(index, identity, What::Answer(id, reply));
        }
        Ok(())
    }

    pub(super) fn start_run(&mut self, index: usize, lease: LeaseKey, token: Token) -> Result<(), Violation> {
        let attempts = self.laws.config.job.map_or(1, |job| job.attempts);
        let wall = self.world.wall;
        let may_fail = self.laws.config.job.is_some_and(|job| job.fails_to_start)
            && self.laws.may_leave_unfinished(&self.world);
        let World { members, begun, .. } = &mut self.world;
        let member = &mut members[index];
        let (name, node) = (member.name().to_owned(), Rc::clone(&member.node));
        let Some(run) = member.runs.iter_mut().find(|run| run.lease == lease) else {
            return Err(violation("C1", format!("{name} starts work under {lease}, which is no run's")));
        };
        if run.work != Work::None {
            return Err(violation("C1", format!("{name} would run tick {} twice", run.tick)));
        }
        let granted = run.grant.is_some_and(|grant| grant.token == token && !grant.lost);
        if !granted || node.valid(member.clock, lease) != Some(token) {
            return Err(violation("S3", format!("{name} would run tick {} without its claim", run.tick)));
        }
        let due = node.run(run.worker).map(|(_, due)| due.tick);
        if due.is_none_or(|due| due.at > wall) {
            return Err(violation("T1", format!("{name} runs {due:?} too early, at {wall:?}")));
        }
        if may_fail && self.laws.tape.choose(2) == 1 {
            self.tell(|_| "    it does not begin".into());
            let member = &mut self.world.members[index];
            let exit = Event::WorkloadExited { lease, exit: Exit::NotStarted };
            return Rc::make_mut(&mut member.node).handle(member.clock, exit).map_err(misuse);
        }
        run.work = Work::Running;
        let times = begun.entry(run.tick).or_default();
        *times += 1;
        if *times > attempts {
            return Err(violation("T2", format!("tick {} is begun {times} times", run.tick)));
        }
        Ok(())
    }

    pub(super) fn stop_run(&mut self, index: usize, lease: LeaseKey, to: Work) {
        let runs = self.world.members[index].runs.iter_mut();
        for run in runs.filter(|run| run.lease == lease && run.work != Work::None) {
            run.work = to;
        }
    }

    /// A run comes to its end.
    pub(super) fn end_run(&mut self, index: usize, place: usize) -> Result<(), Violation> {
        let run = &mut self.world.members[index].runs[place];
        let (lease, tick) = (run.lease, run.tick);
        let exit = if run.work == Work::Running { Exit::Completed } else { Exit::Stopped };
        run.work = Work::None;
        self.tell(|world| {
            format!("the run of tick {tick} on {} ends: {exit:?}", world.members[index].name())
        });
        self.handle(index, Event::WorkloadExited { lease, exit })
    }

    pub(super) fn job_notice(&mut self, index: usize, notice: &Notice) -> Result<(), Violation> {
        let member = &mut self.world.members[index];
        self.story.as_mut().map(|story| writeln!(story, "    {}: {}", member.name(), brief(notice)));
        let run = |member: &mut Member, lease: Option<LeaseKey>| {
            member.runs.iter().position(|run| Some(run.lease) == lease)
        };
        match *notice {
            Notice::Campaigning { worker, lease } => {
                let Some((_, due)) = member.node.run(worker) else {
                    return Err(violation("C1", format!("{worker} of {} runs nothing", member.name())));
                };
                let tick = due.tick.n;
                if member.runs.iter().any(|run| run.tick == tick) {
                    return Err(violation(
                        "T2",
                        format!("{} has two candidates for tick {tick}", member.name()),
                    ));
                }
                member.runs.push(Run { worker, lease, tick, grant: None, work: Work::None });
            }
            Notice::Acquired { n, token, .. } => {
                if let Some(place) = run(member, notice.lease()) {
                    member.runs[place].grant = Some(Grant { n, token, lost: false });
                }
            }
            Notice::Lost { .. } => {
                if let Some(place) = run(member, notice.lease())
                    && let Some(grant) = &mut member.runs[place].grant
                {
                    grant.lost = true;
                }
            }
            Notice::WorkerEnded { worker } => {
                let over = |run: &Run| run.worker == worker;
                if member.runs.iter().any(|run| over(run) && run.work != Work::None) {
                    let what = format!("the worker of {} ends before its run has", member.name());
                    return Err(violation("C1", what));
                }
                member.runs.retain(|run| !over(run));
            }
            _ => {}
        }
        Ok(())
    }

    /// What must hold of the runs of a node that has just handled something.
    pub(super) fn runs_settled(&self, index: usize) -> Result<(), Violation> {
        let member = &self.world.members[index];
        for run in &member.runs {
            let what = format!("of tick {} on {}", run.tick, member.name());
            let holds = run.grant.is_some_and(|grant| !grant.lost);
            if !holds && matches!(run.work, Work::Running | Work::Asked) {
                return Err(violation("S3", format!("the run {what} outlives its claim")));
            }
            let Some(deadlines) = member.node.deadlines(run.lease) else { continue };
            if deadlines.fence_at <= member.clock && run.work == Work::Running {
                return Err(violation("S3", format!("the run {what} is not asked to stop at the fence")));
            }
            if deadlines.kill_at <= member.clock && matches!(run.work, Work::Running | Work::Asked) {
                return Err(violation("S3", format!("the run {what} is not stopped hard in time")));
            }
            let armed = member.alarm.is_some_and(|alarm| alarm <= deadlines.fence_at);
            if member.node.valid(member.clock, run.lease).is_some() && !armed {
                return Err(violation("S3", format!("{} would sleep beyond its fence", member.name())));
            }
        }
        Ok(())
    }
}

impl World {
    /// A run of this member that ends as soon as there is no trouble.
    pub(super) fn run_to_end(&self, index: usize) -> Option<usize> {
        self.members[index].runs.iter().position(|run| run.work != Work::None)
    }
}

impl Laws {
    /// Whether the run of one more tick may come to nothing.
    pub(super) fn may_leave_unfinished(&self, world: &World) -> bool {
        let Some(most) = self.config.job.and_then(|job| job.unfinished) else { return true };
        let claims = world.store.timers.values().flat_map(|record| &record.claims);
        claims.filter(|claim| claim.ends <= world.store_clock).count() < most
    }

    /// Whether a process may end, and leave the tick that it has to another attempt.
    pub(super) fn may_crash(&self, world: &World) -> bool {
        let Some(most) = self.config.job.and_then(|job| job.unfinished) else { return true };
        world.store.timers.values().all(|record| record.claims.len() <= most)
    }

    /// Whether runs that go on have to end before time does.
    pub(super) fn runs_must_end(&self, world: &World) -> bool {
        let mut runs = world.members.iter().flat_map(|member| &member.runs);
        runs.any(|run| run.work == Work::Running) && !self.may_leave_unfinished(world)
    }
    /// Whether somebody has claimed the last tick that was due.
    pub(super) fn latest_tick_is_claimed(&self, world: &World) -> bool {
        world.store.timers.get(&self.timer).is_some_and(|record| {
            let latest = AnySchedule::parse(&record.schedule)
                .and_then(|schedule| schedule.latest(record.base, world.wall));
            latest.is_some_and(|latest| latest.n <= record.claimed)
        })
    }
}

/// T4 and T2, as far as the store can keep them: no claim goes back, and each tick is claimed after those before it.
fn granted_in_order(
    before: &TimerRecord,
    after: &TimerRecord,
    act: &TimerAct,
    answer: &TimerAnswer,
) -> Result<(), Violation> {
    if after.claimed < before.claimed || after.base != before.base {
        return Err(violation("T4", format!("{before:?} becomes {after:?}")));
    }
    let TimerAct::Claim(claim) = act else { return Ok(()) };
    if let TimerAnswer::Granted(token) = answer
        && let Some(old) = before.claims.iter().find(|old| old.token >= *token)
        && old.token != *token
    {
        return Err(violation("S6", format!("tick {} is granted with {token} after {old:?}", claim.tick)));
    }
    Ok(())
}

/// Safety of claims, in every state.
pub(super) fn check_claims(laws: &Laws, world: &World) -> Result<(), Violation> {
    let record = world.store.timers.get(&laws.timer);
    let mut valid = 0;
    for member in &world.members {
        for run in &member.runs {
            let owns = |grant: Grant| {
                let owner = member.node.identity().owner(grant.n).to_string();
                record.into_iter().flat_map(|record| &record.claims).any(|claim| {
                    claim.tick == run.tick
                        && claim.token == grant.token
                        && claim.owner == owner
                        && world.store_clock < claim.ends
                })
            };
            let what = format!("{} with tick {}", member.name(), run.tick);
            let grant = run.grant.filter(|grant| !grant.lost);
            if let Some(token) = member.node.valid(member.clock, run.lease) {
                valid += 1;
                if !grant.is_some_and(|grant| grant.token == token && owns(grant)) {
                    return Err(violation("S2'", format!("{what} is valid, and has no such claim")));
                }
            }
            if let (Some(deadlines), Some(grant)) = (member.node.deadlines(run.lease), grant)
                && member.clock < deadlines.valid_until
                && !owns(grant)
            {
                return Err(violation("S4", format!("{what} may still work, and has no such claim")));
            }
        }
    }
    if valid > 1 {
        return Err(violation("overlap", "two runs are valid at once".into()));
    }
    Ok(())
}

fn misuse(misuse: Misuse) -> Violation {
    violation("misuse", misuse.to_string())
}
