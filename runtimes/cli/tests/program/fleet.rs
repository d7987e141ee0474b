//! A fleet that runs a command at each tick, while its members are killed, stopped for a while, and added.
//!
//! It takes 12 seconds; with `TENURE_ACCEPT=1` in the environment a minute, and more to read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    Evidence, Place, Running, Tick, between, eventually, figures, now, stop, witness_program,
};

const FILE: &str = "evidence";
const PERIOD: Duration = Duration::from_millis(200);
const MEMBERS: usize = 5;
/// So long a command works, in milliseconds.
const WORK: u64 = 40;
/// At each so-manieth tick it works longer than a claim lasts without its process: by itself it would meet the next.
const EACH: u64 = 20;
const LONGER: u64 = 1500;

/// How long there is trouble.
fn span() -> Duration {
    Duration::from_secs(if std::env::var_os("TENURE_ACCEPT").is_some() { 60 } else { 12 })
}

/// Numbers that are random enough: what comes of them differs from run to run anyway.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A process, and what it went through. Times are those of the witness's clock.
struct Member {
    running: Running,
    killed: Option<u64>,
    /// The ticks that it had claimed when it was killed, as far as nobody has removed the claims since.
    claims: Vec<u64>,
    /// When it was asked to end.
    asked: Option<u64>,
    frozen: Vec<(u64, u64)>,
    thaws_at: Option<u64>,
}

impl Member {
    fn start(place: &Place, options: &[&str]) -> Self {
        let mut command = place.every("200ms", &[&["--ttl", "1s"], options].concat());
        // Each miss is to be told, not only the first few.
        command.env("TENURE_LOG", "tenure=debug");
        command.arg(witness_program()).arg("tick").arg(place.path(FILE));
        command.args([WORK, EACH, LONGER].map(|number| number.to_string()));
        Self {
            running: Running::start(command),
            killed: None,
            claims: Vec::new(),
            asked: None,
            frozen: Vec::new(),
            thaws_at: None,
        }
    }

    fn is_well(&self) -> bool {
        self.killed.is_none() && self.thaws_at.is_none()
    }

    fn thaw(&mut self) {
        if self.thaws_at.take().is_some() {
            self.running.signal(Signal::CONT);
            if let Some((_, end)) = self.frozen.last_mut() {
                *end = now();
            }
        }
    }

    /// Whether it was killed, frozen or asked to end at some time between these.
    fn was_disturbed(&self, from: u64, to: u64) -> bool {
        self.killed.into_iter().chain(self.asked).any(|at| from <= at && at <= to)
            || self.frozen.iter().any(|(start, end)| *start <= to && from <= *end)
    }

    fn was_frozen_at(&self, at: u64) -> bool {
        self.frozen.iter().any(|(start, end)| *start <= at && at <= *end)
    }
}

/// What the log of a member says.
#[derive(Default)]
struct Told {
    /// Ticks that it claimed, with the token.
    claimed: Vec<(u64, u64)>,
    /// Ticks that it did not run, with the reason.
    skipped: BTreeSet<u64>,
    /// Ticks that were missed before another: from, up to.
    missed: Vec<(u64, u64)>,
}

impl Told {
    fn read(lines: &[String]) -> Self {
        let mut told = Self::default();
        // Summaries repeat what was said before.
        for line in lines.iter().filter(|line| !line.contains("; the last: ")) {
            if line.contains("a run is to start") {
                told.claimed.push((number_after(line, "tick="), number_after(line, "token=")));
            } else if line.contains("is not run here") {
                told.skipped.insert(number_after(line, "tenure: tick "));
            } else if let Some((before, after)) = line.split_once(" missed before tick ") {
                let (count, n) = (number_after(before, "tenure: "), leading_number(after));
                told.missed.push((n.saturating_sub(count), n - 1));
            } else if let Some((before, after)) = line.split_once(" missed up to tick ") {
                let (count, n) = (number_after(before, "tenure: "), leading_number(after));
                told.missed.push(((n + 1).saturating_sub(count), n));
            }
        }
        told
    }
}

fn number_after(line: &str, text: &str) -> u64 {
    let (_, rest) = line.split_once(text).unwrap_or_else(|| panic!("no {text:?} in {line:?}"));
    leading_number(rest)
}

fn leading_number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number begins {text:?}"))
}

/// What was recorded of the runs, by their owners.
#[derive(Default)]
struct Records(BTreeMap<String, (u64, String)>);

impl Records {
    /// The store keeps the last hundred: this is to be called more often than there are as many.
    fn look(&mut self, place: &Place) {
        for run in place.runs() {
            let (owner, outcome) = (run["owner"].as_str().unwrap(), run["outcome"].as_str().unwrap());
            self.0.insert(owner.to_owned(), (run["index"].as_u64().unwrap(), outcome.to_owned()));
        }
    }

    fn of(&self, tick: u64) -> Vec<&str> {
        self.0.values().filter(|(index, _)| *index == tick).map(|(_, outcome)| outcome.as_str()).collect()
    }
}

fn timer(place: &Place) -> Value {
    place.list(&["timers"]).remove(0)
}

fn base(place: &Place) -> (Value, Value, Value) {
    let timer = timer(place);
    (timer["base_tick"].clone(), timer["base_time"].clone(), timer["schedule"].clone())
}

/// The ticks that are claimed, and the processes that have them, the latest first.
fn claims(place: &Place) -> Vec<(u64, i32)> {
    if !place.is_file() {
        // The list has those of the dead, too, until they run out.
        let timer = timer(place);
        let claim = |claim: &Value| {
            let pid = i32::try_from(claim["pid"].as_i64().unwrap()).unwrap();
            (claim["tick"].as_u64().unwrap(), pid)
        };
        let mut claims: Vec<_> = timer["claims"].as_array().unwrap().iter().map(claim).collect();
        claims.sort_unstable_by(|one, other| other.cmp(one));
        return claims;
    }
    let connection = Connection::open(place.path("leases.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let mut claims = connection.prepare("SELECT tick, pid FROM claim ORDER BY tick DESC").unwrap();
    let claim = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?));
    claims.query_map([], claim).unwrap().map(Result::unwrap).collect()
}

/// One of these members that has a claim now, so that trouble meets a run, not only the wait for one. After a while without
/// one, anybody.
fn busy(place: &Place, members: &[Member], well: &[usize], dice: &mut Dice) -> usize {
    let patience = now() + 2 * PERIOD.as_nanos() as u64;
    eventually("somebody to be chosen", || {
        let claims = claims(place);
        let has_one = |index: &&usize| {
            let pid = members[**index].running.pid().as_raw_pid();
            claims.iter().any(|(_, of)| *of == pid)
        };
        let anybody = well[dice.below(well.len() as u64) as usize];
        well.iter().find(has_one).copied().or((now() > patience).then_some(anybody))
    })
}

/// Lets trouble happen for a while. Gives all members there ever were.
fn trouble(place: &Place, options: &[&str], dice: &mut Dice, records: &mut Records) -> Vec<Member> {
    let mut members: Vec<_> = (0..MEMBERS).map(|_| Member::start(place, options)).collect();
    eventually("the first tick", || (!place.evidence(FILE).ticks.is_empty()).then_some(()));
    let end = now() + span().as_nanos() as u64;
    for kind in (0..3).cycle() {
        if now() > end {
            break;
        }
        let next = now() + (200 + dice.below(700)) * 1_000_000;
        let well: Vec<usize> = (0..members.len()).filter(|index| members[*index].is_well()).collect();
        let chosen = match dice.below(3) {
            0 => well[dice.below(well.len() as u64) as usize],
            _ => busy(place, &members, &well, dice),
        };
        // Before its command starts, while it works, or after that.
        let moment = now() + dice.below(2 * WORK) * 1_000_000;
        eventually("the moment", || (now() >= moment).then_some(()));
        match kind {
            0 if well.len() > 2 => {
                let member = &mut members[chosen];
                member.killed = Some(now());
                member.running.signal(Signal::KILL);
                assert_eq!(member.running.code(), None, "killed");
                let pid = member.running.pid().as_raw_pid();
                let left = claims(place).into_iter().filter(|(_, of)| *of == pid);
                member.claims = left.map(|(tick, _)| tick).collect();
            }
            1 if well.len() > 2 => {
                let member = &mut members[chosen];
                if let Some(stopped) = stop(place, &member.running) {
                    // Up to three TTLs.
                    member.thaws_at = Some(stopped + (200 + dice.below(2800)) * 1_000_000);
                    member.frozen.push((stopped, u64::MAX));
                }
            }
            _ if members.iter().filter(|member| member.killed.is_none()).count() <= MEMBERS => {
                members.push(Member::start(place, options));
            }
            _ => {}
        }
        records.look(place);
        eventually("the next trouble", || {
            let now = now();
            for member in &mut members {
                if member.thaws_at.is_some_and(|at| at <= now) {
                    member.thaw();
                }
            }
            (now >= next).then_some(())
        });
    }
    members.iter_mut().for_each(Member::thaw);
    members
}

/// What all that is left says, and who had which token.
struct Account {
    evidence: Evidence,
    members: Vec<Member>,
    told: Vec<Told>,
    records: Records,
    /// What the wall clock is ahead of the witness's.
    offset: u64,
}

impl Account {
    /// When a tick was due, by the witness's clock.
    fn due(&self, n: u64) -> u64 {
        let any = self.evidence.ticks[0];
        (any.due + (n - 1) * PERIOD.as_nanos() as u64) - (any.n - 1) * PERIOD.as_nanos() as u64 - self.offset
    }

    fn member_of(&self, token: u64) -> Option<&Member> {
        let had = |told: &Told| told.claimed.iter().any(|(_, claimed)| *claimed == token);
        self.told.iter().position(had).map(|index| &self.members[index])
    }

    fn finished(&self, token: u64) -> bool {
        self.evidence.history.units.iter().any(|unit| unit.token == token)
    }

    /// Whether somebody who was there has told that this tick is not run.
    fn is_told(&self, n: u64) -> bool {
        let due = self.due(n);
        self.told.iter().zip(&self.members).any(|(told, member)| {
            let missed = told.missed.iter().any(|(from, to)| (*from..=*to).contains(&n));
            told.skipped.contains(&n) || (missed && !member.was_frozen_at(due))
        })
    }

    /// Whether a member that was killed had claimed it, and could not say so any more.
    fn died_with_its_claimant(&self, n: u64) -> bool {
        self.members.iter().any(|member| member.claims.contains(&n))
    }

    /// Whether something happened to every member that claimed this tick, soon enough to keep it from running it.
    fn claimants_were_disturbed(&self, n: u64) -> bool {
        let due = self.due(n);
        let limit = Duration::from_secs(5).as_nanos() as u64;
        let claimants = self.told.iter().zip(&self.members);
        let mut claimants = claimants.filter(|(told, _)| told.claimed.iter().any(|(tick, _)| *tick == n));
        claimants.all(|(_, member)| member.was_disturbed(due, due + limit))
    }
}

/// Runs a fleet through trouble, and checks what came of each tick.
fn fleet(options: &[&str], runs_per_tick: usize) {
    let place = Place::new();
    let seed = now() | 1;
    println!("seed {seed}");
    let (mut dice, mut records) = (Dice(seed), Records::default());
    let mut members = trouble(&place, options, &mut dice, &mut records);
    let before = base(&place);

    // It goes on, and ends in order.
    let last = timer(&place)["claimed_tick"].as_u64().unwrap();
    eventually("five more runs", || {
        let ticks = place.evidence(FILE).ticks;
        (ticks.iter().filter(|tick| tick.n > last).count() >= 5).then_some(())
    });
    // What is claimed in the moment in which all end may come to nothing, as nobody is left who could tell.
    let last = timer(&place)["claimed_tick"].as_u64().unwrap() - 1;
    for member in members.iter_mut().filter(|member| member.killed.is_none()) {
        member.asked = Some(now());
        member.running.signal(Signal::TERM);
        assert_eq!(member.running.code(), Some(143));
    }
    records.look(&place);
    assert_eq!(base(&place), before, "the schedule is counted from where it was");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let offset = wall.as_nanos() as u64 - now();
    let told = members.iter().map(|member| Told::read(&member.running.stderr.to_the_end())).collect();
    let account = Account { evidence: place.evidence(FILE), members, told, records, offset };
    check(&account, last, runs_per_tick);
}

fn check(account: &Account, last: u64, runs_per_tick: usize) {
    let Account { evidence, members, told, records, .. } = account;
    // No two at once, and tokens rise with time.
    evidence.must_be_clean();
    let first = evidence.ticks[0];
    for tick in &evidence.ticks {
        assert!(tick.late >= 0, "early: {tick:?}");
        let periods = tick.n.abs_diff(first.n) * PERIOD.as_nanos() as u64;
        assert_eq!(tick.due.abs_diff(first.due), periods, "{tick:?} is not in step with {first:?}");
    }

    let mut of_tick: BTreeMap<u64, Vec<&Tick>> = BTreeMap::new();
    evidence.ticks.iter().for_each(|tick| of_tick.entry(tick.n).or_default().push(tick));
    let mut claims: BTreeMap<u64, usize> = BTreeMap::new();
    told.iter().flat_map(|told| &told.claimed).for_each(|(n, _)| *claims.entry(*n).or_default() += 1);

    let (mut untold, mut unstarted, mut skipped, mut died, mut again) = (Vec::new(), 0, 0, 0, 0);
    for n in 1..=last {
        let claimed = claims.get(&n).copied().unwrap_or_default();
        assert!(claimed <= runs_per_tick, "tick {n} was claimed {claimed} times");
        assert!(records.of(n).len() <= runs_per_tick, "tick {n}: {:?}", records.of(n));
        let runs = of_tick.get(&n).map_or(&[][..], |runs| runs);
        match runs {
            [] if claimed > 0 => {
                // It was granted, but whoever had it was kept from running it, and nobody says otherwise.
                let succeeded = records.of(n).contains(&"succeeded");
                assert!(
                    !succeeded && account.claimants_were_disturbed(n),
                    "tick {n} was claimed and not run: {:?}",
                    records.of(n)
                );
                unstarted += 1;
            }
            [] if account.is_told(n) => skipped += 1,
            [] if account.died_with_its_claimant(n) => died += 1,
            [] => untold.push(n),
            [_] => {}
            [first, second] if runs_per_tick == 2 => {
                again += 1;
                let had = account.member_of(first.token).expect("whose run it was");
                assert!(
                    had.was_disturbed(first.start.saturating_sub(1_000_000_000), second.start),
                    "tick {n} was run twice, though nothing happened to the first: {first:?} {second:?}"
                );
            }
            more => panic!("tick {n} was run {} times: {more:?}", more.len()),
        }
    }
    let killed = members.iter().filter(|member| member.killed.is_some()).count();
    assert!(untold.is_empty(), "nobody ran these ticks, and nobody told of it: {untold:?}");

    for tick in &evidence.ticks {
        let well = account.member_of(tick.token).is_some_and(|member| {
            !member.was_disturbed(tick.start - 1_000_000_000, tick.start + 3_000_000_000)
        });
        if well {
            assert!(account.finished(tick.token), "nothing happened to it, and it did not end: {tick:?}");
            assert!(records.of(tick.n).contains(&"succeeded"), "{tick:?}: {:?}", records.of(tick.n));
        }
    }
    for (n, outcome) in records.0.values() {
        let runs = of_tick.get(n).map_or(&[][..], |runs| runs);
        if outcome == "succeeded" {
            assert!(runs.iter().any(|run| account.finished(run.token)), "tick {n} did not succeed: {runs:?}");
        }
    }

    let late = |ticks: &[Tick]| -> Vec<Duration> {
        ticks.iter().map(|tick| Duration::from_nanos(tick.late.unsigned_abs())).collect()
    };
    let quarter = (evidence.ticks.len() / 4).max(1);
    let early = figures("late in the first quarter", &late(&evidence.ticks[..quarter]), 50);
    let recent =
        figures("late in the last quarter", &late(&evidence.ticks[evidence.ticks.len() - quarter..]), 50);
    figures("late in all", &late(&evidence.ticks), 50);
    // What creeps by a few milliseconds per tick is beyond this within a minute; a busy machine is not.
    assert!(recent <= early + 2 * PERIOD, "it drifts: {early:?} at first, {recent:?} in the end");

    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    records.0.values().for_each(|(_, outcome)| *outcomes.entry(outcome).or_default() += 1);
    let frozen: usize = members.iter().map(|member| member.frozen.len()).sum();
    let longest =
        members.iter().flat_map(|member| &member.frozen).map(|(from, to)| between(*from, *to)).max();
    let interrupted = evidence.ticks.iter().filter(|tick| !account.finished(tick.token)).count();
    println!(
        "{last} ticks, {} runs, of {} ticks; {interrupted} interrupted, {again} run again; {skipped} not run and told so; {unstarted} claimed and \
         not begun; {died} lost with a claim of the dead; {} members, {killed} killed, {frozen} times one frozen, at most for \
         {longest:?}; recorded: {outcomes:?}",
        evidence.ticks.len(),
        of_tick.len(),
        members.len()
    );
    assert!(killed > 0 && frozen > 0, "there was some trouble");
    assert!(of_tick.len() as u64 > last / 10, "it works, too");
}

#[test]
fn a_fleet_in_trouble_runs_each_tick_at_most_once_and_keeps_in_step() {
    fleet(&[], 1);
}

#[test]
fn a_fleet_in_trouble_with_retry_runs_a_tick_again_only_if_its_run_was_interrupted() {
    fleet(&["--retry"], 2);
}

#[test]
fn what_the_log_says_of_ticks_that_were_missed_is_understood() {
    let log = |text: &str| format!("2026-01-02T03:04:05.678901Z  WARN tenure: {text} timer=\"t\" tick=9");
    let missed = |text: &str| Told::read(&[log(text)]).missed;
    assert_eq!(missed("1 tick was missed before tick 9"), [(8, 8)]);
    assert_eq!(missed("3 ticks were missed before tick 9"), [(6, 8)]);
    assert_eq!(missed("1 tick was missed up to tick 9: too late"), [(9, 9)]);
    assert_eq!(missed("3 ticks were missed up to tick 9: too late"), [(7, 9)]);
    assert_eq!(Told::read(&[log("tick 9 is not run here: a run was going on")]).skipped, [9].into());
}

/// The lines above are the program's own: a single tick that comes after a break, and one that is too late.
#[test]
fn the_program_tells_of_ticks_that_were_missed_in_these_words() {
    let place = Place::new();
    let log = |options: &[&str]| {
        let mut command = place.every("300ms", options);
        command.env("TENURE_LOG", "tenure=debug").arg("true");
        Running::start(command)
    };
    let mut first = log(&[]);
    first.stderr.wait_for("a run has ended");
    first.signal(Signal::TERM);
    first.code();
    let last = timer(&place)["claimed_tick"].as_u64().unwrap();
    let next = || timer(&place)["next_tick"].as_u64().unwrap();
    eventually("two ticks to pass", || (next() > last + 2).then_some(()));
    let mut second = log(&[]);
    second.stderr.wait_for("a run has ended");
    second.signal(Signal::TERM);
    second.code();
    let told = Told::read(&second.stderr.to_the_end());
    assert_eq!(told.missed.first().map(|(from, _)| *from), Some(last + 1), "{:?}", told.missed);
    assert_eq!(told.claimed.first().map(|(n, _)| *n), told.missed.first().map(|(_, to)| to + 1));

    let last = timer(&place)["claimed_tick"].as_u64().unwrap();
    eventually("four ticks to pass", || (next() > last + 4).then_some(()));
    let mut third = log(&["--late-limit", "20ms", "--missed", "catch-up=100"]);
    third.stderr.wait_for(" missed up to tick ");
    third.signal(Signal::TERM);
    third.code();
    let told = Told::read(&third.stderr.to_the_end());
    assert_eq!(told.missed.first().map(|(from, _)| *from), Some(last + 1), "{:?}", told.missed);
}

crate::place::also_on_servers! {
    a_fleet_in_trouble_with_retry_runs_a_tick_again_only_if_its_run_was_interrupted
}
