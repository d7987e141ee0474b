//! `tenure worker`: arguments, the command's surroundings, files of workloads, restarts, and ends in order.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{
    Place, Running, bare_tenure, between, eventually, lives, now, output, stop, witness_program,
};

/// `tenure worker` of a shell's commands.
fn script(place: &Place, options: &[&str], script: &str) -> Running {
    let mut command = place.worker(options);
    command.args(["sh", "-c", script, "sh", "{workload}"]);
    Running::start(command)
}

/// The lines of standard output that begin so, without that.
fn told(running: &Running, what: &str) -> Vec<String> {
    running.stdout.so_far().iter().filter_map(|line| line.strip_prefix(what)).map(str::to_owned).collect()
}

/// Waits for so many lines of standard output that begin so.
fn until_told(running: &Running, what: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} lines with {what:?}"), || {
        let lines = told(running, what);
        (lines.len() >= count).then_some(lines)
    })
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn held(place: &Place) -> BTreeSet<String> {
    place.holders().into_keys().collect()
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_with_the_reason() {
    let place = Place::new();
    let refused = |arguments: &[&str], reason: &str| {
        let mut command = bare_tenure();
        command.arg("worker").args(arguments).env("TENURE_STORE", place.url());
        let (code, out, err) = output(command);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{reason:?} is missing in {err}");
    };
    let with = |options: &[&'static str]| [options, &["--workload", "a", "--", "true"]].concat();
    refused(&["--", "true"], "--workload");
    refused(&["--workload", "a"], "COMMAND");
    refused(&["--workload", "", "--", "true"], "name");
    refused(
        &["--workload", "a", "true"],
        "tip: the command comes after two dashes, as in: tenure worker --workload",
    );
    refused(&with(&["--assign", "by-mood"]), "balanced");
    refused(&with(&["--on-rebalance", "wait"]), "stop, drain");
    refused(&with(&["--restart", "sometimes"]), "on-failure");
    refused(&with(&["--ttl", "1ms"]), "ttl");
    refused(&with(&["--hold-down", "5"]), "5s for seconds");
    refused(&with(&["--member-ttl", "1ms"]), "member ttl");
    refused(&with(&["--member-ttl", "2s", "--heartbeat", "1500ms"]), "heartbeat");
    refused(&with(&["--instance", ""]), "instance");
    refused(&with(&["--label", "zone"]), "a name and a value, as in zone=a");
    refused(&with(&["--label", "=a"]), "label");
    refused(&with(&["--from", "/no/such/file"]), "can't read the workloads from /no/such/file");

    let file = place.path("list");
    let from = |text: &str, reason: &str| {
        std::fs::write(&file, text).unwrap();
        refused(&["--from", file.to_str().unwrap(), "--", "true"], reason);
    };
    from(&format!("a\n{}\n", "x".repeat(256)), "list, line 2:");
    from("# nothing\n\n", "list has no workloads");
    let mut command = bare_tenure();
    command.args(["worker", "--workload", "a", "--store", "memory:", "--", "true"]);
    assert_eq!(output(command).0, Some(78));
}

#[test]
fn the_command_finds_its_workload_in_its_arguments_and_its_environment() {
    let place = Place::new();
    let tell = r#"
        echo "is $1|$TENURE_WORKLOAD|$TENURE_LEASE|$TENURE_TOKEN|$TENURE_OWNER|$TENURE_INSTANCE"
        read line && echo "input: $line"
        (: < /dev/tty) 2>/dev/null && echo "a terminal"
        exec sleep 1000"#;
    let options = ["--workload", "a b", "--workload", "c", "--workload", "c", "--instance", "me", "-v"];
    let mut running = script(&place, &options, tell);
    let lines = until_told(&running, "is ", 2);
    let mut seen = BTreeSet::new();
    for line in &lines {
        let [argument, workload, lease, token, owner, instance] = line.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        assert!(argument == workload && workload == lease && instance == "me", "{line}");
        let listed = place.list(&["leases"]).into_iter().find(|listed| listed["lease"] == lease).unwrap();
        assert_eq!(
            (&listed["token"], &listed["owner"]),
            (&token.parse::<u64>().unwrap().into(), &owner.into())
        );
        seen.insert(workload.to_owned());
    }
    assert_eq!((seen, lines.len()), (set(&["a b", "c"]), 2), "one that is named twice is one");
    running.stderr.wait_for("instance \"me\" shares 2 workload(s)");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    let lines = running.stdout.to_the_end();
    assert!(lines.iter().all(|line| line.starts_with("is ")), "{lines:?}");
    assert!(place.holders().is_empty() && place.instances().is_empty(), "all is given back, and it has left");
}

#[test]
fn workloads_of_a_file_are_shared_out_and_read_again_at_sighup() {
    let place = Place::new();
    let file = place.path("list");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("# ours\nb\na\n\nb\n");
    let options = ["--from", file.to_str().unwrap(), "--workload", "always", "--hold-down", "300ms"];
    let mut running = script(&place, &options, "echo \"started $1\"; exec sleep 1000");
    until_told(&running, "started ", 3);
    assert_eq!(held(&place), set(&["a", "always", "b"]));
    running.stderr.wait_for("list, line 5: workload \"b\" stands in line 2 already");

    let tokens = |place: &Place| {
        let of = |name: &str| place.list(&["leases"]).into_iter().find(|lease| lease["lease"] == name);
        ["a", "always"].map(|name| of(name).unwrap()["token"].clone())
    };
    let before = tokens(&place);
    write("a\nc\nd\n");
    running.signal(Signal::HUP);
    running.stderr.wait_for("SIGHUP: 4 workload(s): 2 added, 1 removed");
    eventually("the new workloads", || (held(&place) == set(&["a", "always", "c", "d"])).then_some(()));
    assert_eq!(tokens(&place), before, "what stays is not touched");

    for (text, reason) in [("a\n\u{1}\n", "list, line 2"), ("", "has no workloads")] {
        write(text);
        running.signal(Signal::HUP);
        let line = running.stderr.wait_for(reason);
        assert!(line.contains("the workloads stay as they are"), "{line}");
    }
    std::fs::remove_file(&file).unwrap();
    running.signal(Signal::HUP);
    running.stderr.wait_for("can't read the workloads");
    write("d\nc\na");
    running.signal(Signal::HUP);
    running.stderr.wait_for("SIGHUP: no workload has changed, of 4");
    assert_eq!(held(&place), set(&["a", "always", "c", "d"]));
    running.signal(Signal::INT);
    assert_eq!(running.code(), Some(130));
}

#[test]
fn a_change_of_the_workloads_that_processes_make_one_after_the_other_moves_no_more_than_it_must() {
    let place = Place::new();
    let file = place.path("list");
    std::fs::write(&file, "a\nb\nc\nd\n").unwrap();
    let start = |name: &str| {
        let options =
            ["--from", file.to_str().unwrap(), "--assign", "balanced", "--instance", name, "--ttl", "5s"];
        let mut command = place.worker(&options);
        command.arg(witness_program()).arg("work").arg(place.path("{workload}"));
        let running = Running::start(command);
        eventually("it to be listed", || place.instances().contains_key(name).then_some(()));
        running
    };
    let mut both = [start("one"), start("two")];
    let shared = |plan: [(&str, &str); 4]| {
        let plan = plan.map(|(workload, instance)| (workload.to_owned(), instance.to_owned()));
        let tokens = |lease: &Value| {
            let token = lease["token"].as_u64()?;
            let units = place.evidence(lease["lease"].as_str()?).history.units;
            units.iter().any(|unit| unit.token == token).then_some(token)
        };
        eventually(&format!("{plan:?}"), || {
            // Whoever has them in the end comes first: before that a token may be that of the one before.
            (place.holders() == plan.clone().into()).then_some(())?;
            place.list(&["leases"]).iter().map(tokens).collect::<Option<Vec<u64>>>()
        })
    };
    let before = shared([("a", "one"), ("b", "one"), ("c", "two"), ("d", "two")]);
    std::fs::write(&file, "a\nb\nd\ne\n").unwrap();
    for running in &mut both {
        running.signal(Signal::HUP);
        running.stderr.wait_for("SIGHUP: 4 workload(s): 1 added, 1 removed");
    }
    let after = shared([("a", "one"), ("b", "one"), ("d", "two"), ("e", "two")]);
    assert_eq!([before[0], before[1], before[3]], after[..3], "what need not move is not disturbed");
    for mut running in both {
        running.signal(Signal::TERM);
        assert_eq!(running.code(), Some(143));
    }
    for workload in ["a", "b", "c", "d", "e"] {
        place.evidence(workload).must_be_clean();
    }
}

#[test]
fn workloads_are_read_from_standard_input() {
    let place = Place::new();
    let list = place.path("list");
    std::fs::write(&list, "a\nb\n").unwrap();
    let mut command = place.worker(&["--from", "-"]);
    command.args(["sh", "-c", "echo started; exec sleep 1000"]).stdin(std::fs::File::open(&list).unwrap());
    let mut running = Running::start(command);
    until_told(&running, "started", 2);
    assert_eq!(held(&place), set(&["a", "b"]));
    // It can't be read again: the signal means what it means without a file.
    running.signal(Signal::HUP);
    assert_eq!(running.code(), Some(129));
}

#[test]
fn a_command_that_ends_is_run_again_as_the_policy_says() {
    let place = Place::new();
    let run = |options: &[&str], workload: &str, code: u32| {
        let options = [options, &["--workload", workload]].concat();
        script(&place, &options, &format!("echo \"ran $TENURE_TOKEN\"; exit {code}"))
    };
    let mut failing = run(&["--restart", "on-failure"], "failing", 3);
    let ending = run(&["--restart", "on-failure"], "ending", 0);
    let never = run(&["--restart", "never"], "never", 3);
    let always = run(&[], "always", 0);
    let mut missing = place.worker(&["--workload", "missing"]);
    missing.arg("/no/such/command");
    let mut missing = Running::start(missing);

    let tokens: Vec<u64> =
        until_told(&always, "ran ", 3).iter().map(|token| token.parse().unwrap()).collect();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "each run has its own grant: {tokens:?}");
    until_told(&failing, "ran ", 2);
    assert!(failing.stderr.wait_for("the command ended with code 3").contains("failing"));
    missing.stderr.wait_for("the command ended with code 127");
    // The others have come to their ends long before.
    assert_eq!((told(&ending, "ran ").len(), told(&never, "ran ").len()), (1, 1));
    assert!(!held(&place).contains("ending") && !held(&place).contains("never"));
    for mut running in [failing, ending, never, always, missing] {
        running.signal(Signal::TERM);
        assert_eq!(running.code(), Some(143), "it stays until it is asked to end");
    }
}

/// A command that tells of the signals that it gets, and ends a while after the first.
const LISTENER: &str = "
    trap 'echo TERM $1; told=1' TERM
    trap 'echo INT $1; told=1' INT
    echo started $1 $$
    until [ $told ]; do sleep 0.01; done
    for n in 1 2 3 4 5 6 7 8 9; do sleep 0.03; done
    echo done $1";
/// One that does not listen.
const DEAF: &str = "trap '' TERM INT HUP; echo started $1 $$; while :; do sleep 0.01; done";

fn processes(running: &Running, count: usize) -> Vec<Pid> {
    let lines = until_told(running, "started ", count);
    let pid = |line: &String| Pid::from_raw(line.rsplit(' ').next().unwrap().parse().unwrap()).unwrap();
    lines.iter().map(pid).collect()
}

#[test]
fn a_signal_is_passed_on_once_and_the_program_ends_once_its_commands_have() {
    let place = Place::new();
    let mut running = script(&place, &["--workload", "a", "--workload", "b"], LISTENER);
    let commands = processes(&running, 2);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert!(!commands.into_iter().any(lives));
    let lines = running.stdout.to_the_end();
    for what in ["TERM a", "TERM b", "done a", "done b"] {
        assert_eq!(lines.iter().filter(|line| *line == what).count(), 1, "{what}: {lines:?}");
    }
    assert!(running.stderr.to_the_end()[0].contains("SIGTERM: no workload is taken any more; 2 command(s)"));
    assert!(place.holders().is_empty() && place.instances().is_empty());

    let mut running = script(&place, &["--workload", "a"], LISTENER);
    processes(&running, 1);
    running.signal(Signal::INT);
    assert_eq!(running.code(), Some(130));
    let lines = running.stdout.to_the_end();
    assert_eq!(lines[1..], ["INT a", "done a"], "that one, and no other");
}

#[test]
fn each_lease_goes_back_as_its_command_ends_and_the_heartbeat_ends_last() {
    let place = Place::new();
    let slow = "
        trap '[ $1 = slow ] || exit 0; echo waits; while [ -e \"$2\" ]; do sleep 0.01; done; exit 0' TERM
        echo started $1; while :; do sleep 0.01; done";
    let gate = place.path("gate");
    std::fs::write(&gate, "").unwrap();
    let mut command =
        place.worker(&["--workload", "quick", "--workload", "slow", "--instance", "me", "--grace", "1h"]);
    command.args(["sh", "-c", slow, "sh", "{workload}"]).arg(&gate);
    let mut running = Running::start(command);
    until_told(&running, "started ", 2);
    running.signal(Signal::TERM);
    until_told(&running, "waits", 1);
    eventually("one lease to be back", || (held(&place) == set(&["slow"])).then_some(()));
    assert_eq!(place.instances()["me"]["state"], "draining", "it is listed while it works");
    std::fs::remove_file(&gate).unwrap();
    assert_eq!(running.code(), Some(143));
    assert!(place.instances().is_empty());
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_the_grace_or_at_a_second_signal() {
    let place = Place::new();
    let mut running = script(&place, &["--workload", "a", "--grace", "700ms"], DEAF);
    let commands = processes(&running, 1);
    let asked = now();
    running.signal(Signal::HUP);
    assert_eq!(running.code(), Some(129), "without a file it asks for the end");
    assert!(!lives(commands[0]));
    assert!(now() - asked >= 700_000_000, "not before");
    assert!(running.stderr.wait_for("within the grace").contains("the command of \"a\" is killed"));

    let mut running = script(&place, &["--workload", "a", "--grace", "1h"], DEAF);
    let commands = processes(&running, 1);
    running.signal(Signal::INT);
    running.stderr.wait_for("SIGINT");
    eventually("the second signal to work", || {
        let _ = kill_process(running.pid(), Signal::TERM);
        running.has_ended().then_some(())
    });
    assert_eq!(running.code(), Some(130), "of the first");
    assert!(!lives(commands[0]));
}

/// One process has both workloads until another comes. Gives what the command that moves said, and the messages.
fn handed_over(how: &str) -> (Vec<String>, Vec<String>) {
    let place = Place::new();
    let options = [
        "--assign",
        "balanced",
        "--workload",
        "a",
        "--workload",
        "b",
        "--hold-down",
        "200ms",
        "--ttl",
        "4s",
        "--on-rebalance",
        how,
    ];
    let slow = "
        trap 'echo TERM $1; sleep 3; echo done $1; exit 0' TERM
        echo started $1 $$; while :; do sleep 0.01; done";
    let mut first = script(&place, &options, slow);
    processes(&first, 2);
    // The younger one does not come within the hold-down of the other.
    let since = now();
    eventually("the hold-down to pass", || {
        (between(since, now()) > Duration::from_millis(400)).then_some(())
    });
    let second = script(&place, &options, slow);
    until_told(&second, "started b", 1);
    assert!(first.stdout.so_far().iter().any(|line| line == "TERM b"), "it was asked");
    assert!(!first.stdout.so_far().iter().any(|line| line == "TERM a"), "what stays is not disturbed");
    drop(second);
    let said = (told(&first, ""), first.stderr.so_far());
    first.signal(Signal::KILL);
    first.code();
    said
}

#[test]
fn a_command_whose_workload_moves_on_is_stopped_soon() {
    let (out, err) = handed_over("stop");
    assert!(!out.contains(&"done b".to_owned()), "{out:?}");
    assert!(err.iter().any(|line| line.contains("the command of \"b\" is killed")), "{err:?}");
}

#[test]
fn a_command_whose_workload_moves_on_may_come_to_its_end_if_that_is_wanted() {
    let (out, err) = handed_over("drain");
    assert!(out.contains(&"done b".to_owned()), "{out:?}");
    assert!(!err.iter().any(|line| line.contains("is killed")), "{err:?}");
}

const FILE: &str = "evidence";

fn witness(place: &Place, options: &[&str]) -> Running {
    let mut command = place.worker(
        &[&["--workload", "job", "--assign", "balanced", "--ttl", "2s", "--member-ttl", "1s"], options]
            .concat(),
    );
    command.arg(witness_program()).arg("work").arg(place.path(FILE));
    Running::start(command)
}

#[test]
fn when_a_process_is_killed_its_command_dies_and_another_process_goes_on() {
    let place = Place::new();
    let mut first = witness(&place, &["--instance", "first"]);
    let began = place.began_above(FILE, 0);
    place.worked(FILE, began.token);
    let _second = witness(&place, &["--instance", "second"]);
    eventually("both to be listed", || (place.instances().len() == 2).then_some(()));
    first.signal(Signal::KILL);
    let next = place.began_above(FILE, began.token);
    assert!(!lives(began.process));
    place.worked(FILE, next.token);
    first.code();
    assert!(
        first.stderr.to_the_end().iter().any(|line| line.contains("the supervisor of lease \"job\" is gone"))
    );
    place.evidence(FILE).must_be_clean();
    assert_eq!(place.holders()["job"], "second");
    assert_eq!(place.instances().into_keys().collect::<Vec<_>>(), ["second"], "the dead is not listed");
}

#[test]
fn when_a_process_is_stopped_its_command_ends_in_time_and_another_process_goes_on() {
    let place = Place::new();
    let first = witness(&place, &["--instance", "first"]);
    let began = place.began_above(FILE, 0);
    place.worked(FILE, began.token);
    let _second = witness(&place, &["--instance", "second"]);
    eventually("both to be listed", || (place.instances().len() == 2).then_some(()));
    eventually("a moment in which nobody is disturbed by the stop", || stop(&place, &first));
    let next = place.began_above(FILE, began.token);
    assert!(!lives(began.process));
    place.worked(FILE, next.token);
    eventually("the stopped one not to be listed", || {
        (!place.instances().contains_key("first")).then_some(())
    });
    first.signal(Signal::CONT);
    // It comes back, and gets its workload back: it joined earliest.
    eventually("it to be listed again", || place.instances().contains_key("first").then_some(()));
    let last = eventually("the eldest to work again", || {
        (place.holders().get("job")? == "first").then(|| place.began_above(FILE, next.token))
    });
    place.worked(FILE, last.token);
    place.evidence(FILE).must_be_clean();
}

crate::place::also_on_servers! {
    workloads_of_a_file_are_shared_out_and_read_again_at_sighup
    a_signal_is_passed_on_once_and_the_program_ends_once_its_commands_have
    each_lease_goes_back_as_its_command_ends_and_the_heartbeat_ends_last
    a_command_whose_workload_moves_on_is_stopped_soon
    when_a_process_is_killed_its_command_dies_and_another_process_goes_on
    when_a_process_is_stopped_its_command_ends_in_time_and_another_process_goes_on
}
