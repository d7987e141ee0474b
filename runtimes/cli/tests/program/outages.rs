//! Stores that don't answer while a command runs.

use std::time::Duration;

use rustix::process::Pid;

use crate::harness::{Place, Running, between, block, eventually, lives, now, output};

const TTL: Duration = Duration::from_secs(4);
/// Tells of SIGTERM and ends.
const LISTENER: &str = "trap 'echo asked; exit 3' TERM; echo $$; while :; do sleep 0.01; done";
/// Does not listen to it.
const DEAF: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

fn run(place: &Place, options: &[&str], script: &str) -> (Running, Pid) {
    let mut command = place.tenure(&["run", "--lease", "job", "--ttl", "4s"]);
    command.args(options).args(["--", "sh", "-c", script]);
    let holder = Running::start(command);
    let process =
        eventually("the command's number", || Pid::from_raw(holder.stdout.so_far().first()?.parse().ok()?));
    (holder, process)
}

/// Cuts a command off from its store, sees it end within the TTL, and gives what it wrote besides its number.
fn cut_off(options: &[&str], script: &str) -> (Vec<String>, Vec<String>) {
    let place = Place::new();
    let (mut holder, process) = run(&place, options, script);
    let blocked = block(&place);
    // The last renewal was before this moment.
    let since = now();
    eventually("the command's end", || (!lives(process)).then_some(()));
    let within = between(since, now());
    assert!(within < TTL, "it ended {within:?} after the last renewal");
    drop(blocked);
    assert_eq!(holder.code(), Some(76), "lost");
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--wait", "30s", "--", "true"]));
    assert_eq!(code, Some(0));
    (holder.stdout.to_the_end()[1..].to_vec(), holder.stderr.to_the_end())
}

#[test]
fn a_command_that_is_cut_off_from_the_store_is_asked_to_end_before_its_lease_does() {
    let (said, notices) = cut_off(&[], LISTENER);
    assert_eq!(said, ["asked"]);
    assert!(notices.iter().any(|line| line.contains("is asked to end")), "{notices:#?}");
    // The doubt and its cause, then the loss: each once. What the store tells of its connection is its own.
    let ours = notices.iter().filter(|line| {
        line.contains("tenure") && !["tenure_redis", "tenure_nats"].iter().any(|store| line.contains(store))
    });
    let ours: Vec<_> = ours.collect();
    let [doubt, loss] = &ours[..] else { panic!("{notices:#?}") };
    assert!(doubt.contains("a renewal failed; without one the work must stop in "), "{doubt}");
    assert!(loss.contains("\"job\" (token "), "{loss}");
    assert!(loss.contains("no renewal was acknowledged in time"), "{loss}");
}

#[test]
fn a_command_that_is_cut_off_and_does_not_listen_is_killed_before_its_lease_ends() {
    let (said, _) = cut_off(&[], DEAF);
    assert!(said.is_empty());
}

#[test]
fn with_on_lost_kill_a_command_that_is_cut_off_is_not_asked() {
    let (said, notices) = cut_off(&["--on-lost", "kill"], LISTENER);
    assert!(said.is_empty(), "{said:?}");
    assert!(notices.iter().any(|line| line.contains("is killed")), "{notices:#?}");
}

#[test]
fn a_store_that_comes_back_after_the_fence_puts_the_kill_off_by_nothing() {
    let place = Place::new();
    let (mut holder, process) = run(&place, &[], DEAF);
    let blocked = block(&place);
    holder.stderr.wait_for("is asked to end");
    drop(blocked);
    let since = now();
    eventually("the command's end", || (!lives(process)).then_some(()));
    let within = between(since, now());
    // The kill was planned a quarter of the TTL after the fence at the latest; renewals only cover it.
    assert!(within < TTL / 2, "it ended {within:?} after the fence");
    assert_eq!(holder.code(), Some(76), "lost");
}

#[test]
fn an_outage_shorter_than_the_lease_harms_nobody() {
    let place = Place::new();
    let script = r#"echo $$; while [ ! -e "$0" ]; do sleep 0.01; done"#;
    let mut command = place.tenure(&["run", "--lease", "job", "--ttl", "4s", "--", "sh", "-c", script]);
    command.arg(place.path("enough"));
    let mut holder = Running::start(command);
    eventually("the command to begin", || holder.stdout.so_far().first().cloned());
    let blocked = block(&place);
    holder.stderr.wait_for("a renewal failed");
    drop(blocked);
    eventually("the next renewal", || {
        let (_, out, _) = output(place.tenure(&["leases", "--json"]));
        let list: serde_json::Value = serde_json::from_str(&out).ok()?;
        (list.get(0)?["remaining_ms"].as_u64()? > 3000).then_some(())
    });
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn a_store_that_is_replaced_costs_the_lease_at_once() {
    let place = Place::new();
    let (mut holder, process) = run(&place, &[], DEAF);
    std::fs::rename(place.path("leases.db"), place.path("old.db")).unwrap();
    let since = now();
    assert_eq!(holder.code(), Some(76), "lost");
    assert!(between(since, now()) < TTL);
    assert!(!lives(process));
}

#[test]
fn a_store_that_does_not_answer_is_code_69_after_the_wait_limit_and_used_when_it_is_back() {
    let place = Place::new();
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--", "true"]));
    assert_eq!(code, Some(0), "the store is there");
    let blocked = block(&place);
    let run = |limit: &[&str]| {
        let mut command = place.tenure(&["run", "--lease", "job"]);
        command.args(limit).args(["--", "echo", "at last"]);
        command
    };
    for limit in [&["--wait", "100ms"][..], &["--no-wait"]] {
        let (code, out, err) = output(run(limit));
        assert_eq!((code, out.as_str()), (Some(69), ""), "{err}");
        assert!(err.contains("\"job\"") && err.contains(&place.store()), "{err}");
        assert_eq!(err.lines().count(), 1, "nothing was held: {err}");
    }
    let (code, _, err) = output(place.tenure(&["release", "job", "--force"]));
    assert_eq!(code, Some(69), "{err}");
    assert!(err.starts_with("tenure: waiting for an answer from store "), "{err}");

    let mut patient = Running::start(run(&[]));
    patient.stderr.wait_for("trying again, waiting as long as it takes");
    drop(blocked);
    assert_eq!(patient.code(), Some(0));
    assert_eq!(patient.stdout.to_the_end(), ["at last"]);
}

crate::place::also_on_servers! {
    a_command_that_is_cut_off_from_the_store_is_asked_to_end_before_its_lease_does
    a_command_that_is_cut_off_and_does_not_listen_is_killed_before_its_lease_ends
    a_store_that_comes_back_after_the_fence_puts_the_kill_off_by_nothing
    an_outage_shorter_than_the_lease_harms_nobody
    a_store_that_does_not_answer_is_code_69_after_the_wait_limit_and_used_when_it_is_back
}
