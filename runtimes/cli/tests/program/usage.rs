//! What a user sees: arguments, the environment of the command, exit codes, messages.

use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Place, Running, bare_tenure, lives, output};

/// A lease that somebody holds for as long as the returned program is kept.
fn held(place: &Place) -> Running {
    let command = ["run", "--lease", "job", "--", "sh", "-c", "echo started; exec sleep 1000"];
    let mut holder = Running::start(place.tenure(&command));
    holder.stdout.wait_for("started");
    holder
}

#[test]
fn the_command_runs_and_its_exit_code_is_ours() {
    let place = Place::new();
    for code in [0, 1, 7, 75, 255] {
        let command = place.tenure(&["run", "--lease", "job", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(output(command), (Some(code), String::new(), String::new()));
    }
}

#[test]
fn a_command_that_a_signal_ended_gives_128_and_the_signals_number_and_its_lease_back() {
    let place = Place::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("ABRT", 134), ("SEGV", 139), ("HUP", 129)] {
        let script = format!("kill -{signal} $$");
        // Without waiting: the one before has given the lease back.
        let options = ["run", "--lease", "job", "--no-wait", "--", "sh", "-c", &script];
        assert_eq!(output(place.tenure(&options)).0, Some(code), "SIG{signal}");
    }
}

#[test]
fn the_command_finds_lease_token_and_owner_in_its_environment_and_tokens_rise() {
    let place = Place::new();
    let mut last = 0;
    for _ in 0..3 {
        let script = r#"echo "$TENURE_LEASE|$TENURE_TOKEN|$TENURE_OWNER""#;
        let (code, out, _) = output(place.tenure(&["run", "--lease", "a b", "--", "sh", "-c", script]));
        assert_eq!(code, Some(0));
        let [lease, token, owner] = out.trim_end().split('|').collect::<Vec<_>>()[..] else {
            panic!("{out}")
        };
        assert_eq!(lease, "a b");
        let token: u64 = token.parse().expect("a decimal number");
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(owner.ends_with(".1") && owner.contains('/'), "{owner}");
    }
}

#[test]
fn everything_after_the_dashes_reaches_the_command_untouched() {
    let place = Place::new();
    let arguments = ["-v", "--", "--store", "x", "--help", "", "a b", "-- -", "\u{e4}\n"];
    let mut command = place.tenure(&["run", "--lease", "job", "--", "printf", "[%s]"]);
    command.args(arguments);
    let (code, out, err) = output(command);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, arguments.map(|argument| format!("[{argument}]")).concat());
}

#[test]
fn an_argument_that_is_no_utf_8_reaches_the_command_too() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let mut command = place.tenure(&["run", "--lease", "job", "--", "printf", "%s"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(command.output().unwrap().stdout, b"\xff\xfe");
}

#[test]
fn standard_input_reaches_the_command() {
    let place = Place::new();
    let mut command = place.tenure(&["run", "--lease", "job", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\nthe pipe").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through\nthe pipe");
}

#[test]
fn a_command_that_is_not_there_or_not_executable_gives_the_codes_of_a_shell() {
    let place = Place::new();
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--", "/no/such/command"]));
    assert_eq!(code, Some(127));
    assert!(err.contains("/no/such/command"), "{err}");
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--", "/etc/passwd"]));
    assert_eq!(code, Some(126));
    assert!(err.contains("/etc/passwd"), "{err}");
    // The lease was given back all the same.
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert_eq!(code, Some(0));
}

#[test]
fn a_command_line_that_was_meant_for_a_shell_gets_a_hint() {
    let place = Place::new();
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--", "echo a"]));
    assert_eq!(code, Some(127));
    assert!(err.contains("\"echo a\"") && err.contains("sh -c"), "{err}");
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--", ""]));
    assert_eq!(code, Some(127));
    assert!(err.contains("cannot run \"\""), "{err}");
}

#[test]
fn who_leaves_the_dashes_out_is_told_where_they_go() {
    for arguments in [&["run", "--lease", "job", "echo", "a"][..], &["run", "job"]] {
        let mut command = bare_tenure();
        command.args(arguments);
        let (code, _, err) = output(command);
        assert_eq!(code, Some(64));
        assert!(err.contains("tip: the command comes after two dashes"), "{err}");
    }
    let mut command = bare_tenure();
    command.args(["run", "--leese", "job", "--", "run"]);
    let (_, _, err) = output(command);
    assert!(!err.contains("two dashes"), "{err}");
}

#[test]
fn a_busy_lease_is_code_75_and_the_message_says_who_has_it() {
    let place = Place::new();
    let holder = held(&place);
    for limit in [&["--no-wait"][..], &["--wait", "50ms"]] {
        let mut command = place.tenure(&["run", "--lease", "job", "--ttl", "2s"]);
        command.args(limit).args(["--", "echo", "never"]);
        let (code, out, err) = output(command);
        assert_eq!(code, Some(75), "{err}");
        assert_eq!(out, "");
        assert!(err.contains("\"job\" is held") && err.contains(&format!(":{}:", holder.pid())), "{err}");
    }
}

#[test]
fn whoever_waits_says_for_whom_where_and_how_long_and_when_it_is_over() {
    let place = Place::new();
    let holder = held(&place);
    let mut waiter = Running::start(place.tenure(&[
        "run",
        "--lease",
        "job",
        "--wait",
        "5m",
        "--",
        "echo",
        "it is my turn",
    ]));
    let notice = waiter.stderr.wait_for("is held by");
    for part in [
        "\"job\"",
        &format!("process {}", holder.pid()),
        "waiting at most 5m",
        &place.store(),
        "unless it is renewed",
    ] {
        assert!(notice.contains(part), "{part} is missing in {notice}");
    }
    holder.signal(Signal::TERM);
    waiter.stderr.wait_for("got lease \"job\", token ");
    assert_eq!(waiter.code(), Some(0));
    assert_eq!(waiter.stdout.to_the_end(), ["it is my turn"]);
}

#[test]
fn a_signal_while_waiting_ends_the_program_at_once_and_leaves_no_candidate_behind() {
    let place = Place::new();
    let holder = held(&place);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut waiter = Running::start(place.tenure(&["run", "--lease", "job", "--", "true"]));
        waiter.waits();
        waiter.signal(signal);
        assert_eq!(waiter.code(), Some(code));
    }
    holder.signal(Signal::TERM);
    let (code, ..) = output(place.tenure(&["run", "--lease", "job", "--wait", "30s", "--", "true"]));
    assert_eq!(code, Some(0));
}

#[test]
fn arguments_that_make_no_sense_are_code_64() {
    let place = Place::new();
    for (arguments, hint) in [
        (&["run"][..], "--lease"),
        (&["run", "--lease", "job"], "COMMAND"),
        (&["run", "--lease", "job", "--"], "COMMAND"),
        (&["run", "--lease", "job", "--ttl", "15", "--", "true"], "15s"),
        (&["run", "--lease", "job", "--ttl", "1M", "--", "true"], "\"M\""),
        (&["run", "--lease", "job", "--ttl", "0s", "--", "true"], "ttl"),
        (&["run", "--lease", "job", "--ttl=-1s", "--", "true"], "--ttl"),
        (&["run", "--lease", "job", "--ttl", "1ms", "--", "true"], "ttl"),
        (&["run", "--lease", "job", "--ttl", "100d", "--", "true"], "ttl"),
        (&["run", "--lease", "job", "--ttl", "109500d", "--", "true"], "ttl"),
        (&["run", "--lease", "job", "--ttl", "18446744073709551615ms", "--", "true"], "ttl"),
        (&["run", "--lease", "job", "--ttl", "18446744073709551615d", "--", "true"], "--ttl"),
        (&["run", "--lease", "job", "--max-hold", "0s", "--", "true"], "zero"),
        (&["run", "--lease", "", "--", "true"], "empty"),
        (&["run", "--lease", "job", "--wait", "1s", "--no-wait", "--", "true"], "--no-wait"),
        (&["run", "--lease", "job", "--on-lost", "pray", "--", "true"], "pray"),
        (&["release", "job"], "--force"),
        (&["release", "job", "--force", "--now"], "--now"),
        (&["frobnicate"], "frobnicate"),
        (&[], "Usage"),
    ] {
        let (code, out, err) = output(place.tenure(arguments));
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}: {err}");
        assert!(err.contains(hint), "{arguments:?}: {err}");
        // The store is in the environment, and need not be given.
        assert!(arguments.is_empty() || !err.contains("--store"), "{arguments:?}: {err}");
    }
    let mut command = place.tenure(&["leases"]);
    command.env("TENURE_LOG", "tenure=loud");
    assert_eq!(output(command).0, Some(64));
}

#[test]
fn help_and_version_go_to_standard_output_and_name_the_exit_codes() {
    let (code, out, err) = output({
        let mut command = bare_tenure();
        command.args(["run", "--help"]);
        command
    });
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for part in ["--on-lost", "--grace", "[default: 15s]", "75", "busy", "TENURE_TOKEN"] {
        assert!(out.contains(part), "{part} is missing in {out}");
    }
    let mut command = bare_tenure();
    command.arg("--version");
    assert_eq!(output(command).0, Some(0));
}

#[test]
fn without_a_home_there_is_no_store_and_the_message_says_what_to_do() {
    let mut command = bare_tenure();
    command.args(["run", "--lease", "job", "--", "echo", "never"]);
    let (code, out, err) = output(command);
    assert_eq!((code, out.as_str()), (Some(78), ""));
    assert!(err.contains("HOME") && err.contains("XDG_STATE_HOME"), "{err}");
}

#[test]
fn without_a_store_given_the_users_own_is_used() {
    let place = Place::new();
    let mut command = bare_tenure();
    command.args(["run", "--lease", "job", "--", "true"]).env("HOME", place.path(""));
    assert_eq!(output(command).0, Some(0));
    assert!(place.path(".local/state/tenure/tenure.db").exists());

    let mut command = bare_tenure();
    command
        .args(["run", "--lease", "job", "--", "true"])
        .env("TENURE_STORE", "")
        .env("XDG_STATE_HOME", place.path("s"));
    assert_eq!(output(command).0, Some(0), "an empty variable counts as not set");
    assert!(place.path("s/tenure/tenure.db").exists());
}

#[test]
fn a_program_that_keeps_its_leases_in_a_store_by_name_gets_all_that_the_store_can_do() {
    let place = Place::new();
    // The command inherits the lock that proves it alive to others.
    let script = "ls -l /proc/self/fd | grep -c '[.]live/'";
    let (code, out, err) =
        output(place.tenure(&["--store", "embedded:app", "run", "--lease", "job", "--", "sh", "-c", script]));
    assert_eq!((code, out.as_str()), (Some(0), "1\n"), "{err}");
    let (_, _, err) = output(place.tenure(&["--store", "Embedded:app", "leases"]));
    assert!(err.contains("/app") && err.contains(".db"), "{err}");
    let (code, _, err) = output(place.tenure(&["--store", "embedded:", "leases"]));
    assert_eq!(code, Some(78), "{err}");
}

#[test]
fn a_store_that_cannot_be_used_is_refused_with_its_name() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder.db")).unwrap();
    let folder = format!("sqlite:{}", place.path("folder.db").display());
    for (url, hint) in [
        (folder.as_str(), "it is a folder"),
        ("sqlite:/no/such/folder/leases.db", "create the folder"),
        ("sqlite:", "path"),
        ("memory:", "one process"),
        ("redis-secret-password", "scheme"),
        ("gopher://user:secret@host", "gopher"),
    ] {
        let mut command = place.tenure(&["run", "--lease", "job", "--no-wait", "--store", url]);
        command.args(["--", "echo", "never"]);
        let (code, out, err) = output(command);
        assert_eq!((code, out.as_str()), (Some(78), ""), "{url}: {err}");
        assert!(err.contains(hint) && !err.contains("secret"), "{url}: {err}");
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_told_of_once() {
    let place = Place::new();
    let mut command = place.tenure(&["leases"]);
    // Nobody listens at this port.
    command.env("TENURE_STORE", "redis://127.0.0.1:1");
    let (code, _, err) = output(command);
    assert_eq!(code, Some(69), "{err}");
    assert_eq!(err.matches("can't connect to 127.0.0.1:1").count(), 1, "{err}");
}

#[test]
fn a_command_that_held_for_its_longest_time_is_asked_to_end_and_then_killed() {
    let place = Place::new();
    for (script, ended) in [
        ("trap 'echo asked; exit 3' TERM; echo started; while :; do sleep 0.01; done", true),
        ("trap '' TERM; echo started; while :; do sleep 0.01; done", false),
    ] {
        let options = ["run", "--lease", "job", "--max-hold", "300ms", "--grace", "200ms", "--"];
        let mut command = place.tenure(&options);
        command.args(["sh", "-c", script]);
        let (code, out, err) = output(command);
        assert_eq!(code, Some(77), "{err}");
        assert_eq!(out.contains("asked"), ended, "{out}");
        assert!(err.contains("--max-hold"), "{err}");
    }
}

/// A shell script that leaves a process behind which does not listen to SIGTERM, and says its number.
fn leaving_one_behind(place: &Place, grace: &str) -> Running {
    let script = r#"
        sh -c 'trap "" TERM; echo $$; : >"$0"; while :; do sleep 0.01; done' "$0" &
        while [ ! -e "$0" ]; do sleep 0.01; done
        exit 5"#;
    let mut command = place.tenure(&["run", "--lease", "job", "--grace", grace, "--", "sh", "-c", script]);
    command.arg(place.path("ready"));
    Running::start(command)
}

#[test]
fn what_a_command_leaves_running_keeps_the_lease_until_it_has_ended() {
    let place = Place::new();
    let mut holder = leaving_one_behind(&place, "1h");
    holder.stderr.wait_for("left 1 process(es) running");
    let left = Pid::from_raw(holder.stdout.so_far()[0].parse().unwrap()).unwrap();
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert_eq!(code, Some(75), "still held: {err}");
    kill_process(left, Signal::KILL).unwrap();
    assert_eq!(holder.code(), Some(5), "the command's own");
    let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn what_a_command_leaves_running_is_killed_after_the_grace() {
    let place = Place::new();
    let mut holder = leaving_one_behind(&place, "100ms");
    assert_eq!(holder.code(), Some(5));
    let left = Pid::from_raw(holder.stdout.to_the_end()[0].parse().unwrap()).unwrap();
    assert!(!lives(left));
}

#[test]
fn as_the_first_process_of_a_container_it_works_and_a_foreign_proc_is_refused() {
    let unshare = |options: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork"]).args(options);
        command
    };
    if !unshare(&["true"]).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: namespaces can't be made here");
        return;
    }
    let place = Place::new();
    let run = |options: &[&str], script: &str| {
        let mut command = unshare(options);
        command.arg(env!("CARGO_BIN_EXE_tenure")).args([
            "run",
            "--lease",
            "job",
            "--no-wait",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command.env("TENURE_STORE", place.url());
        output(command)
    };
    let (code, out, err) = run(&["--mount-proc"], "setsid sleep 1000 & echo ran; exit 3");
    assert_eq!((code, out.as_str()), (Some(3), "ran\n"), "{err}");
    assert!(err.contains("left 1 process(es) running"), "{err}");

    let (code, out, err) = run(&[], "echo never");
    assert_eq!((code, out.as_str()), (Some(71), ""), "{err}");
    assert!(err.contains("/proc"), "{err}");
}

crate::place::also_on_servers! {
    a_command_that_a_signal_ended_gives_128_and_the_signals_number_and_its_lease_back
    the_command_finds_lease_token_and_owner_in_its_environment_and_tokens_rise
    a_busy_lease_is_code_75_and_the_message_says_who_has_it
    whoever_waits_says_for_whom_where_and_how_long_and_when_it_is_over
    a_signal_while_waiting_ends_the_program_at_once_and_leaves_no_candidate_behind
    a_command_that_held_for_its_longest_time_is_asked_to_end_and_then_killed
    what_a_command_leaves_running_keeps_the_lease_until_it_has_ended
    what_a_command_leaves_running_is_killed_after_the_grace
}
