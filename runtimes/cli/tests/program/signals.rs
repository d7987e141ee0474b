//! Signals to `tenure run`, and what becomes of them.

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Place, Running, attentive, eventually, lives, output, state};

/// A shell script under a lease that tells of each signal, and ends with code 3 after SIGTERM.
const LISTENER: &str = "
    trap 'echo HUP' HUP; trap 'echo INT' INT; trap 'echo QUIT' QUIT; trap 'echo TERM; exit 3' TERM
    echo started; while :; do sleep 0.01; done";
/// One that does not listen to anything.
const DEAF: &str = "trap '' HUP INT QUIT TERM; echo started; while :; do sleep 0.01; done";

fn run(place: &Place, options: &[&str], script: &str) -> Running {
    let mut command = place.tenure(&["run", "--lease", "job"]);
    command.args(options).args(["--", "sh", "-c", script]);
    let mut running = Running::start(command);
    running.stdout.wait_for("started");
    running
}

#[test]
fn signals_are_passed_on_to_the_command_and_its_code_is_ours() {
    let place = Place::new();
    let mut holder = run(&place, &[], LISTENER);
    for (signal, name) in [(Signal::HUP, "HUP"), (Signal::QUIT, "QUIT"), (Signal::INT, "INT")] {
        holder.signal(signal);
        holder.stdout.wait_for(name);
    }
    // The first to ask for the end was SIGINT, and this is the second: it escalates.
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(137), "killed");

    let mut holder = run(&place, &[], LISTENER);
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(3), "the command's own");
    assert_eq!(holder.stdout.to_the_end(), ["started", "TERM"]);
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_the_grace_and_keeps_its_lease_till_then() {
    let place = Place::new();
    let mut holder = run(&place, &["--grace", "1400ms", "--ttl", "1s"], DEAF);
    holder.signal(Signal::TERM);
    let mut waiter = Running::start(place.tenure(&["run", "--lease", "job", "--", "true"]));
    waiter.waits();
    assert_eq!(holder.code(), Some(137), "killed");
    assert!(holder.stderr.to_the_end().iter().any(|line| line.contains("within the grace")));
    assert_eq!(waiter.code(), Some(0));
}

#[test]
fn a_second_signal_kills_at_once() {
    let place = Place::new();
    let mut holder = run(&place, &["--grace", "1h"], DEAF);
    holder.signal(Signal::TERM);
    // The same signal sent twice before it is received counts once.
    eventually("the second signal to work", || {
        let _ = kill_process(holder.pid(), Signal::TERM);
        holder.has_ended().then_some(())
    });
    assert_eq!(holder.code(), Some(137));
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored_for_the_program_and_for_the_command() {
    let place = Place::new();
    let mut command = attentive("sh");
    command.args(["-c", r#"trap '' HUP; exec "$@""#, "sh"]).arg(env!("CARGO_BIN_EXE_tenure"));
    command.args(["run", "--lease", "job", "--", "sh", "-c"]);
    command
        .arg("trap 'exit 4' TERM; echo started; grep SigIgn /proc/$$/status; while :; do sleep 0.01; done");
    command.env("TENURE_STORE", place.url());
    let mut holder = Running::start(command);
    let ignored = holder.stdout.wait_for("SigIgn:");
    let mask = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    // Above the classic signals there are some that a libc keeps for itself.
    assert_eq!(mask & 0x7fff_ffff, 1, "SIGHUP alone is ignored in the command");
    holder.signal(Signal::HUP);
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(4), "SIGHUP did nothing");
}

#[test]
fn a_command_that_stops_itself_from_the_keyboard_goes_on() {
    let place = Place::new();
    let (code, out, err) =
        output(place.tenure(&["run", "--lease", "job", "--", "sh", "-c", "kill -TSTP $$; echo went on"]));
    assert_eq!((code, out.as_str()), (Some(0), "went on\n"));
    assert!(err.contains("can't be suspended"), "{err}");
}

#[test]
fn a_supervisor_that_was_stopped_hears_of_the_end_however_much_there_was_to_hear() {
    let place = Place::new();
    let script = r#"
        echo ready $$
        until [ -e "$0" ]; do sleep 0.01; done
        i=0; while [ $i -lt 1000 ]; do kill -TSTP $$; i=$((i+1)); done
        exit 5"#;
    let mut command = place.tenure(&["run", "--lease", "job", "--ttl", "2m", "--", "sh", "-c", script]);
    command.arg(place.path("begin"));
    let mut holder = Running::start(command);
    let line = holder.stdout.wait_for("ready ");
    let process = Pid::from_raw(line["ready ".len()..].parse().unwrap()).unwrap();
    holder.signal(Signal::STOP);
    eventually("the supervisor to stand", || (state(holder.pid()) == Some('T')).then_some(()));
    std::fs::write(place.path("begin"), "").unwrap();
    eventually("the command's end", || (!lives(process)).then_some(()));
    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), Some(5));
}

#[test]
fn the_program_itself_cannot_be_suspended_while_it_holds_the_lease() {
    let place = Place::new();
    let mut holder = run(&place, &[], LISTENER);
    holder.signal(Signal::TSTP);
    holder.stderr.wait_for("can't be suspended");
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(3));
}

#[test]
fn a_guardian_outlives_signals_that_are_meant_for_the_command() {
    let place = Place::new();
    let mut command = place.tenure(&["run", "--lease", "job", "--", "sh", "-c"]);
    command.arg("trap 'exit 6' TERM; echo $PPID; while :; do sleep 0.01; done");
    let mut holder = Running::start(command);
    let guardian =
        eventually("the guardian's number", || Pid::from_raw(holder.stdout.so_far().first()?.parse().ok()?));
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP] {
        kill_process(guardian, signal).unwrap();
    }
    assert!(lives(guardian));
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(6));
}

#[test]
fn a_command_whose_guardian_is_stopped_is_killed_by_the_supervisor() {
    let place = Place::new();
    let mut command = place.tenure(&["run", "--lease", "job", "--grace", "100ms", "--", "sh", "-c"]);
    command.arg("trap '' TERM; echo $PPID; while :; do sleep 0.01; done");
    let mut holder = Running::start(command);
    let guardian =
        eventually("the guardian's number", || Pid::from_raw(holder.stdout.so_far().first()?.parse().ok()?));
    kill_process(guardian, Signal::STOP).unwrap();
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(137));
}

crate::place::also_on_servers! {
    signals_are_passed_on_to_the_command_and_its_code_is_ours
    a_command_that_does_not_listen_is_killed_after_the_grace_and_keeps_its_lease_till_then
    a_second_signal_kills_at_once
}
