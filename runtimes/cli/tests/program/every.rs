//! `tenure every`: arguments, the command's surroundings, what becomes of ticks, and ends in order.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Evidence, Place, Running, bare_tenure, block, eventually, lives, now, output};

const FILE: &str = "evidence";

/// Commands of a shell at each tick.
fn script(place: &Place, period: &str, options: &[&str], script: &str) -> Running {
    let mut command = place.every(period, options);
    command.args(["sh", "-c", script]).arg(place.path(FILE));
    Running::start(command)
}

/// Waits until this tick, or a later one, was begun, and gives the evidence by then.
fn until_tick(place: &Place, n: u64) -> Evidence {
    eventually(&format!("tick {n}"), || {
        let evidence = place.evidence(FILE);
        evidence.ticks.iter().any(|tick| tick.n >= n).then_some(evidence)
    })
}

/// The first line of standard output with this text that was not seen yet, and how many lines were seen then.
fn line_after(running: &Running, seen: usize, text: &str) -> (String, usize) {
    eventually(&format!("a line with {text:?}"), || {
        let lines = running.stdout.so_far();
        let (at, line) = lines.iter().enumerate().skip(seen).find(|(_, line)| line.contains(text))?;
        Some((line.clone(), at + 1))
    })
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_with_the_reason() {
    let place = Place::new();
    let refused = |arguments: &[&str], reason: &str| {
        let mut command = bare_tenure();
        command.arg("every").args(arguments).env("TENURE_STORE", place.url());
        let (code, out, err) = output(command);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{reason:?} is missing in {err}");
    };
    let rest = ["--name", "job", "--", "true"];
    let with = |options: &[&'static str]| [options, &rest].concat();
    refused(&with(&["0s"]), "between 10ms and 100 years");
    refused(&with(&["5ms"]), "between 10ms and 100 years");
    refused(&with(&["200y"]), "is not known");
    refused(&with(&["10"]), "10s for seconds");
    refused(&with(&["often"]), "often");
    refused(&with(&[]), "<PERIOD>");
    refused(&["1s", "--", "true"], "--name");
    refused(&["1s", "--name", "job"], "COMMAND");
    refused(&["1s", "--name", "", "--", "true"], "name");
    refused(&["1s", "--name", "job", "true"], "tip: the command comes after two dashes, as in: tenure every");
    refused(&with(&["1s", "--missed", "all"]), "catch-up=N");
    refused(&with(&["1s", "--missed", "catch-up=0"]), "between 1 and 1000");
    refused(&with(&["1s", "--late-limit", "5ms"]), "at least 20ms");
    refused(&with(&["1s", "--overlap", "never"]), "skip, queue, allow");
    refused(&with(&["1s", "--ttl", "1ms"]), "ttl");
}

#[test]
fn a_store_that_cannot_be_used_is_told_with_the_code_for_it() {
    let mut command = bare_tenure();
    command.args(["every", "1s", "--name", "job", "--store", "memory:", "--", "true"]);
    let (code, _, err) = output(command);
    assert_eq!(code, Some(78), "{err}");
}

#[test]
fn the_command_finds_its_tick_in_its_environment_and_no_terminal() {
    let place = Place::new();
    let tell = r#"
        echo "$TENURE_TIMER|$TENURE_TICK|$TENURE_TICK_TIME|$TENURE_MISSED|$TENURE_TOKEN|$TENURE_OWNER"
        read line && echo "input: $line"
        (: < /dev/tty) 2>/dev/null && echo "a terminal"
        true"#;
    let mut running = script(&place, "200ms", &["-v"], tell);
    let mut runs = Vec::new();
    let mut seen = 0;
    for _ in 0..3 {
        let (line, next) = line_after(&running, seen, "job|");
        seen = next;
        let [timer, tick, at, missed, token, owner] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert_eq!(timer, "job");
        let at = humantime::parse_rfc3339(at).unwrap();
        assert!(missed.parse::<u64>().is_ok() && owner.contains('/'), "{line}");
        runs.push((tick.parse::<u64>().unwrap(), at, token.parse::<u64>().unwrap(), owner.to_owned()));
    }
    for pair in runs.windows(2) {
        let [(one, at, token, owner), (next, next_at, next_token, next_owner)] = pair else { panic!() };
        assert!(one < next && token < next_token && owner != next_owner, "{runs:?}");
        let periods = u32::try_from(next - one).unwrap();
        assert_eq!(next_at.duration_since(*at).unwrap(), periods * Duration::from_millis(200));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    let lines = running.stdout.to_the_end();
    assert!(lines.iter().all(|line| line.starts_with("job|")), "{lines:?}");
    assert!(running.stderr.to_the_end()[0].contains("\"job\": a tick every 200ms"));
}

#[test]
fn of_two_processes_one_runs_each_tick() {
    let place = Place::new();
    let processes = [1, 2].map(|_| place.ticks("100ms", &[], FILE, 5));
    let evidence = until_tick(&place, 30);
    evidence.must_be_clean();
    let mut runs: BTreeMap<u64, u32> = BTreeMap::new();
    evidence.ticks.iter().for_each(|tick| *runs.entry(tick.n).or_default() += 1);
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
    assert!(evidence.ticks.iter().all(|tick| tick.late >= 0), "never early: {:?}", evidence.ticks);
    for mut process in processes {
        process.signal(Signal::INT);
        assert_eq!(process.code(), Some(130), "128 and the signal's number");
    }
}

#[test]
fn a_command_that_fails_is_recorded_and_the_next_tick_is_run() {
    let place = Place::new();
    let mut running = script(&place, "200ms", &[], "echo $TENURE_TICK; exit 3");
    let (first, seen) = line_after(&running, 0, "");
    line_after(&running, seen, "");
    running.stderr.wait_for("the command ended with code 3");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    let run = place.runs().into_iter().find(|run| run["index"].as_u64() == first.parse().ok()).unwrap();
    assert_eq!((&run["outcome"], &run["text"]), (&"failed".into(), &"the command ended with code 3".into()));
}

#[test]
fn a_command_that_cannot_be_started_is_a_failed_run_and_no_reason_to_end() {
    let place = Place::new();
    let mut command = place.every("200ms", &[]);
    command.arg("/no/such/command");
    let mut running = Running::start(command);
    eventually("two failed runs", || (place.runs().len() >= 2).then_some(()));
    assert!(running.stderr.wait_for("cannot run").contains("/no/such/command"));
    let run = place.runs().pop().unwrap();
    assert_eq!(
        (&run["outcome"], &run["text"]),
        (&"failed".into(), &"the command ended with code 127".into())
    );
    assert!(!running.has_ended());
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
}

/// A command that tells of SIGTERM, and ends after it.
const LISTENER: &str = "
    trap 'echo TERM; sleep 0.3; echo done; exit 0' TERM
    echo started $TENURE_TICK $$; while :; do sleep 0.01; done";
/// One that does not listen.
const DEAF: &str = "trap '' TERM INT HUP; echo started $TENURE_TICK $$; while :; do sleep 0.01; done";

fn started(running: &Running) -> (u64, Pid) {
    let (line, _) = line_after(running, 0, "started");
    let [_, tick, process] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    (tick.parse().unwrap(), Pid::from_raw(process.parse().unwrap()).unwrap())
}

#[test]
fn a_signal_is_passed_on_and_the_program_ends_once_its_command_has() {
    let place = Place::new();
    // Beside each other, so that more would be started if it went on.
    let mut running = script(&place, "100ms", &["--overlap", "allow"], LISTENER);
    let (tick, process) = started(&running);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert!(!lives(process));
    let lines = running.stdout.to_the_end();
    let started = lines.iter().filter(|line| line.starts_with("started")).count();
    let told = lines.iter().position(|line| line == "TERM").expect("it was passed on");
    assert!(lines[told..].iter().all(|line| !line.starts_with("started")), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "done").count(), started, "each in its time: {lines:?}");
    assert_eq!(place.outcomes(tick), ["stopped"]);
    // One that came too late to be begun waits there for another process.
    let claims = place.list(&["timers"])[0]["claims"].clone();
    assert!(claims.as_array().unwrap().iter().all(|claim| claim["remaining_ms"] == 0), "{claims}");
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_the_grace() {
    let place = Place::new();
    let mut running = script(&place, "200ms", &["--grace", "700ms"], DEAF);
    let (_, process) = started(&running);
    let asked = now();
    running.signal(Signal::HUP);
    assert_eq!(running.code(), Some(129));
    assert!(!lives(process));
    assert!(now() - asked >= 700_000_000, "not before");
    assert!(running.stderr.to_the_end().iter().any(|line| line.contains("within the grace")));
}

#[test]
fn a_second_signal_kills_at_once() {
    let place = Place::new();
    let mut running = script(&place, "200ms", &["--grace", "1h"], DEAF);
    let (_, process) = started(&running);
    running.signal(Signal::INT);
    running.stderr.wait_for("SIGINT");
    eventually("the second signal to work", || {
        let _ = kill_process(running.pid(), Signal::TERM);
        running.has_ended().then_some(())
    });
    assert_eq!(running.code(), Some(130), "of the first");
    assert!(!lives(process));
}

#[test]
fn a_tick_that_is_due_while_the_command_runs_is_not_run_unless_the_policy_says_so() {
    let place = Place::new();
    let running = place.ticks("100ms", &[], FILE, 350);
    let evidence = until_tick(&place, 10);
    drop(running);
    evidence.must_be_clean();
    for pair in evidence.ticks.windows(2) {
        assert!(pair[1].n >= pair[0].n + 4, "those in between were passed over: {:?}", evidence.ticks);
    }

    let place = Place::new();
    let running = place.ticks("100ms", &["--overlap", "queue", "--missed", "catch-up=1000"], FILE, 150);
    let evidence = until_tick(&place, 4);
    drop(running);
    evidence.must_be_clean();
    let ticks: Vec<_> = evidence.ticks.iter().map(|tick| tick.n).collect();
    assert_eq!(ticks[..4], [1, 2, 3, 4], "one after the other");

    let place = Place::new();
    let running = place.ticks("100ms", &["--overlap", "allow"], FILE, 450);
    let evidence = eventually("an overlap", || {
        let evidence = place.evidence(FILE);
        (evidence.history.refused.len() >= 2).then_some(evidence)
    });
    drop(running);
    assert!(evidence.ticks.len() >= 3);
}

#[test]
fn when_all_are_started_anew_ticks_stay_where_they_were() {
    let place = Place::new();
    let base = || {
        let timer = place.list(&["timers"]).remove(0);
        (timer["base_tick"].clone(), timer["base_time"].clone())
    };
    let mut first = place.ticks("100ms", &[], FILE, 1);
    until_tick(&place, 3);
    let before = base();
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(143));
    let (ended, claimed, last) = (now(), claimed(&place), place.evidence(FILE).ticks.pop().unwrap());
    eventually("three periods to pass", || (now() - ended > 350_000_000).then_some(()));
    let _second = place.ticks("100ms", &[], FILE, 1);
    let evidence = until_tick(&place, claimed + 8);
    assert_eq!(base(), before);
    assert!(evidence.ticks.iter().all(|tick| tick.late >= 0));
    for tick in &evidence.ticks {
        let (ticks, time) = (tick.n.abs_diff(last.n), tick.due.abs_diff(last.due));
        assert_eq!(time, ticks * 100_000_000, "in step: {tick:?}, {last:?}");
    }
    let first_after = evidence.ticks.iter().find(|tick| tick.n > claimed).unwrap();
    assert!(first_after.n >= claimed + 3);
    assert_eq!(first_after.missed, first_after.n - claimed - 1, "what came meanwhile is told");
}

/// The last tick that was claimed. The command may have been asked to end before it left evidence.
fn claimed(place: &Place) -> u64 {
    place.list(&["timers"])[0]["claimed_tick"].as_u64().unwrap()
}

/// Runs until some ticks have come, leaves the timer alone for at least eight periods, and goes on with these options.
/// Gives the last tick that was claimed before, and those of the beginning afterwards.
fn after_a_break(options: &[&str]) -> (u64, Evidence) {
    let place = Place::new();
    let mut first = place.ticks("200ms", &[], FILE, 1);
    until_tick(&place, 2);
    first.signal(Signal::TERM);
    first.code();
    let (ended, last) = (now(), claimed(&place));
    eventually("eight periods to pass", || (now() - ended > 1_700_000_000).then_some(()));
    let _second = place.ticks("200ms", options, FILE, 1);
    let evidence = eventually("five runs", || {
        let mut evidence = place.evidence(FILE);
        evidence.ticks.retain(|tick| tick.n > last);
        (evidence.ticks.len() >= 5).then_some(evidence)
    });
    (last, evidence)
}

#[test]
fn of_ticks_that_came_while_nobody_was_there_the_latest_is_run() {
    let (last, evidence) = after_a_break(&[]);
    let first = evidence.ticks[0];
    assert!(first.n >= last + 8 && first.missed == first.n - last - 1, "{:?}", evidence.ticks);
}

#[test]
fn of_ticks_that_came_while_nobody_was_there_as_many_as_wanted_are_caught_up_with() {
    let (last, evidence) = after_a_break(&["--missed", "catch-up=4"]);
    let ticks: Vec<_> = evidence.ticks.iter().map(|tick| tick.n).collect();
    let first = ticks[0];
    assert!(first >= last + 5 && evidence.ticks[0].missed == first - last - 1, "{ticks:?}");
    assert_eq!(ticks[..4], [first, first + 1, first + 2, first + 3], "in order");
    evidence.must_be_clean();
}

#[test]
fn ticks_that_came_while_the_store_was_away_are_caught_up_with_one_after_the_other() {
    let place = Place::new();
    let running = place.ticks("250ms", &["--missed", "catch-up=100"], FILE, 50);
    until_tick(&place, 3);
    let blocked = block(&place);
    let away = now();
    eventually("twelve periods to pass", || (now() - away > 3_000_000_000).then_some(()));
    let back = now();
    drop(blocked);
    let evidence = until_tick(&place, 30);
    drop(running);
    evidence.must_be_clean();
    let begun = evidence.ticks.iter().filter(|tick| tick.start < back);
    let last = begun.max_by_key(|tick| tick.n).unwrap();
    // The last run went on for a while; and of the last ticks the program may hear when it runs the first again.
    let (from, until) = (last.n + 4, last.n + (back - last.start) / 250_000_000 - 4);
    assert!(from + 3 <= until, "the outage was too short: {last:?}, {back}");
    let ran: Vec<_> = evidence.ticks.iter().map(|tick| tick.n).collect();
    assert!((from..=until).all(|tick| ran.contains(&tick)), "{from} to {until}: {ran:?}");
    assert!(ran.is_sorted_by(|a, b| a < b), "in order: {ran:?}");
}

#[test]
fn ticks_that_are_caught_up_with_run_side_by_side_where_they_may_overlap() {
    const PERIOD: Duration = Duration::from_millis(200);
    let place = Place::new();
    let mut first = script(&place, "200ms", &[], "echo started $TENURE_TICK");
    line_after(&first, 0, "started");
    first.signal(Signal::TERM);
    first.code();
    let last = claimed(&place);
    eventually("eight ticks to pass", || {
        (place.list(&["timers"])[0]["next_tick"].as_u64()? > last + 8).then_some(())
    });
    // No run ends: were they one after the other, there would never be a second that came so late.
    let options = ["--missed", "catch-up=8", "--overlap", "allow"];
    let _second = script(&place, "200ms", &options, "sleep 1h");
    eventually("several runs at once whose ticks came long before", || {
        let timer = place.list(&["timers"]).remove(0);
        let time = |value: &Value| humantime::parse_rfc3339(value.as_str().unwrap()).unwrap();
        let due =
            |n: u64| time(&timer["base_time"]) + (n - timer["base_tick"].as_u64().unwrap()) as u32 * PERIOD;
        let claims = timer["claims"].as_array().unwrap().iter();
        let late = |claim: &&Value| time(&claim["since"]) > due(claim["tick"].as_u64().unwrap()) + 2 * PERIOD;
        (claims.filter(late).count() >= 3).then_some(())
    });
}

#[test]
fn a_tick_that_would_be_too_late_is_not_run() {
    let options = ["--missed", "catch-up=100", "--late-limit", "500ms"];
    let (last, evidence) = after_a_break(&options);
    let first = evidence.ticks[0];
    assert!(first.n >= last + 5, "those before were too late: {:?}", evidence.ticks);
}

crate::place::also_on_servers! {
    the_command_finds_its_tick_in_its_environment_and_no_terminal
    of_two_processes_one_runs_each_tick
    a_command_that_fails_is_recorded_and_the_next_tick_is_run
    a_signal_is_passed_on_and_the_program_ends_once_its_command_has
    a_tick_that_is_due_while_the_command_runs_is_not_run_unless_the_policy_says_so
    when_all_are_started_anew_ticks_stay_where_they_were
    of_ticks_that_came_while_nobody_was_there_the_latest_is_run
    of_ticks_that_came_while_nobody_was_there_as_many_as_wanted_are_caught_up_with
    ticks_that_came_while_the_store_was_away_are_caught_up_with_one_after_the_other
    a_tick_that_would_be_too_late_is_not_run
}
