//! Processes that share twelve workloads out among themselves, and what may happen to them: others come, one is killed,
//! stopped, asked to end, drained by an operator. By the evidence that the commands leave none ever works twice, none is
//! without an owner for longer than is promised, and no more move than must.
//!
//! | what happens | a workload that moves is without an owner for |
//! |---|---|
//! | a process comes, a drain is taken back | a round trip after its command's end |
//! | a process is asked to end, or drained | a round trip after its command's end |
//! | a process is killed, and the store sees that | the time in which that shows, and a round trip |
//! | a process is killed or stopped, and only the clock tells | its TTLs: that of the membership, then what is left of the lease's |
//!
//! With `TENURE_ACCEPT=1` in the environment there is a minute of mixed trouble as well, in place of a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure::{AnyAssigner, Balanced, Identity, Incarnation, LeaseName, Member, Rendezvous, Timestamp};

use crate::fleet::Dice;
use crate::harness::{
    Evidence, Pace, Place, Running, between, eventually, figures, now, output, stop, witness_program,
};

const WORKLOADS: usize = 12;
const TTL: Duration = Duration::from_secs(3);
const MEMBER_TTL: Duration = Duration::from_millis(1500);
const HEARTBEAT: Duration = Duration::from_millis(500);
/// So many milliseconds a command works on after it was asked to end: whoever does not wait for it meets it at work.
const LINGERS: &str = "300";
const HOLD_DOWN: Duration = Duration::from_millis(700);

fn names() -> Vec<LeaseName> {
    (0..WORKLOADS).map(|n| LeaseName::new(format!("w{n:02}")).unwrap()).collect()
}

/// What may happen to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Join,
    Kill,
    Freeze,
    Thaw,
    End,
    Drain,
    Undo,
}

/// A process.
struct Worker {
    name: String,
    running: Running,
    /// It drains because an operator wants it.
    drained: bool,
}

/// Which process has which workload.
type Plan = BTreeMap<String, String>;

/// The processes, and what was measured.
struct Fleet {
    place: Place,
    rule: &'static str,
    assigner: AnyAssigner,
    workers: BTreeMap<String, Worker>,
    /// Those that are stopped, and when they are to go on.
    frozen: Vec<(Worker, u64)>,
    started: usize,
    pace: Pace,
    /// For how long workloads that moved were without an owner.
    unowned: BTreeMap<Kind, Vec<Duration>>,
    moves: BTreeMap<Kind, Vec<usize>>,
    /// When something happened, by the clock of the evidence.
    troubles: Vec<u64>,
}

impl Fleet {
    fn new(place: Place, rule: &'static str) -> Self {
        let assigner: AnyAssigner = match rule {
            "balanced" => Balanced.into(),
            "rendezvous" => Rendezvous::new().into(),
            _ => Rendezvous::unbounded().into(),
        };
        let lines: String = names().iter().map(|name| format!("{name}\n")).collect();
        std::fs::write(place.path("list"), lines).unwrap();
        let (workers, unowned, moves) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (frozen, pace, troubles) = (Vec::new(), Pace::default(), Vec::new());
        Self { place, rule, assigner, workers, frozen, started: 0, pace, unowned, moves, troubles }
    }

    fn start(&mut self) -> String {
        self.started += 1;
        let name = format!("worker-{}", self.started);
        let spans = [TTL, MEMBER_TTL, HEARTBEAT, HOLD_DOWN].map(|span| format!("{}ms", span.as_millis()));
        let list = self.place.path("list");
        let mut command = self.place.worker(&[
            "--from",
            list.to_str().unwrap(),
            "--assign",
            self.rule,
            "--instance",
            &name,
            "--ttl",
            &spans[0],
            "--member-ttl",
            &spans[1],
            "--heartbeat",
            &spans[2],
            "--hold-down",
            &spans[3],
        ]);
        command
            .arg(witness_program())
            .arg("work")
            .arg(self.place.path("{workload}"))
            .args(["--lingers", LINGERS]);
        let worker = Worker { name: name.clone(), running: Running::start(command), drained: false };
        self.workers.insert(name.clone(), worker);
        name
    }

    fn evidence(&self) -> BTreeMap<String, Evidence> {
        let of = |name: LeaseName| (name.as_str().to_owned(), self.place.evidence(name.as_str()));
        names().into_iter().map(of).collect()
    }

    /// Who is to have what, by the members that are listed; `None` unless these are the ones that there are.
    fn plan(&self) -> Option<Plan> {
        let listed = self.place.list(&["instances"]);
        let name = |instance: &Value| instance["instance"].as_str().unwrap().to_owned();
        let there: BTreeSet<String> = listed.iter().map(name).collect();
        let mut members: Vec<Member> =
            listed.iter().filter(|instance| instance["state"] == "active").map(member).collect();
        let counting = self.workers.values().filter(|worker| !worker.drained).count();
        if there != self.workers.keys().cloned().collect() || members.len() != counting {
            return None;
        }
        members.sort_by(|one, other| (one.joined, &one.identity).cmp(&(other.joined, &other.identity)));
        let owner = |place: Option<usize>| members[place.unwrap()].identity.instance().to_owned();
        let plan = self.assigner.assign(&names(), &members).into_iter().map(owner);
        Some(names().iter().map(|name| name.as_str().to_owned()).zip(plan).collect())
    }

    /// Waits until each workload is at work where it belongs, and gives that, with the tokens.
    fn settle(&self, what: &str) -> (Plan, BTreeMap<String, u64>) {
        eventually(&format!("all to work where they belong, after {what}"), || {
            let plan = self.plan()?;
            let leases = self.place.list(&["leases"]);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let holders: Plan =
                leases.iter().map(|lease| (text(&lease["lease"]), text(&lease["instance"]))).collect();
            if holders != plan {
                return None;
            }
            let tokens: BTreeMap<String, u64> = leases
                .iter()
                .map(|lease| (text(&lease["lease"]), lease["token"].as_u64().unwrap()))
                .collect();
            let works = |(name, evidence): (&String, &Evidence)| {
                evidence.history.units.iter().any(|unit| unit.token == tokens[name])
            };
            self.evidence().iter().all(works).then_some((plan, tokens))
        })
    }

    /// Lets something happen, waits until all works where it belongs again, and checks what has moved, and for how long it
    /// was without an owner: at most `limit` after its last work, and what a busy machine needs to start a command.
    fn event(&mut self, kind: Kind, limit: Duration, happen: impl FnOnce(&mut Self)) {
        self.pace.measure();
        let (before, tokens) = self.settle("the event before");
        let start = now();
        happen(self);
        let (after, tokens_after) = self.settle(&format!("{kind:?}"));
        self.even(&after);

        let moved: BTreeSet<&String> =
            before.iter().filter(|(name, owner)| after[*name] != **owner).map(|(name, _)| name).collect();
        for name in before.keys().filter(|name| !moved.contains(name)) {
            assert_eq!(
                tokens[name], tokens_after[name],
                "{kind:?} disturbed {name}, which stays where it was"
            );
        }
        self.few_moved(kind, &before, &after, moved.len());
        self.moves.entry(kind).or_default().push(moved.len());
        let evidence = self.evidence();
        let gaps: Vec<Duration> =
            evidence.values().flat_map(|evidence| gaps(evidence, start)).map(|gap| gap.span()).collect();
        assert_eq!(gaps.len(), moved.len(), "{kind:?} moved something to and fro");
        println!("{kind:?}: {} of {WORKLOADS} moved, without an owner for {gaps:?}", gaps.len());
        let limit = limit + self.pace.limit(Duration::ZERO, 12);
        assert!(gaps.iter().all(|gap| *gap < limit), "{kind:?}: longer than {limit:?}: {gaps:?}");
        self.unowned.entry(kind).or_default().extend(gaps);
    }

    /// No process has more than its share.
    fn even(&self, plan: &Plan) {
        let counting = self.workers.values().filter(|worker| !worker.drained);
        let of = |worker: &Worker| plan.values().filter(|owner| **owner == worker.name).count();
        let counts: Vec<usize> = counting.map(of).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        match self.rule {
            "balanced" => assert!(most - least <= 1, "{counts:?}"),
            _ => assert!(*most <= (5 * WORKLOADS).div_ceil(4 * counts.len()), "{counts:?}"),
        }
    }

    /// What need not move stays: of a rule that promises so. Whoever is gone has nothing, and what it had moves.
    fn few_moved(&self, kind: Kind, before: &Plan, after: &Plan, moved: usize) {
        let gone = |name: &String| after.values().all(|owner| owner != name);
        let left = before.values().filter(|owner| gone(owner)).count();
        let came = after.values().filter(|owner| before.values().all(|before| before != *owner)).count();
        let least = left.max(came);
        assert!(moved >= least);
        // Twice the least is what a change that moves the bound may cost.
        if self.rule == "rendezvous" {
            assert!(moved <= 2 * least + 2, "{kind:?} moved {moved}, and {least} had to move");
        }
    }

    fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.get_mut(name).unwrap()
    }

    fn kill(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        worker.running.signal(Signal::KILL);
        assert_eq!(worker.running.code(), None, "killed");
    }

    fn end(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        worker.running.signal(Signal::TERM);
        assert_eq!(worker.running.code(), Some(143), "{name}");
    }

    /// Stops it, until then; false if that was no moment to do so.
    fn freeze(&mut self, name: &str, until: u64) -> bool {
        let stopped = stop(&self.place, &self.workers[name].running).is_some();
        if stopped {
            let worker = self.workers.remove(name).unwrap();
            self.frozen.push((worker, until));
        }
        stopped
    }

    /// Lets those go on whose time has come.
    fn thaw(&mut self, now: u64) {
        let (due, frozen): (Vec<_>, Vec<_>) = self.frozen.drain(..).partition(|(_, until)| *until <= now);
        self.frozen = frozen;
        for (worker, _) in due {
            worker.running.signal(Signal::CONT);
            self.troubles.push(crate::harness::now());
            self.workers.insert(worker.name.clone(), worker);
        }
    }

    fn mark(&mut self, name: &str, drain: bool) {
        let undo: &[&str] = if drain { &[] } else { &["--undo"] };
        let (code, _, err) = output(self.place.tenure(&[&["drain", name], undo].concat()));
        assert_eq!(code, Some(0), "{err}");
        self.worker(name).drained = drain;
    }

    /// All end in order; nothing is left, and by all evidence none ever worked twice.
    fn finish(mut self) {
        let names: Vec<String> = self.workers.keys().cloned().collect();
        names.iter().for_each(|name| self.end(name));
        assert!(self.place.holders().is_empty() && self.place.instances().is_empty());
        let mut grants = 0;
        for evidence in self.evidence().values() {
            evidence.must_be_clean();
            grants += evidence.began.len();
        }
        println!("{}: {grants} grants of {WORKLOADS} workloads to {} processes", self.rule, self.started);
        for (kind, unowned) in &self.unowned {
            if !unowned.is_empty() {
                figures(&format!("{kind:?}: without an owner"), unowned, 50);
            }
            println!("{kind:?}: moves {:?}", self.moves[kind]);
        }
    }
}

/// A member as the list tells of it. The list's times are of milliseconds, which is enough to know who came first.
fn member(instance: &Value) -> Member {
    let text = |field: &str| instance[field].as_str().unwrap();
    let incarnation = Incarnation::new(u128::from_str_radix(text("incarnation"), 16).unwrap());
    let identity = Identity::new(text("instance"), incarnation).unwrap();
    let joined = humantime::parse_rfc3339(text("joined")).unwrap();
    let joined = joined.duration_since(std::time::UNIX_EPOCH).unwrap();
    Member::new(identity, Timestamp::EPOCH + joined)
}

/// A time in which nobody worked.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    to: u64,
}

impl Gap {
    fn span(self) -> Duration {
        between(self.from, self.to)
    }
}

/// The times in which nobody worked, before the first work of each grant that began to work after `start`.
fn gaps(evidence: &Evidence, start: u64) -> Vec<Gap> {
    let mut grants: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for unit in &evidence.history.units {
        let (first, last) = grants.entry(unit.token).or_insert((unit.start, unit.end));
        (*first, *last) = ((*first).min(unit.start), (*last).max(unit.end));
    }
    let grants: Vec<(u64, u64)> = grants.into_values().collect();
    let gap = |pair: &[(u64, u64)]| Gap { from: pair[0].1, to: pair[1].0 };
    grants.windows(2).map(gap).filter(|gap| gap.to > start).collect()
}

/// A round trip to the store and the start of a command.
const ROUND_TRIP: Duration = Duration::from_secs(1);
/// The time in which the end of a process shows, and a round trip.
const SEEN: Duration = Duration::from_secs(2);

/// By the clock alone: until the membership is over and the others have heard, then until the lease is, as far as it is not.
fn by_the_clock() -> Duration {
    let listed = MEMBER_TTL + HEARTBEAT;
    listed.max(TTL + TTL / 20) + ROUND_TRIP
}

fn workloads_move_as_promised(rule: &'static str) {
    let mut fleet = Fleet::new(Place::new(), rule);
    let first = fleet.start();
    fleet.settle("the first start");
    let mut second = String::new();
    fleet.event(Kind::Join, ROUND_TRIP, |fleet| second = fleet.start());
    let mut third = String::new();
    fleet.event(Kind::Join, ROUND_TRIP, |fleet| third = fleet.start());
    // A file shows that its process is gone; a server does not.
    let seen = if fleet.place.is_file() { SEEN } else { by_the_clock() };
    fleet.event(Kind::Kill, seen, |fleet| fleet.kill(&second));
    fleet.event(Kind::Join, ROUND_TRIP, |fleet| drop(fleet.start()));
    fleet.event(Kind::End, ROUND_TRIP, |fleet| fleet.end(&third));
    fleet.event(Kind::Drain, ROUND_TRIP, |fleet| fleet.mark(&first, true));
    fleet.event(Kind::Undo, ROUND_TRIP, |fleet| fleet.mark(&first, false));
    fleet.finish();
}

#[test]
fn workloads_move_as_promised_while_processes_come_and_go_with_even_blocks() {
    workloads_move_as_promised("balanced");
}

#[test]
fn workloads_move_as_promised_while_processes_come_and_go_with_few_moves() {
    workloads_move_as_promised("rendezvous");
}

#[test]
fn workloads_of_the_dead_and_the_stopped_move_once_their_time_is_over() {
    let mut fleet = Fleet::new(Place::without_early_takeover(), "rendezvous");
    let workers = [0; 3].map(|_| fleet.start());
    fleet.settle("the start");
    fleet.event(Kind::Kill, by_the_clock(), |fleet| fleet.kill(&workers[1]));
    // One that is stopped is as good as dead, and comes back.
    fleet.event(Kind::Freeze, by_the_clock(), |fleet| {
        eventually("a moment to stop it", || fleet.freeze(&workers[2], u64::MAX).then_some(()));
    });
    fleet.event(Kind::Thaw, ROUND_TRIP, |fleet| fleet.thaw(u64::MAX));
    fleet.finish();
}

/// How long there is trouble.
fn span() -> Duration {
    Duration::from_secs(if std::env::var_os("TENURE_ACCEPT").is_some() { 60 } else { 8 })
}

impl Fleet {
    /// One of those that are not stopped, if two are left then that do not drain either.
    fn anybody(&self, dice: &mut Dice) -> Option<&Worker> {
        let chosen = self.workers.values().nth(dice.below(self.workers.len() as u64) as usize)?;
        let well = self.workers.values().filter(|worker| !worker.drained).count();
        (chosen.drained || well > 2).then_some(chosen)
    }

    /// It may not be listed yet, or not again.
    fn until_listed(&self, name: &str) {
        eventually("it to be listed", || self.place.instances().contains_key(name).then_some(()));
    }

    /// Lets something happen, whatever the state of things. Tells what it was.
    fn trouble(&mut self, dice: &mut Dice) -> Option<Kind> {
        const MOST: usize = 5;
        let drained = self.workers.values().find(|worker| worker.drained).map(|worker| worker.name.clone());
        let kind = match dice.below(6) {
            0 if self.workers.len() < MOST => {
                self.start();
                return Some(Kind::Join);
            }
            1 => Kind::Kill,
            2 => Kind::Freeze,
            3 => Kind::End,
            4 => Kind::Drain,
            _ => {
                let name = drained?;
                self.until_listed(&name);
                self.mark(&name, false);
                return Some(Kind::Undo);
            }
        };
        let chosen = self.anybody(dice)?;
        if kind == Kind::Drain && chosen.drained {
            return None;
        }
        let name = chosen.name.clone();
        match kind {
            Kind::Kill => self.kill(&name),
            Kind::End => self.end(&name),
            Kind::Drain => {
                self.until_listed(&name);
                self.mark(&name, true);
            }
            _ => {
                let until = now() + (200 + dice.below(4000)) * 1_000_000;
                return self.freeze(&name, until).then_some(kind);
            }
        }
        Some(kind)
    }
}

fn mixed_trouble(rule: &'static str) {
    let seed = now() | 1;
    println!("seed {seed}");
    let (mut dice, mut fleet) = (Dice(seed), Fleet::new(Place::new(), rule));
    // One after the other, so that the list tells who came first.
    for _ in 0..3 {
        let name = fleet.start();
        eventually("it to be listed", || fleet.place.instances().contains_key(&name).then_some(()));
    }
    fleet.settle("the start");
    let (begin, end) = (now(), now() + span().as_nanos() as u64);
    let mut happened: BTreeMap<Kind, usize> = BTreeMap::new();
    while now() < end {
        if let Some(kind) = fleet.trouble(&mut dice) {
            *happened.entry(kind).or_default() += 1;
            fleet.troubles.push(now());
            fleet.pace.measure();
        }
        let next = now() + (100 + dice.below(1400)) * 1_000_000;
        eventually("the next trouble", || {
            fleet.thaw(now());
            (now() >= next).then_some(())
        });
    }
    fleet.thaw(u64::MAX);
    let drained = fleet.workers.values().filter(|worker| worker.drained).map(|worker| worker.name.clone());
    for name in drained.collect::<Vec<_>>() {
        // The store may have forgotten it while it was stopped. Then it brings its mark back.
        fleet.until_listed(&name);
        fleet.mark(&name, false);
    }
    fleet.troubles.push(now());
    let healed = now();
    fleet.settle("the trouble");

    // Nobody promises an owner in the middle of trouble, but one soon after the last of it.
    let limit = by_the_clock() + fleet.pace.limit(Duration::ZERO, 12);
    let (mut all, mut quiet, mut settled) = (Vec::new(), Vec::new(), healed);
    for (name, evidence) in fleet.evidence() {
        for gap in gaps(&evidence, begin) {
            let last = fleet.troubles.iter().copied().filter(|at| *at < gap.to).max().unwrap_or(gap.from);
            let alone = between(gap.from.max(last), gap.to);
            assert!(
                alone < limit,
                "nobody worked for {name} for {alone:?} after the last trouble, more than {limit:?}"
            );
            settled = settled.max(gap.to);
            all.push(gap.span());
            quiet.push(alone);
        }
    }
    println!(
        "{:?} after the last trouble all work where they belong; {happened:?}",
        between(healed, settled)
    );
    figures("without an owner", &all, 50);
    figures("without an owner since the last trouble", &quiet, 50);
    fleet.finish();
}

#[test]
fn in_mixed_trouble_no_workload_works_twice_or_is_left_lying_with_even_blocks() {
    mixed_trouble("balanced");
}

#[test]
fn in_mixed_trouble_no_workload_works_twice_or_is_left_lying_with_few_moves() {
    mixed_trouble("rendezvous");
}

crate::place::also_on_servers! {
    workloads_move_as_promised_while_processes_come_and_go_with_few_moves
    workloads_of_the_dead_and_the_stopped_move_once_their_time_is_over
    in_mixed_trouble_no_workload_works_twice_or_is_left_lying_with_even_blocks
}
