//! `tenure timers` and `tenure jobs`.

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Place, Running, eventually, output};

/// A command on a timer named `name`, once it runs.
fn running(place: &Place, name: &str, script: &str) -> Running {
    let mut command = place.tenure(&["every", "300ms", "--name", name, "--", "sh", "-c", script]);
    command.arg("sh");
    let mut running = Running::start(command);
    running.stdout.wait_for("started");
    running
}

fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted<const N: usize>(mut names: [&str; N]) -> Vec<&str> {
    names.sort_unstable();
    names.to_vec()
}

#[test]
fn nothing_is_listed_where_there_is_nothing() {
    let place = Place::new();
    for (list, words) in [
        (&["timers"][..], "no timers"),
        (&["jobs"], "no jobs"),
        (&["jobs", "history", "job"], "no runs of job \"job\""),
    ] {
        assert!(place.list(list).is_empty());
        let (code, out, err) = output(place.tenure(list));
        assert_eq!((code, out.as_str()), (Some(0), ""));
        assert!(err.contains(words) && err.contains(&place.store()), "{err}");
    }
    for arguments in [["timers", "forget", "job"], ["jobs", "forget", "job"]] {
        let (code, _, err) = output(place.tenure(&arguments));
        assert!(code == Some(0) && err.contains("nothing was done"), "{err}");
        let (code, _, err) = output(place.tenure(&[arguments[0], arguments[1], ""]));
        assert_eq!(code, Some(64), "{err}");
    }
    let (code, ..) = output(place.tenure(&["jobs", "history", ""]));
    assert_eq!(code, Some(64));
}

#[test]
fn timers_are_listed_with_their_ticks_and_claims() {
    let place = Place::new();
    let mut running = running(&place, "a \u{1b}[31m", "echo started $TENURE_TICK; exec sleep 1000");
    let tick: u64 = running.stdout.wait_for("started ")["started ".len()..].parse().unwrap();
    let timer = place.list(&["timers"]).remove(0);
    let names = [
        "timer",
        "schedule",
        "schedule_to_follow",
        "follows_at",
        "base_tick",
        "base_time",
        "last_tick",
        "claimed_tick",
        "next_tick",
        "next_time",
        "claims",
        "problem",
    ];
    assert_eq!(fields(&timer), sorted(names), "the names of the fields are an interface");
    assert_eq!((&timer["timer"], &timer["schedule"]), (&"a \u{1b}[31m".into(), &"every 0.3s".into()));
    assert!(timer["schedule_to_follow"].is_null() && timer["follows_at"].is_null());
    let next = timer["next_tick"].as_u64().unwrap();
    assert!(next >= timer["last_tick"].as_u64().unwrap() && next >= 2, "{timer}");
    let [base, at] = ["base_time", "next_time"].map(|name| {
        let time = humantime::parse_rfc3339(timer[name].as_str().unwrap()).unwrap();
        time.duration_since(std::time::UNIX_EPOCH).unwrap()
    });
    let (since, exact) = ((at - base).as_millis(), u128::from(next) * 300);
    assert!(since.abs_diff(exact) <= 1, "to the millisecond: {since}, {exact}");

    let claim = &timer["claims"][0];
    let names = [
        "tick",
        "instance",
        "owner",
        "host",
        "pid",
        "token",
        "since",
        "ttl_ms",
        "remaining_ms",
        "attempt",
        "attempts",
        "text",
    ];
    assert_eq!(fields(claim), sorted(names), "the names of the fields are an interface");
    assert_eq!((&claim["tick"], &claim["pid"]), (&tick.into(), &running.pid().as_raw_pid().into()));
    assert_eq!(
        (&claim["attempt"], &claim["attempts"], &claim["ttl_ms"]),
        (&1.into(), &1.into(), &15_000.into())
    );
    assert!(claim["remaining_ms"].as_u64().unwrap() <= 15_000);

    let (_, table, _) = output(place.tenure(&["timers"]));
    for part in ["TIMER", "NEXT", "every 0.3s", &format!("tick {tick}:"), &running.pid().to_string()] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    assert!(!table.contains('\u{1b}'), "a timer's name can't steer the terminal: {table:?}");
}

#[test]
fn a_timer_that_can_not_be_read_hides_no_other_and_can_be_forgotten() {
    let place = Place::new();
    for name in ["damaged", "other"] {
        let mut running = running(&place, name, "echo started");
        running.signal(Signal::TERM);
        running.code();
    }
    let connection = Connection::open(place.path("leases.db")).unwrap();
    let damage = "UPDATE timer SET format = 9 WHERE name = CAST('damaged' AS BLOB)";
    assert_eq!(connection.execute(damage, []), Ok(1));
    let listed = place.list(&["timers"]);
    assert_eq!((&listed[0]["timer"], &listed[1]["timer"]), (&"damaged".into(), &"other".into()));
    assert!(listed[0]["problem"].as_str().unwrap().contains("format 9") && listed[0]["schedule"].is_null());
    assert!(listed[1]["problem"].is_null() && listed[1]["schedule"] == "every 0.3s");
    let (_, table, _) = output(place.tenure(&["timers"]));
    assert!(table.contains("format 9") && table.contains("every 0.3s"), "{table}");
    assert_eq!(output(place.tenure(&["timers", "forget", "damaged"])).0, Some(0));
    assert_eq!(place.list(&["timers"]).len(), 1);
}

#[test]
fn a_timer_that_nobody_has_any_more_can_be_forgotten() {
    let place = Place::new();
    let mut running = running(&place, "job", "echo started");
    running.signal(Signal::TERM);
    running.code();
    assert_eq!(place.list(&["timers"]).len(), 1, "it stays for those who come later");
    let (code, _, err) = output(place.tenure(&["timers", "forget", "job"]));
    assert!(code == Some(0) && err.contains("\"job\" is forgotten"), "{err}");
    assert!(place.list(&["timers"]).is_empty());
    assert!(!place.runs().is_empty(), "what it did is another matter");
    let (code, _, err) = output(place.tenure(&["jobs", "forget", "job"]));
    assert!(code == Some(0) && err.contains("\"job\" are forgotten"), "{err}");
    assert!(place.runs().is_empty() && place.list(&["jobs"]).is_empty());
}

#[test]
fn jobs_and_their_runs_are_listed() {
    let place = Place::new();
    let script = "echo started; [ $TENURE_TICK -lt 3 ] && exit $TENURE_TICK; exec sleep 1000";
    let running = running(&place, "job", script);
    let job = eventually("the third run", || {
        let job = place.list(&["jobs"]).pop()?;
        (job["running"] == 1 && job["last"]["index"].as_u64()? >= 3).then_some(job)
    });
    assert_eq!(fields(&job), sorted(["job", "running", "kept", "last"]), "an interface");
    assert_eq!(job["job"], "job");
    let runs = place.runs();
    assert_eq!(job["kept"], runs.len());
    let names = ["index", "instance", "owner", "started", "ended", "duration_ms", "outcome", "text"];
    for run in runs.iter().chain([&job["last"]]) {
        assert_eq!(fields(run), sorted(names), "an interface");
        assert!(humantime::parse_rfc3339(run["started"].as_str().unwrap()).is_ok());
    }
    let indices: Vec<_> = runs.iter().map(|run| run["index"].as_u64().unwrap()).collect();
    assert!(indices.windows(2).all(|pair| pair[0] > pair[1]), "the latest first: {indices:?}");
    assert!(runs[0]["outcome"] == "running" && runs[0]["ended"].is_null() && runs[0]["text"].is_null());
    for run in &runs[1..] {
        assert_eq!(run["outcome"], "failed");
        assert_eq!(run["text"], format!("the command ended with code {}", run["index"]));
        assert!(run["duration_ms"].as_u64().is_some() && run["ended"].is_string());
    }
    let (_, table, _) = output(place.tenure(&["jobs"]));
    for part in ["JOB", "RUNS KEPT", "running 1"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    let (_, table, _) = output(place.tenure(&["jobs", "history", "job"]));
    for part in ["INDEX", "OUTCOME", "failed", "running", "the command ended with code"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    drop(running);
}

#[test]
fn records_that_nobody_wrote_in_earnest_are_shown_all_the_same() {
    let place = Place::new();
    let mut running = running(&place, "job", "echo started");
    eventually("a run that has ended", || {
        place.runs().iter().any(|run| run["outcome"] == "succeeded").then_some(())
    });
    running.signal(Signal::TERM);
    running.code();
    let connection = Connection::open(place.path("leases.db")).unwrap();
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(
        tables.iter().any(|table| table == "timer") && tables.iter().any(|table| table == "run"),
        "{tables:?}"
    );
    for (far, shown) in [(i64::MIN, "?"), (i64::MAX, "2262")] {
        let set = "UPDATE timer SET base_at = ?1, schedule = 'at \u{1b}[2J times'";
        assert_eq!(connection.execute(set, [far]).unwrap(), 1);
        assert!(connection.execute("UPDATE run SET started = ?1, text = '\u{7}'", [far]).unwrap() > 0);
        for list in [&["timers"][..], &["jobs"], &["jobs", "history", "job"]] {
            let (code, out, err) = output(place.tenure(list));
            assert_eq!(code, Some(0), "{err}");
            assert!(!out.contains(['\u{1b}', '\u{7}']), "{out:?}");
            assert!(!place.list(list).is_empty());
        }
        let timer = place.list(&["timers"]).remove(0);
        assert!(
            timer["base_time"].as_str().unwrap().starts_with(shown) && timer["next_tick"].is_null(),
            "{timer}"
        );
        assert!(place.runs()[0]["started"].as_str().unwrap().starts_with(shown));
    }
}

crate::place::also_on_servers! {
    nothing_is_listed_where_there_is_nothing
    timers_are_listed_with_their_ticks_and_claims
    a_timer_that_nobody_has_any_more_can_be_forgotten
    jobs_and_their_runs_are_listed
}
