//! `tenure leases` and `tenure release`.

use crate::harness::{Place, Running, eventually, output};

fn held(place: &Place, lease: &str, ttl: &str) -> Running {
    let options = ["run", "--lease", lease, "--ttl", ttl, "--", "sh", "-c", "echo started; exec sleep 1000"];
    let mut holder = Running::start(place.tenure(&options));
    holder.stdout.wait_for("started");
    holder
}

#[test]
fn leases_are_listed_as_a_table_for_people_and_as_json_for_programs() {
    let place = Place::new();
    let (code, out, err) = output(place.tenure(&["leases", "--json"]));
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "[]\n", ""));
    let (code, out, err) = output(place.tenure(&["leases"]));
    assert_eq!((code, out.as_str()), (Some(0), ""));
    assert!(err.contains("no leases are held") && err.contains(&place.store()), "{err}");

    let first = held(&place, "first", "15s");
    let _second = held(&place, "second \u{1b}[31m", "15s");
    let (code, out, _) = output(place.tenure(&["leases", "--json"]));
    assert_eq!(code, Some(0));
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    let lease = list[0].as_object().unwrap();
    let fields: Vec<&str> = lease.keys().map(String::as_str).collect();
    let mut stable = [
        "lease",
        "instance",
        "owner",
        "host",
        "pid",
        "token",
        "since",
        "ttl_ms",
        "remaining_ms",
        "text",
        "problem",
    ];
    stable.sort_unstable();
    assert_eq!(fields, stable, "the names of the fields are an interface");
    assert_eq!(lease["lease"], "first");
    assert_eq!(lease["pid"], first.pid().as_raw_pid());
    assert_eq!(lease["ttl_ms"], 15_000);
    assert!(lease["remaining_ms"].as_u64().unwrap() <= 15_000);
    assert!(lease["token"].as_u64().unwrap() > 0);
    assert!(lease["owner"].as_str().unwrap().starts_with(lease["instance"].as_str().unwrap()));
    assert_eq!(list[1]["lease"], "second \u{1b}[31m");

    let (_, table, _) = output(place.tenure(&["leases"]));
    for part in ["LEASE", "REMAINING", "first", &first.pid().to_string()] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    assert!(!table.contains('\u{1b}'), "a lease's name can't steer the terminal: {table:?}");
}

#[test]
fn whoever_stops_reading_the_list_harms_nobody() {
    let place = Place::new();
    let _held = held(&place, "job", "15s");
    let mut shell = std::process::Command::new("sh");
    shell
        .arg("-c")
        .arg(r#"("$1" leases; echo "code $?" >&2) | true"#)
        .arg("sh")
        .arg(env!("CARGO_BIN_EXE_tenure"));
    shell.env("TENURE_STORE", place.url()).env("RUST_BACKTRACE", "0");
    let (_, _, err) = output(shell);
    assert_eq!(err, "code 0\n");
}

#[test]
fn force_makes_the_holder_stop_and_frees_the_lease_by_its_ttl() {
    let place = Place::new();
    let mut holder = held(&place, "job", "3s");
    let (code, _, err) = output(place.tenure(&["release", "job", "--force"]));
    assert_eq!(code, Some(0));
    for part in ["\"job\"", &format!("process {}", holder.pid()), "becomes free in"] {
        assert!(err.contains(part), "{part} is missing in {err}");
    }
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert_eq!(code, Some(75), "the record keeps its TTL");
    assert_eq!(holder.code(), Some(76), "lost");
    let last = holder.stderr.to_the_end().pop().unwrap();
    assert!(last.contains("is lost") && last.contains("not this process's"), "{last}");
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--wait", "30s", "--", "true"]));
    assert_eq!(code, Some(0));
}

#[test]
fn now_frees_the_lease_at_once_with_a_warning() {
    let place = Place::new();
    let mut holder = held(&place, "job", "3s");
    let (code, _, err) = output(place.tenure(&["release", "job", "--now"]));
    assert_eq!(code, Some(0));
    assert!(err.contains("warning") && err.contains(&format!("process {}", holder.pid())), "{err}");
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert_eq!(code, Some(0), "free at once");
    assert_eq!(holder.code(), Some(76), "lost");
}

#[test]
fn releasing_what_nobody_holds_says_so() {
    let place = Place::new();
    let (code, _, err) = output(place.tenure(&["release", "job", "--force"]));
    assert_eq!(code, Some(0));
    assert!(err.contains("\"job\" is not held"), "{err}");
    let (code, _, err) = output(place.tenure(&["release", "", "--force"]));
    assert_eq!(code, Some(64), "{err}");
}

#[test]
fn a_lease_is_given_back_before_the_program_ends() {
    let place = Place::new();
    for _ in 0..5 {
        let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
        assert_eq!(code, Some(0));
    }
    eventually("nothing to be held", || {
        (output(place.tenure(&["leases", "--json"])).1 == "[]\n").then_some(())
    });
}

crate::place::also_on_servers! {
    leases_are_listed_as_a_table_for_people_and_as_json_for_programs
    force_makes_the_holder_stop_and_frees_the_lease_by_its_ttl
    now_frees_the_lease_at_once_with_a_warning
    releasing_what_nobody_holds_says_so
    a_lease_is_given_back_before_the_program_ends
}
