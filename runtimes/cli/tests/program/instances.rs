//! `tenure instances`, `tenure drain` and `tenure status`.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Place, Running, eventually, output};

/// A worker whose command tells of its start and of SIGTERM, under this name.
fn worker(place: &Place, name: &str, options: &[&str], workloads: &[&str]) -> Running {
    let mut options =
        [&["--instance", name, "--assign", "balanced", "--hold-down", "100ms"], options].concat();
    for workload in workloads {
        options.extend(["--workload", workload]);
    }
    let mut command = place.worker(&options);
    let script = "trap 'echo TERM $1; exit 0' TERM; echo started $1; while :; do sleep 0.01; done";
    command.args(["sh", "-c", script, "sh", "{workload}"]);
    Running::start(command)
}

fn state(place: &Place, name: &str) -> Option<String> {
    Some(place.instances().get(name)?["state"].as_str()?.to_owned())
}

fn until_state(place: &Place, name: &str, wanted: &str) {
    eventually(&format!("{name} to be {wanted}"), || (state(place, name)? == wanted).then_some(()));
}

/// Runs `tenure drain` with these arguments; gives the code and the messages.
fn drain(place: &Place, arguments: &[&str]) -> (Option<i32>, String) {
    let (code, out, err) = output(place.tenure(&[&["drain"], arguments].concat()));
    assert_eq!(out, "");
    (code, err)
}

#[test]
fn instances_are_listed_with_what_they_hold_until_they_leave() {
    let place = Place::new();
    let (code, out, err) = output(place.tenure(&["instances"]));
    assert!((code, out.as_str()) == (Some(0), "") && err.contains("no instances"), "{err}");
    assert!(place.instances().is_empty());

    let mut running = worker(&place, "web", &["--label", "zone=a", "--label", "b=two words"], &["x", "y"]);
    eventually("both commands", || (running.stdout.so_far().len() == 2).then_some(()));
    let instance = place.list(&["instances"]).remove(0);
    let fields: Vec<_> = instance.as_object().unwrap().keys().map(String::as_str).collect();
    let mut stable = [
        "instance",
        "incarnation",
        "state",
        "drain_wanted",
        "drain_heard",
        "joined",
        "age_ms",
        "heard_ms",
        "ttl_ms",
        "leases",
        "runs",
        "labels",
        "host",
        "pid",
        "text",
        "problem",
    ];
    stable.sort_unstable();
    assert_eq!(fields, stable, "the names of the fields are an interface");
    assert_eq!((&instance["instance"], &instance["state"]), (&"web".into(), &"active".into()));
    assert_eq!(
        (&instance["leases"], &instance["runs"], &instance["ttl_ms"]),
        (&2.into(), &0.into(), &15_000.into())
    );
    assert_eq!(instance["labels"], serde_json::json!({"b": "two words", "zone": "a"}));
    assert_eq!(instance["pid"], running.pid().as_raw_pid());
    assert_eq!(instance["incarnation"].as_str().unwrap().len(), 32);
    assert!(humantime::parse_rfc3339(instance["joined"].as_str().unwrap()).is_ok());
    assert!(instance["age_ms"].as_u64().unwrap() >= instance["heard_ms"].as_u64().unwrap());
    let (_, table, _) = output(place.tenure(&["instances"]));
    let (incarnation, joined) =
        (instance["incarnation"].as_str().unwrap(), instance["joined"].as_str().unwrap());
    for part in ["INSTANCE", "JOINED", joined, "HEARD", "zone=a", "two words", "active", &incarnation[..8]] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }

    let _holder = Running::start(place.tenure(&["run", "--lease", "z", "--", "sleep", "1000"]));
    eventually("the lease of a command", || place.holders().contains_key("z").then_some(()));
    assert_eq!(place.instances().len(), 1, "tenure run is no instance");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert!(place.instances().is_empty());
}

#[test]
fn an_operator_drains_an_instance_and_takes_it_back() {
    let place = Place::new();
    // Nothing waits for a heartbeat that is due by time alone.
    let mut one = worker(&place, "one", &["--member-ttl", "3m", "--heartbeat", "80s"], &["x"]);
    one.stdout.wait_for("started x");
    let mut other = worker(&place, "other", &[], &["x"]);
    until_state(&place, "other", "active");

    let (code, err) = drain(&place, &["one", "--wait=30s"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        err.contains(&format!("(process {}) is to drain", one.pid())) && err.contains("drained:"),
        "{err}"
    );
    let listed = place.instances();
    assert_eq!((&listed["one"]["state"], &listed["one"]["drain_wanted"]), (&"drained".into(), &true.into()));
    assert_eq!(listed["one"]["drain_heard"], true);
    one.stdout.wait_for("TERM x");
    one.stderr.wait_for("an operator wants this instance, \"one\", to drain: no workload is taken until");
    one.stderr.wait_for("drained: nothing runs here any more");
    other.stdout.wait_for("started x");
    assert_eq!(place.holders()["x"], "other");
    let (code, err) = drain(&place, &["one"]);
    assert!(code == Some(0) && err.contains("was to drain already"), "{err}");
    assert!(!one.has_ended(), "the program stays");

    let (code, err) = drain(&place, &["one", "--undo"]);
    assert!(code == Some(0) && err.contains("is not to drain any more"), "{err}");
    one.stderr.wait_for("the drain was taken back: workloads are taken again");
    eventually("the eldest to have it again", || (place.holders().get("x")? == "one").then_some(()));
    eventually("its command", || {
        let lines = one.stdout.so_far();
        (lines.iter().filter(|line| *line == "started x").count() == 2).then_some(())
    });
    let (code, err) = drain(&place, &["one", "--undo"]);
    assert!(code == Some(0) && err.contains("was not asked to drain"), "{err}");

    // Drained again, it ends in order all the same.
    assert_eq!(drain(&place, &["one", "--wait=1m"]).0, Some(0));
    one.signal(Signal::TERM);
    assert_eq!(one.code(), Some(143));
    assert!(!place.instances().contains_key("one"));
}

#[test]
fn whom_to_drain_is_told_by_name_or_by_incarnation() {
    let place = Place::new();
    let (code, err) = drain(&place, &["nobody"]);
    assert_eq!(code, Some(68), "{err}");
    assert!(err.contains("there is no instance \"nobody\"") && err.contains(&place.store()), "{err}");

    let _both = [1, 2].map(|_| worker(&place, "web", &[], &["x"]));
    let listed = || place.list(&["instances"]);
    eventually("both to be listed", || (listed().len() == 2).then_some(()));
    let of = |n: usize| listed()[n]["incarnation"].as_str().unwrap().to_owned();
    let wanted = || listed().iter().map(|instance| instance["drain_wanted"] == true).collect::<Vec<_>>();
    let (code, err) = drain(&place, &[&format!("web/{}", &of(1)[..12])]);
    assert_eq!((code, wanted()), (Some(0), vec![false, true]), "{err}");
    let (code, err) = drain(&place, &["web"]);
    assert_eq!((code, wanted()), (Some(0), vec![true, true]));
    for part in ["there are 2 processes of the name \"web\"", "is to drain", "was to drain already"] {
        assert!(err.contains(part), "{part} is missing in {err}");
    }
    let (code, _) = drain(&place, &["web", "--undo"]);
    assert_eq!((code, wanted()), (Some(0), vec![false, false]));
    assert_eq!(drain(&place, &["web/zz"]).0, Some(68));
    let (code, err) = drain(&place, &["web", "--undo", "--wait"]);
    assert!(code == Some(64) && err.contains("--wait"), "{err}");
    assert_eq!(drain(&place, &[]).0, Some(64));
}

#[test]
fn waiting_for_a_drain_ends_in_time_and_names_what_is_still_held() {
    let place = Place::new();
    let mut command = place.worker(&["--instance", "deaf", "--workload", "x", "--grace", "1h"]);
    command.args(["sh", "-c", "trap '' TERM; echo started; while :; do sleep 0.01; done"]);
    let mut running = Running::start(command);
    running.stdout.wait_for("started");
    let (code, err) = drain(&place, &["deaf", "--wait=300ms"]);
    assert_eq!(code, Some(75), "{err}");
    assert!(err.contains("not drained in time") && err.contains("holds 1 lease(s)"), "{err}");
    assert_eq!(state(&place, "deaf").unwrap(), "draining", "the drain goes on");
    let waits = Running::start(place.tenure(&["drain", "deaf", "--wait"]));
    let mut waits = waits;
    waits.stderr.wait_for("was to drain already");
    assert_eq!(drain(&place, &["deaf", "--undo"]).0, Some(0));
    waits.stderr.wait_for("taken back before it was done");
    assert_eq!(waits.code(), Some(75));
}

#[test]
fn what_is_left_of_a_killed_instance_is_waited_for_when_it_is_not_listed_any_more() {
    let place = Place::without_early_takeover();
    let mut running = worker(&place, "web", &["--ttl", "60s", "--member-ttl", "2s"], &["x"]);
    eventually("its command", || (running.stdout.so_far().len() == 1).then_some(()));
    running.signal(Signal::KILL);
    assert_eq!(running.code(), None);
    // Its lease outlives it.
    let (code, err) = drain(&place, &["web", "--wait=4s"]);
    assert!(place.instances().is_empty(), "it is not listed any more");
    assert_eq!(code, Some(75), "{err}");
    assert!(err.contains("holds 1 lease(s)"), "{err}");
}

#[test]
fn a_drain_is_taken_back_from_an_instance_that_is_not_listed_for_the_moment() {
    let place = Place::without_early_takeover();
    let mut running = worker(&place, "web", &["--member-ttl", "10s"], &["x"]);
    until_state(&place, "web", "active");
    assert_eq!(drain(&place, &["web", "--wait=1m"]).0, Some(0));
    running.signal(Signal::STOP);
    eventually("it to be listed no longer", || place.instances().is_empty().then_some(()));
    let (code, err) = drain(&place, &["web"]);
    assert_eq!(code, Some(68), "{err}");
    let (code, err) = drain(&place, &["web", "--undo"]);
    assert!(code == Some(0) && err.contains("is not listed"), "{err}");
    running.signal(Signal::CONT);
    running.stderr.wait_for("the drain was taken back: workloads are taken again");
    until_state(&place, "web", "active");
}

#[test]
fn tenure_every_is_an_instance_that_claims_nothing_while_it_is_to_drain() {
    let place = Place::new();
    let mut command = place.every("100ms", &["--instance", "clock"]);
    command.args(["sh", "-c", "trap 'echo TERM; exit 0' TERM; echo ran; while :; do sleep 0.01; done"]);
    let mut running = Running::start(command);
    running.stdout.wait_for("ran");
    assert_eq!(place.instances()["clock"]["runs"], 1);
    let (code, err) = drain(&place, &["clock", "--wait"]);
    assert_eq!(code, Some(0), "{err}");
    running.stdout.wait_for("TERM");
    running.stderr.wait_for("to drain: timer \"job\" is not followed until that is taken back");
    let next = || place.list(&["timers"])[0]["next_tick"].as_u64().unwrap();
    let (runs, tick) = (running.stdout.so_far().len(), next());
    eventually("some ticks to pass", || (next() > tick + 5).then_some(()));
    assert_eq!(running.stdout.so_far().len(), runs, "nothing is run meanwhile");
    assert_eq!(drain(&place, &["clock", "--undo"]).0, Some(0));
    running.stderr.wait_for("the drain was taken back: timer \"job\" is followed again");
    eventually("another run", || (running.stdout.so_far().len() > runs).then_some(()));
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(143));
    assert!(place.instances().is_empty());
}

fn status(place: &Place) -> Value {
    let (code, out, err) = output(place.tenure(&["status", "--json"]));
    assert_eq!(code, Some(0), "{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_status_shows_all_of_it_on_one_screen() {
    let place = Place::new();
    let (code, text, _) = output(place.tenure(&["status"]));
    assert_eq!(code, Some(0));
    for line in ["instances: none", "leases: none", "timers: none", "jobs: none"] {
        assert!(text.lines().any(|text| text == line), "{line} is missing in {text}");
    }
    assert!(text.starts_with("store ") && text.lines().next().unwrap().ends_with(&place.store()), "{text}");

    let mut run = Running::start(place.tenure(&["run", "--lease", "z", "--", "sleep", "1000"]));
    eventually("the lease of a command", || place.holders().contains_key("z").then_some(()));
    let (_, text, _) = output(place.tenure(&["status"]));
    let hint = "1 more process holds leases without being an instance: it has not joined";
    assert!(text.contains(hint) && text.contains("instances: none"), "{text}");
    run.signal(Signal::TERM);
    assert_eq!(run.code(), Some(143));

    let mut worker = worker(&place, "web", &[], &["x"]);
    worker.stdout.wait_for("started");
    let mut every = place.every("100ms", &["--instance", "clock"]);
    every.args(["sh", "-c", "echo ran"]);
    let mut every = Running::start(every);
    every.stdout.wait_for("ran");
    eventually("a run to be recorded", || (!place.list(&["jobs"]).is_empty()).then_some(()));
    let status = status(&place);
    let of = |section: &str, field: &str| -> Vec<String> {
        let entries = status[section].as_array().unwrap().iter();
        entries.map(|entry| entry[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("instances", "instance"), ["clock", "web"]);
    assert_eq!(
        (of("leases", "lease"), of("timers", "timer"), of("jobs", "job")),
        (vec!["x".to_owned()], vec!["job".to_owned()], vec!["job".to_owned()])
    );
    assert!(status["store"].as_str().unwrap().ends_with(&place.store()));
    let (_, text, _) = output(place.tenure(&["status"]));
    for part in ["instances: 2", "leases: 1", "timers: 1", "jobs: 1", "INSTANCE", "LEASE", "TIMER", "JOB"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains("without being"), "who holds leases is an instance: {text}");
}

#[test]
fn the_status_is_shown_again_and_again_until_somebody_ends_it() {
    let place = Place::new();
    let mut watch = Running::start(place.tenure(&["status", "--json", "--watch=50ms"]));
    let seen = |watch: &Running| -> Vec<usize> {
        let count = |line: &String| {
            let status: Value = serde_json::from_str(line).unwrap();
            status["instances"].as_array().unwrap().len()
        };
        watch.stdout.so_far().iter().map(count).collect()
    };
    eventually("two looks", || (seen(&watch).len() >= 2).then_some(()));
    let _worker = worker(&place, "web", &[], &["x"]);
    eventually("the instance", || (seen(&watch).last() == Some(&1)).then_some(()));
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), Some(130));
    let mut text = Running::start(place.tenure(&["status", "--watch=50ms"]));
    eventually("two pictures", || {
        (text.stdout.so_far().iter().filter(|line| line.starts_with("store ")).count() >= 2).then_some(())
    });
    assert!(!text.stdout.so_far().iter().any(|line| line.contains('\u{1b}')), "a file is no terminal");
    text.signal(Signal::TERM);
    assert_eq!(text.code(), Some(143));
}

crate::place::also_on_servers! {
    instances_are_listed_with_what_they_hold_until_they_leave
    an_operator_drains_an_instance_and_takes_it_back
    whom_to_drain_is_told_by_name_or_by_incarnation
    waiting_for_a_drain_ends_in_time_and_names_what_is_still_held
    what_is_left_of_a_killed_instance_is_waited_for_when_it_is_not_listed_any_more
    tenure_every_is_an_instance_that_claims_nothing_while_it_is_to_drain
    the_status_shows_all_of_it_on_one_screen
}
