//! `tenure every` killed, stopped, or robbed of its claim while a command runs.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, getpgid, kill_process};

use crate::harness::{Pace, Place, Running, between, block, eventually, lives, now, stop};

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
struct Run {
    tick: u64,
    token: u64,
    process: Pid,
    guardian: Pid,
}

/// A shell that tells of its run, and stays for as long as there is the file that says so. It does not hear SIGTERM.
const STAY: &str = r#"
    trap '' TERM
    echo "$TENURE_TICK $TENURE_TOKEN $$ $PPID" >> "$0"
    while [ -e "$0.stay" ]; do sleep 0.01; done"#;

fn file(place: &Place) -> PathBuf {
    place.path("runs")
}

/// Runs that begin from now on stay, or those that go on end.
fn stay(place: &Place, stay: bool) {
    let file = place.path("runs.stay");
    if stay {
        std::fs::write(file, "").unwrap();
    } else {
        std::fs::remove_file(file).unwrap();
    }
}

fn every(place: &Place, options: &[&str]) -> Running {
    let mut command = place.every("200ms", options);
    command.args(["sh", "-c", STAY]).arg(file(place));
    Running::start(command)
}

fn runs(place: &Place) -> Vec<Run> {
    let text = std::fs::read_to_string(file(place)).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let run = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let pid = |number: u64| Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
        let [tick, token, process, guardian] = numbers[..] else { panic!("{line}") };
        Run { tick, token, process: pid(process), guardian: pid(guardian) }
    };
    lines.map(run).collect()
}

/// Waits for the run of this place in the order.
fn run(place: &Place, index: usize) -> Run {
    eventually(&format!("run {index}"), || runs(place).get(index).copied())
}

/// Waits for a run of a tick after this one.
fn run_after(place: &Place, tick: u64) -> Run {
    eventually(&format!("a tick after {tick}"), || runs(place).into_iter().find(|run| run.tick > tick))
}

fn dead(run: &Run) -> u64 {
    eventually("the command's death", || (!lives(run.process)).then(now))
}

/// Kills the one that runs the first tick, while another waits. Gives the place, the run and the one that is left.
fn killed(options: &[&str]) -> (Place, Run, Running) {
    let place = Place::new();
    stay(&place, true);
    let mut victim = every(&place, options);
    let first = run(&place, 0);
    let other = every(&place, options);
    // It is there once it has passed a tick over.
    eventually("a tick to be passed over", || {
        let timer = place.list(&["timers"]).remove(0);
        (timer["claimed_tick"].as_u64().unwrap() > first.tick).then_some(())
    });
    victim.signal(Signal::KILL);
    assert_eq!(victim.code(), None, "killed");
    dead(&first);
    stay(&place, false);
    (place, first, other)
}

#[test]
fn a_run_whose_program_is_killed_is_abandoned_and_the_next_tick_runs_elsewhere() {
    let (place, first, mut other) = killed(&[]);
    let next = run_after(&place, first.tick);
    assert!(next.token > first.token && next.guardian != first.guardian);
    let last = run_after(&place, next.tick + 2);
    assert!(last.tick > next.tick);
    assert_eq!(runs(&place).iter().filter(|run| run.tick == first.tick).count(), 1, "at most once");
    assert_eq!(place.outcomes(first.tick), ["abandoned"]);
    other.signal(Signal::TERM);
    assert_eq!(other.code(), Some(143));
}

/// Waits for the second run of a tick.
fn second_run(place: &Place, first: &Run) -> Run {
    eventually("a second run of the tick", || {
        runs(place).into_iter().filter(|run| run.tick == first.tick).nth(1)
    })
}

#[test]
fn with_retry_a_run_whose_program_is_killed_is_run_once_more_elsewhere() {
    // It may take the TTL until the other one looks again.
    let (place, first, _other) = killed(&["--retry", "--ttl", "2s"]);
    let again = second_run(&place, &first);
    let latest = runs(&place).iter().map(|run| run.tick).max().unwrap();
    run_after(&place, latest + 2);
    assert_eq!(runs(&place).iter().filter(|run| run.tick == first.tick).count(), 2, "{:?}", runs(&place));
    assert!(again.token > first.token && again.guardian != first.guardian);
    eventually("both to be recorded as they ended", || {
        let mut outcomes = place.outcomes(first.tick);
        outcomes.sort_unstable();
        (outcomes == ["abandoned", "succeeded"]).then_some(())
    });
}

#[test]
fn with_retry_a_run_that_was_asked_to_end_is_run_once_more_elsewhere() {
    let place = Place::new();
    stay(&place, true);
    let options = ["--retry", "--grace", "100ms", "--ttl", "2s"];
    let mut first_process = every(&place, &options);
    let first = run(&place, 0);
    let _other = every(&place, &options);
    first_process.signal(Signal::TERM);
    assert_eq!(first_process.code(), Some(143));
    assert!(!lives(first.process));
    stay(&place, false);
    let again = second_run(&place, &first);
    assert!(again.token > first.token && again.guardian != first.guardian);
}

#[test]
fn a_program_that_is_stopped_loses_its_command_in_time_and_others_go_on() {
    let place = Place::new();
    stay(&place, true);
    let options = ["--ttl", "2s"];
    let frozen = every(&place, &options);
    let first = run(&place, 0);
    let other = every(&place, &options);
    let stopped = eventually("a good moment to stop it", || stop(&place, &frozen));
    let died = dead(&first);
    println!("killed {:?} after the stop", between(stopped, died));
    stay(&place, false);
    let next = run_after(&place, first.tick);
    assert!(next.token > first.token);
    run_after(&place, next.tick + 2);

    // It goes on, too.
    frozen.signal(Signal::CONT);
    drop(other);
    let mut frozen = frozen;
    let last = runs(&place).pop().unwrap();
    run_after(&place, last.tick + 2);
    assert_eq!(runs(&place).iter().filter(|run| run.tick == first.tick).count(), 1, "at most once");
    let outcomes = place.outcomes(first.tick);
    assert!(outcomes == ["stopped"] || outcomes == ["abandoned"], "{outcomes:?}");
    frozen.signal(Signal::TERM);
    assert_eq!(frozen.code(), Some(143));
}

#[test]
fn a_program_that_is_cut_off_from_its_store_kills_its_command_in_time_and_goes_on_later() {
    let place = Place::new();
    stay(&place, true);
    let mut running = every(&place, &["--ttl", "2s"]);
    let first = run(&place, 0);
    let blocked = block(&place);
    let cut = now();
    let died = between(cut, dead(&first));
    let mut pace = Pace::default();
    pace.measure();
    let limit = pace.limit(std::time::Duration::from_secs(2), 25);
    assert!(died < limit, "within the TTL, not {died:?}");
    running.stderr.wait_for("is lost");
    stay(&place, false);
    drop(blocked);
    run_after(&place, first.tick);
    assert_eq!(place.outcomes(first.tick), ["stopped"]);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
}

#[test]
fn a_command_whose_claim_is_taken_away_is_killed_and_the_program_goes_on() {
    let place = Place::new();
    stay(&place, true);
    let mut running = every(&place, &["--ttl", "2s"]);
    let first = run(&place, 0);
    let (code, _, err) = crate::harness::output(place.tenure(&["timers", "forget", "job"]));
    assert!(code == Some(0) && err.contains("is forgotten"), "{err}");
    dead(&first);
    stay(&place, false);
    let told = running.stderr.wait_for("is lost");
    assert!(told.contains(&format!("tick {}", first.tick)) && told.contains("not this process's"), "{told}");
    run_after(&place, first.tick);
    assert_eq!(place.outcomes(first.tick), ["stopped"]);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
}

#[test]
fn of_commands_side_by_side_only_the_one_whose_guardian_is_killed_dies() {
    let place = Place::new();
    stay(&place, true);
    let mut running = every(&place, &["--overlap", "allow"]);
    let three = [0, 1, 2].map(|index| run(&place, index));
    kill_process(three[1].guardian, Signal::KILL).unwrap();
    dead(&three[1]);
    eventually("the failure to be recorded", || (place.outcomes(three[1].tick) == ["failed"]).then_some(()));
    let more = run(&place, 4);
    for run in [three[0], three[2], more] {
        assert!(lives(run.process) && lives(run.guardian), "{run:?}");
    }
    stay(&place, false);
    for run in [three[0], three[2], more] {
        eventually("success", || (place.outcomes(run.tick) == ["succeeded"]).then_some(()));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
}

#[test]
fn commands_are_in_sessions_of_their_own() {
    let place = Place::new();
    stay(&place, true);
    let _running = every(&place, &[]);
    let first = run(&place, 0);
    // Of the program's own session nothing is asked: in a container its leader may be outside, which is no pid.
    let session = |process| rustix::process::getsid(Some(process)).unwrap();
    assert_eq!(session(first.process), first.guardian, "the guardian leads it");
    assert_eq!(session(first.guardian), first.guardian, "so it has left the program's");
    assert_eq!(getpgid(Some(first.process)).unwrap(), first.process, "its group is its own");
}

crate::place::also_on_servers! {
    with_retry_a_run_whose_program_is_killed_is_run_once_more_elsewhere
    with_retry_a_run_that_was_asked_to_end_is_run_once_more_elsewhere
    a_program_that_is_stopped_loses_its_command_in_time_and_others_go_on
    a_program_that_is_cut_off_from_its_store_kills_its_command_in_time_and_goes_on_later
    a_command_whose_claim_is_taken_away_is_killed_and_the_program_goes_on
}
