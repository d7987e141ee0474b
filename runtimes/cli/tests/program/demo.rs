//! `tenure demo`, from the outside: what it shows, what its verdict is, and what it leaves behind.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, Running, bare_tenure, eventually, lives, output};
use crate::history::{History, Unit};
use crate::terminal::Session;

/// Where a demo may make its folder, and from where its processes are known.
struct Temporary(tempfile::TempDir);

impl Temporary {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// `tenure demo`, which needs nothing from the environment but this.
    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = bare_tenure();
        command.arg("demo").args(arguments).env("TMPDIR", self.0.path());
        command
    }

    /// Living processes that name it on their command line.
    fn processes(&self) -> Vec<Pid> {
        let folder = self.0.path().to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
            .filter(|process| {
                let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(folder) && lives(*process)
            })
            .collect()
    }

    fn is_as_it_was(&self) {
        assert_eq!(self.processes(), [], "processes are left");
        let left: Vec<_> =
            std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, Vec::<std::path::PathBuf>::new(), "files are left");
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn in_the_demo_everything_happens_and_no_two_ever_work_at_once() {
    let temporary = Temporary::new();
    let (code, out, err) = output(temporary.demo(&["--json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    temporary.is_as_it_was();
    let seen: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(seen["verdict"], serde_json::json!({ "safe": true, "breaches": [] }));

    let events = seen["events"].as_array().unwrap();
    let what: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(what, ["kill", "freeze", "drain", "drain", "cut-off", "bad-network"]);
    for event in &events[..5] {
        let hand_overs = event["handovers"].as_array().unwrap();
        assert!(!hand_overs.is_empty(), "{event}");
        for hand_over in hand_overs {
            assert_eq!(hand_over["from"], event["member"]);
            assert_ne!(hand_over["from"], hand_over["to"]);
            let token = |name: &str| hand_over[name].as_u64().unwrap();
            assert!(token("token_before") < token("token_after"), "{hand_over}");
        }
    }
    let lasted = |event: &Value| number(&event["over_ms"]) - number(&event["at_ms"]);
    assert!(lasted(&events[1]) >= 2500.0, "frozen for longer than the TTL: {}", events[1]);
    assert!(events[4]["counts"]["late-refused"].as_u64() > Some(0), "{}", events[4]);

    // The history that it gives stands the check that the other tests make, and every member has a part in it.
    let mut workers = Vec::new();
    for lease in ["backup", "mailer", "reports"] {
        let of_lease = |list: &str| -> Vec<Value> {
            let all = seen[list].as_array().unwrap();
            all.iter().filter(|entry| entry["lease"] == lease).cloned().collect()
        };
        let (work, grants) = (of_lease("work"), of_lease("grants"));
        assert!(work.len() > 100, "{lease}: {} units of work", work.len());
        let unit = |entry: &Value| Unit {
            lease: lease.to_owned(),
            token: entry["token"].as_u64().unwrap(),
            process: i32::try_from(entry["pid"].as_i64().unwrap()).unwrap(),
            start: entry["start_ns"].as_u64().unwrap(),
            end: entry["end_ns"].as_u64().unwrap(),
        };
        let history = History { units: work.iter().map(unit).collect(), ..History::default() };
        assert_eq!(history.check(), []);
        assert!(grants.windows(2).all(|pair| pair[0]["token"].as_u64() < pair[1]["token"].as_u64()));
        workers.extend(grants.iter().map(|grant| grant["member"].as_str().unwrap().to_owned()));
    }
    workers.sort();
    workers.dedup();
    assert!(workers.len() >= 4, "{workers:?}");
}

#[test]
fn the_picture_is_plain_text_and_ends_with_the_verdict() {
    let temporary = Temporary::new();
    // A store of the user's is neither needed nor touched.
    let mut command = temporary.demo(&[]);
    let own = tempfile::tempdir().unwrap();
    command.env("TENURE_STORE", format!("sqlite:{}", own.path().join("own.db").display()));
    let (code, out, err) = output(command);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    temporary.is_as_it_was();
    assert!(!own.path().join("own.db").exists());
    assert!(out.lines().all(|line| line.chars().count() <= 110), "{out}");
    assert!(!out.contains('\u{1b}'), "{out}");
    for part in ["kill -9 ", "kill -STOP ", "kill -TERM ", "(injected)", "exit code 76", "NOBODY WORKED FOR"]
    {
        assert!(out.contains(part), "{part:?} is missing in {out}");
    }
    let last = out.lines().last().unwrap();
    assert_eq!(last, "Verdict: no two ever worked at once, and each grant had a token above the one before.");
}

#[test]
fn work_without_a_lease_is_found_and_fails_the_demo() {
    let temporary = Temporary::new();
    let (code, out, _) = output(temporary.demo(&["--rogue"]));
    assert_eq!(code, Some(70), "{out}");
    temporary.is_as_it_was();
    let (_, verdict) = out.split_once("Verdict: UNSAFE").unwrap();
    let entries: Vec<_> = verdict.lines().filter(|line| line.contains("lease backup, token")).collect();
    assert!(entries.len() >= 2, "{verdict}");
    assert!(entries.iter().any(|entry| entry.contains("token 1,")), "the one: {verdict}");
    assert!(entries.iter().any(|entry| !entry.contains("token 1,")), "and the other: {verdict}");

    let (code, out, _) = output(temporary.demo(&["--rogue", "--json"]));
    assert_eq!(code, Some(70));
    let seen: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(seen["verdict"]["safe"], false);
    assert!(!seen["verdict"]["breaches"][0]["entries"].as_array().unwrap().is_empty());
}

#[test]
fn a_demo_that_is_interrupted_ends_its_members_and_removes_its_folder() {
    // While all start, in the midst of it, and while one is frozen.
    for (moment, signal, code) in [
        ("time", Signal::INT, 130),
        ("D works on mailer", Signal::TERM, 143),
        ("kill -STOP", Signal::INT, 130),
    ] {
        let temporary = Temporary::new();
        let mut demo = Running::start(temporary.demo(&[]));
        demo.stdout.wait_for(moment);
        demo.signal(signal);
        assert_eq!(demo.code(), Some(code), "{moment}");
        temporary.is_as_it_was();
        let said = demo.stderr.to_the_end();
        assert!(said.iter().any(|line| line.contains("all members were ended")), "{said:?}");
    }
}

#[test]
fn at_a_terminal_the_letters_have_colours_and_ctrl_c_ends_it_in_order() {
    let temporary = Temporary::new();
    let place = Place::new();
    let demo = format!("TMPDIR={} exec {} demo", temporary.0.path().display(), env!("CARGO_BIN_EXE_tenure"));
    for (script, coloured) in
        [(format!("TERM=vt100 {demo}"), true), (format!("NO_COLOR=1 TERM=vt100 {demo}"), false)]
    {
        let mut session = Session::start(&place, &script);
        session.shows("kill -STOP");
        session.press("\u{3}");
        session.shows("all members were ended");
        assert_eq!(session.ends(), Some(130));
        temporary.is_as_it_was();
        assert_eq!(session.screen().contains("\u{1b}[31mA\u{1b}[0m"), coloured, "{}", session.screen());
    }
}

#[test]
fn the_members_of_a_demo_that_is_killed_end_by_themselves() {
    let temporary = Temporary::new();
    let mut demo = Running::start(temporary.demo(&[]));
    demo.stdout.wait_for("kill -STOP");
    assert!(temporary.processes().len() >= 5);
    demo.signal(Signal::KILL);
    assert_eq!(demo.code(), None, "killed");
    eventually("all members to end", || temporary.processes().is_empty().then_some(()));
}

#[test]
fn a_member_that_falls_is_started_again_and_the_demo_goes_on() {
    let temporary = Temporary::new();
    let mut demo = Running::start(temporary.demo(&[]));
    demo.stdout.wait_for("E works on mailer");
    // Whoever waits for the lease of the commands: a `tenure run` that has no guardian below it.
    let line = |process: Pid| std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let runs =
        temporary.processes().into_iter().filter(|process| line(*process).starts_with(b"tenure\0run\0"));
    let children = |process: Pid| {
        std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default()
    };
    let waiter = runs.into_iter().find(|process| children(*process).is_empty()).unwrap();
    kill_process(waiter, Signal::KILL).unwrap();
    demo.stdout.wait_for("is started again");
    assert_eq!(demo.code(), Some(0));
    temporary.is_as_it_was();
}

#[test]
fn arguments_that_the_demo_can_not_take_are_refused() {
    let temporary = Temporary::new();
    for (arguments, hint) in [
        (&["--ttl", "10ms"][..], "between 1s and 10s"),
        (&["--ttl", "1h"], "between 1s and 10s"),
        (&["--ttl", "2"], "2s"),
        (&["--store", "sqlite:/srv/own.db"], "a store of its own"),
        (&["backup"], "backup"),
        (&["--loud"], "--loud"),
    ] {
        let (code, out, err) = output(temporary.demo(arguments));
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}: {err}");
        assert!(err.contains(hint), "{arguments:?}: {err}");
    }
    let mut command = bare_tenure();
    command.args(["--store", "sqlite:own.db", "demo"]);
    assert_eq!(output(command).0, Some(64));
    let (code, out, _) = output(temporary.demo(&["--help"]));
    assert_eq!(code, Some(0));
    assert!(out.contains("--json") && out.contains("70   unsafe") && !out.contains("--rogue"), "{out}");
    // Where no folder can be made, it says so.
    let mut command = bare_tenure();
    command.arg("demo").env("TMPDIR", "/no/such/folder");
    let (code, _, err) = output(command);
    assert_eq!(code, Some(71));
    assert!(err.contains("/no/such/folder"), "{err}");
    temporary.is_as_it_was();
}
