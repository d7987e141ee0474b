//! Supervisors and guardians that are killed, or stopped at the wrong moment.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::harness::{
    Began, Pace, Place, Running, between, eventually, figures, lives, now, output, rounds, state,
};

const FILE: &str = "evidence";

/// Waits until nothing of a command's group lives, and tells when that was.
fn dead(began: &Began) -> u64 {
    eventually("the command's death", || (!lives(began.process)).then(now))
}

/// A second candidate for the same lease that waits. It looks for survivors of the group first of all, should
/// it get the lease.
fn next(place: &Place, options: &[&str], before: &Began) -> Running {
    let after = before.group.to_string();
    let mut next = place.work(options, FILE, &["--below", "--after", &after]);
    next.waits();
    next
}

#[test]
fn when_the_supervisor_is_killed_the_next_command_starts_at_once_and_only_after_the_last_one_is_dead() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &["--below"]);
    let mut began = place.began_above(FILE, 0);
    let (mut delays, mut pace) = (Vec::new(), Pace::default());
    for _ in 0..rounds(200) {
        let waiter = next(&place, &[], &began);
        place.worked(FILE, began.token);
        let killed = now();
        holder.signal(Signal::KILL);
        let started = place.began_above(FILE, began.token);
        assert!(!lives(began.process), "the next command runs beside its predecessor");
        delays.push(between(killed, started.at));
        assert_eq!(holder.code(), None, "killed");
        (holder, began) = (waiter, started);
        pace.measure();
    }
    let most = figures("takeover after kill -9", &delays, 95);
    let limit = pace.limit(Duration::from_millis(250), 25);
    assert!(most <= limit, "95 % take over within {limit:?}, not {most:?}");
    assert!(delays.iter().all(|delay| *delay < Duration::from_secs(15)), "all within the TTL");
    place.evidence(FILE).must_be_clean();
}

#[test]
fn without_early_takeover_a_killed_supervisors_lease_passes_on_by_its_ttl() {
    const TTL: Duration = Duration::from_secs(1);
    let place = Place::without_early_takeover();
    let options = ["--ttl", "1s"];
    let mut holder = place.work(&options, FILE, &["--below"]);
    let mut began = place.began_above(FILE, 0);
    let (mut delays, mut pace) = (Vec::new(), Pace::default());
    for _ in 0..rounds(200).div_ceil(40) {
        let waiter = next(&place, &options, &began);
        place.worked(FILE, began.token);
        let killed = now();
        holder.signal(Signal::KILL);
        let ended = dead(&began);
        let started = place.began_above(FILE, began.token);
        assert!(ended <= started.at, "the command was dead before the next one began");
        delays.push(between(killed, started.at));
        (holder, began) = (waiter, started);
        pace.measure();
    }
    let median = figures("takeover by the TTL of 1 s", &delays, 50);
    assert!(median <= TTL + pace.limit(Duration::from_millis(250), 25), "{median:?}");
    drop(holder);
    place.evidence(FILE).must_be_clean();
}

#[test]
fn a_supervisor_that_is_asked_to_end_hands_over_at_once() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &[]);
    let mut began = place.began_above(FILE, 0);
    let (mut delays, mut pace) = (Vec::new(), Pace::default());
    for _ in 0..rounds(200).div_ceil(10) {
        let mut waiter = place.work(&[], FILE, &["--after", &began.group.to_string()]);
        waiter.waits();
        place.worked(FILE, began.token);
        holder.signal(Signal::TERM);
        let started = place.began_above(FILE, began.token);
        let ended = place.evidence(FILE).ended.iter().find(|(token, _)| *token == began.token).unwrap().1;
        delays.push(between(ended, started.at));
        assert_eq!(holder.code(), Some(0), "the command's own code");
        (holder, began) = (waiter, started);
        pace.measure();
    }
    let median = figures("hand-over after SIGTERM", &delays, 50);
    assert!(median <= pace.limit(Duration::from_millis(50), 12), "{median:?}");
    drop(holder);
    place.evidence(FILE).must_be_clean();
}

#[test]
fn a_supervisor_that_is_stopped_alone_loses_its_command_before_the_next_one_starts() {
    let place = Place::new();
    let options = ["--ttl", "2s"];
    let mut holder = place.work(&options, FILE, &["--below", "--deaf"]);
    let began = place.began_above(FILE, 0);
    let waiter = next(&place, &options, &began);
    place.worked(FILE, began.token);
    let stopped = freeze(&place, |signal| holder.signal(signal));
    let ended = dead(&began);
    let started = place.began_above(FILE, began.token);
    assert!(ended < started.at, "dead before the next one began");
    assert!(between(stopped, ended) < Duration::from_secs(2), "within the TTL");

    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), Some(76), "lost");
    assert!(holder.stderr.to_the_end().iter().any(|line| line.contains("is lost")));
    drop(waiter);
    place.evidence(FILE).must_be_clean();
}

/// Stops a supervisor and perhaps others, but not in the middle of a transaction: there it would keep the whole
/// store locked, and nobody could take over before it goes on. That is safe, and not what is to be shown here.
/// Tells when it was.
fn freeze(place: &Place, signal: impl Fn(Signal)) -> u64 {
    loop {
        let stopped = now();
        signal(Signal::STOP);
        let probe = ["run", "--lease", "probe", "--ttl", "1s", "--no-wait", "--", "true"];
        match output(place.tenure(&probe)) {
            (Some(0), ..) => return stopped,
            (Some(69), ..) => signal(Signal::CONT),
            other => panic!("the store is either locked or not: {other:?}"),
        }
    }
}

/// Stops a whole tree for three TTLs, with everything in it, lets another one take over, and continues it.
fn stopped_for_three_ttls(continued: impl FnOnce(Pid, &Began)) {
    const TTL: Duration = Duration::from_secs(1);
    let options = ["--ttl", "1s"];
    let (place, mut holder, began, waiter, stopped) = loop {
        let place = Place::new();
        let holder = place.work(&options, "first", &["--below"]);
        let began = place.began_above("first", 0);
        // The evidence is kept apart: what a stopped process does when it goes on can't be prevented, only
        // told apart by its token.
        let mut waiter = place.work(&options, "second", &["--below"]);
        waiter.waits();
        place.worked("first", began.token);
        let stopped = freeze(&place, |signal| {
            holder.signal(signal);
            // These are gone if it took so long that the lease was lost before all of it stood still.
            let _ = kill_process(began.parent, signal);
            let _ = kill_process_group(began.group, signal);
        });
        if lives(began.process) {
            break (place, holder, began, waiter, stopped);
        }
    };
    let started = place.began_above("second", began.token);
    place.worked("second", started.token);
    eventually("three TTLs to pass", || (between(stopped, now()) > 3 * TTL).then_some(()));
    assert!(lives(began.process), "it is stopped, not dead");

    let went_on = now();
    continued(holder.pid(), &began);
    let ended = dead(&began);
    println!("after three TTLs: killed {:?} after it went on", between(went_on, ended));
    assert_eq!(holder.code(), Some(76), "lost");
    let units = place.evidence("first").history.units;
    let late: Vec<_> = units.into_iter().filter(|unit| unit.end > went_on).collect();
    assert!(late.len() <= 5, "at once, not after {} units of work: {late:?}", late.len());
    assert!(late.iter().all(|unit| unit.token < started.token), "its token is the lower one");
    assert!(between(went_on, ended) < Duration::from_secs(5));
    drop(waiter);
    place.evidence("second").must_be_clean();
}

#[test]
fn a_whole_tree_that_was_stopped_for_three_ttls_is_killed_when_it_goes_on() {
    stopped_for_three_ttls(|supervisor, began| {
        // The guardian does not leave before its supervisor has heard of it, which in turn could be gone at once.
        for process in [began.parent, supervisor] {
            kill_process(process, Signal::CONT).unwrap();
        }
        // The guardian may have killed it by now.
        let _ = kill_process_group(began.group, Signal::CONT);
    });
}

#[test]
fn a_guardian_that_was_stopped_for_three_ttls_kills_before_anything_else() {
    stopped_for_three_ttls(|supervisor, began| {
        kill_process(began.parent, Signal::CONT).unwrap();
        // The command itself is never continued: killing needs no consent.
        dead(began);
        kill_process(supervisor, Signal::CONT).unwrap();
    });
}

#[test]
fn when_the_guardian_is_killed_the_command_dies_and_the_lease_passes_on_after_that() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &["--below"]);
    let began = place.began_above(FILE, 0);
    let waiter = next(&place, &[], &began);
    place.worked(FILE, began.token);
    kill_process(began.parent, Signal::KILL).unwrap();
    let started = place.began_above(FILE, began.token);
    assert!(!lives(began.process));
    assert_eq!(holder.code(), Some(71));
    let last = holder.stderr.to_the_end().pop().unwrap();
    assert!(last.contains("guardian was killed"), "{last}");
    assert!(started.token > began.token);
    drop(waiter);
    place.evidence(FILE).must_be_clean();
}

#[test]
fn when_guardian_and_supervisor_are_killed_together_the_next_command_starts_after_the_death_of_this_one() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &[]);
    let mut began = place.began_above(FILE, 0);
    for _ in 0..rounds(200).div_ceil(10) {
        let mut waiter = place.work(&[], FILE, &["--after", &began.group.to_string()]);
        waiter.waits();
        place.worked(FILE, began.token);
        holder.signal(Signal::KILL);
        kill_process(began.parent, Signal::KILL).unwrap();
        let started = place.began_above(FILE, began.token);
        assert!(!lives(began.process));
        (holder, began) = (waiter, started);
    }
    drop(holder);
    place.evidence(FILE).must_be_clean();
}

#[test]
fn what_a_command_started_in_a_session_of_its_own_is_killed_as_well() {
    let place = Place::new();
    let witness = crate::harness::witness_program();
    let script = format!(
        "setsid sh -c '{0} work {1} & {0} work {2} & wait' & wait",
        witness.display(),
        place.path("near").display(),
        place.path("far").display()
    );
    let mut holder = Running::start(place.tenure(&["run", "--lease", "job", "--", "sh", "-c", &script]));
    let workers = eventually("both to work", || {
        let units = ["near", "far"].map(|file| place.evidence(file).history.units);
        let [Some(one), Some(other)] =
            units.map(|units| units.first().map(|unit| Pid::from_raw(unit.process).unwrap()))
        else {
            return None;
        };
        Some([one, other])
    });
    holder.signal(Signal::KILL);
    holder.code();
    for worker in workers {
        eventually("a distant descendant's death", || (!lives(worker)).then_some(()));
    }
}

#[test]
fn a_supervisor_killed_at_any_moment_of_its_start_leaves_nothing_running() {
    let place = Place::new();
    for round in 0..rounds(200).div_ceil(2) {
        let mut holder = place.work(&[], FILE, &[]);
        let moment = now() + 300_000 * round as u64;
        eventually("the moment", || (now() >= moment).then_some(()));
        holder.signal(Signal::KILL);
        holder.code();
        let survivors = {
            let next = place.tenure(&["run", "--lease", "job", "--", "echo", "my turn"]);
            let (code, out, err) = output(next);
            assert_eq!((code, out.as_str()), (Some(0), "my turn\n"), "{err}");
            place.workers()
        };
        assert!(survivors.is_empty(), "killed after {} us: {survivors:?}", 300 * round);
    }
    place.evidence(FILE).must_be_clean();
}

/// Whether a candidate that does not wait gets the lease.
fn is_free(place: &Place) -> bool {
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert!(matches!(code, Some(0 | 75)), "{err}");
    code == Some(0)
}

#[test]
fn a_guardian_that_is_stopped_kills_its_command_when_the_supervisor_dies() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &["--below"]);
    let began = place.began_above(FILE, 0);
    let waiter = next(&place, &[], &began);
    place.worked(FILE, began.token);
    kill_process(began.parent, Signal::STOP).unwrap();
    eventually("the guardian to be stopped", || (state(began.parent) == Some('T')).then_some(()));
    holder.signal(Signal::KILL);
    assert_eq!(holder.code(), None, "killed");
    // The guardian's process group is orphaned by that death, and the kernel continues such a group.
    place.began_above(FILE, began.token);
    assert!(!lives(began.process));
    drop(waiter);
    place.evidence(FILE).must_be_clean();
}

#[test]
fn what_survives_the_deaths_of_supervisor_and_guardian_keeps_the_lease_from_passing_on_early() {
    let place = Place::new();
    let mut holder = place.work(&[], FILE, &["--below"]);
    let began = place.began_above(FILE, 0);
    place.worked(FILE, began.token);
    let below = Pid::from_raw(place.evidence(FILE).history.units[0].process).unwrap();
    for signal in [Signal::STOP, Signal::KILL] {
        // Stopped first, so that neither sees the other's death.
        kill_process(began.parent, signal).unwrap();
        holder.signal(signal);
    }
    assert_eq!(holder.code(), None, "killed");
    dead(&began);
    assert!(lives(below), "nobody is left who could kill it");
    assert!(!is_free(&place));
    kill_process(below, Signal::KILL).unwrap();
    eventually("the lease to pass on", || is_free(&place).then_some(()));
}

crate::place::also_on_servers! {
    without_early_takeover_a_killed_supervisors_lease_passes_on_by_its_ttl
    a_supervisor_that_is_asked_to_end_hands_over_at_once
    a_supervisor_that_is_stopped_alone_loses_its_command_before_the_next_one_starts
    a_whole_tree_that_was_stopped_for_three_ttls_is_killed_when_it_goes_on
    when_the_guardian_is_killed_the_command_dies_and_the_lease_passes_on_after_that
}
