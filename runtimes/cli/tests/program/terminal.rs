//! `tenure run` at a terminal: the command has the foreground, and the shell has it back afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::harness::{Place, attentive, eventually, witness_program};

/// A shell script at a terminal of its own, with us at the keyboard.
pub(crate) struct Session {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Session {
    /// Runs a script in which `$T` is `tenure run --lease job --`, `$E` is `tenure every` with a period of 200 ms, and `$W`
    /// the witness. The shell that runs it leads
    /// the session and has no job control, so that all it starts is in its own process group.
    pub(crate) fn start(place: &Place, script: &str) -> Self {
        Self::shell(place, &["sh", "-c", script])
    }

    fn shell(place: &Place, shell: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let terminal: OwnedFd = ioctl_tiocgptpeer(&keyboard, flags).unwrap();
        let end = || Stdio::from(terminal.as_fd().try_clone_to_owned().unwrap());
        let child = attentive(witness_program())
            .arg("session")
            .args(shell)
            .env("TENURE_STORE", place.url())
            .env("HOME", place.path(""))
            .env("T", format!("{} run --lease job --", env!("CARGO_BIN_EXE_tenure")))
            .env("E", format!("{} every 200ms --name job --", env!("CARGO_BIN_EXE_tenure")))
            .env("W", witness_program())
            .env("PS1", "prompt> ")
            .env("TERM", "dumb")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut source = File::from(keyboard.try_clone().unwrap());
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            // Ends with an error once nobody has the terminal open any more.
            while let Ok(bytes) = source.read(&mut buffer) {
                shown.lock().unwrap().extend_from_slice(&buffer[..bytes]);
            }
        });
        Self { keyboard: keyboard.into(), screen, child }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    pub(crate) fn shows(&self, text: &str) {
        let found = std::panic::catch_unwind(|| {
            eventually(text, || self.screen().contains(text).then_some(()));
        });
        assert!(found.is_ok(), "{text:?} is not on the screen: {:?}", self.screen());
    }

    pub(crate) fn ends(&mut self) -> Option<i32> {
        eventually("the session's end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a shell does at the end of a script to show that the terminal is its own again, in the old modes.
const CHECK: &str = r#"; echo "code $?"; [ "$(stty -g)" = "$MODES" ] && echo modes restored; read LINE; echo "read $LINE"; exit 9"#;

fn checked(script: &str) -> String {
    format!("MODES=$(stty -g); {script}{CHECK}")
}

impl Session {
    fn is_restored(&mut self, code: i32) {
        self.shows(&format!("code {code}"));
        self.shows("modes restored");
        // If the shell did not have the foreground it could not read.
        self.press("a line\n");
        self.shows("read a line");
        assert_eq!(self.ends(), Some(9));
    }
}

#[test]
fn the_command_has_the_foreground_and_the_shell_has_it_back_afterwards() {
    let place = Place::new();
    let mut session = Session::start(&place, &checked("$T $W foreground"));
    session.shows("foreground: yes");
    session.is_restored(0);
}

#[test]
fn commands_at_ticks_write_to_the_terminal_and_leave_the_keyboard_to_the_program() {
    let place = Place::new();
    let ask = r#"$E sh -c 'cat; echo "tick $TENURE_TICK"; (: < /dev/tty) || echo no terminal to ask at'"#;
    let script = format!("trap : INT; stty tostop; {ask}; CODE=$?; stty -tostop; (exit $CODE)");
    let mut session = Session::start(&place, &checked(&script));
    session.shows("no terminal to ask at");
    session.shows("tick 3");
    session.press("\u{3}");
    session.shows("SIGINT: timer \"job\" is not followed any more");
    session.shows("code 130");
    assert_eq!(place.outcomes(1), ["succeeded"]);
    session.is_restored(130);
}

#[test]
fn the_command_reads_what_is_typed() {
    let place = Place::new();
    let mut session = Session::start(&place, &checked("$T sh -c 'echo ask; read X; echo got $X; exit 4'"));
    session.shows("ask");
    session.press("an answer\n");
    session.shows("got an answer");
    session.is_restored(4);
}

#[test]
fn ctrl_c_reaches_the_command() {
    let place = Place::new();
    let script =
        r#"$T sh -c 'trap "echo interrupted; exit 5" INT; echo ready; while :; do sleep 0.01; done'"#;
    let mut session = Session::start(&place, &checked(script));
    session.shows("ready");
    session.press("\x03");
    session.shows("interrupted");
    session.is_restored(5);
}

#[test]
fn ctrl_z_does_not_suspend_the_command() {
    let place = Place::new();
    let script = r#"$T sh -c 'echo ready; read X; echo got $X'"#;
    let mut session = Session::start(&place, &checked(script));
    session.shows("ready");
    session.press("\x1a");
    session.shows("can't be suspended");
    session.press("still here\n");
    session.shows("got still here");
    session.is_restored(0);
}

#[test]
fn a_terminal_that_stops_whoever_writes_in_the_background_does_not_stop_the_supervisor() {
    let place = Place::new();
    let script = r#"stty tostop; MODES=$(stty -g); $T sh -c 'echo ready; read X; echo got $X'"#;
    let mut session = Session::start(&place, &checked(script));
    session.shows("ready");
    // There would be something to say now, but not at this price.
    session.press("\x1a");
    session.press("still here\n");
    session.shows("got still here");
    assert!(!session.screen().contains("suspended"), "{}", session.screen());
    session.is_restored(0);
}

#[test]
fn what_could_not_be_said_while_the_command_had_the_terminal_is_said_afterwards() {
    let place = Place::new();
    let run = r#"${T% --} --max-hold 300ms --"#;
    let script = format!(
        "stty tostop; MODES=$(stty -g); {run} sh -c 'trap \"exit 3\" TERM; while :; do sleep 0.01; done'"
    );
    let mut session = Session::start(&place, &format!("{script}{CHECK}"));
    session.shows("which is --max-hold");
    session.is_restored(77);
}

#[test]
fn a_full_screen_editor_works_under_a_lease() {
    let place = Place::new();
    if !std::path::Path::new("/usr/bin/vim").exists() {
        println!("skipped: there is no vim");
        return;
    }
    let file = place.path("edited");
    let mut session = Session::start(&place, &checked(&format!("$T vim -u NONE -N {}", file.display())));
    session.shows("edited");
    // Suspending it shows in a line of ours, and leaves it working.
    session.press("ihello\x1b\x1a");
    session.shows("can't be suspended");
    session.press(":wq\r");
    session.is_restored(0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "hello\n");
}

#[test]
fn modes_that_the_command_leaves_behind_are_undone_however_it_ends() {
    let place = Place::new();
    let mut session = Session::start(&place, &checked("$T sh -c 'stty raw -echo'"));
    session.is_restored(0);

    let script = r#"$T sh -c 'stty -echo -icanon; echo "ready $$ $PPID"; while :; do sleep 0.01; done'"#;
    for (victim, code) in [(0, 137), (1, 71)] {
        let mut session = Session::start(&place, &checked(script));
        session.shows("ready");
        let victim = eventually("the processes' numbers", || {
            let screen = session.screen();
            let line = screen.split("ready ").nth(1)?.split_once("\r\n")?.0;
            Pid::from_raw(line.split(' ').nth(victim)?.parse().ok()?)
        });
        kill_process(victim, Signal::KILL).unwrap();
        session.is_restored(code);
    }
}

#[test]
fn a_script_whose_supervisor_is_killed_can_go_on_reading() {
    let place = Place::new();
    let script = r#"
        sh -c 'echo "number $$"; exec $T sh -c "echo ready; sleep 1000"'
        echo "code $?"
        until [ "$($W foreground)" = "foreground: yes" ]; do sleep 0.01; done
        read LINE; echo "read $LINE"; exit 9"#;
    let mut session = Session::start(&place, script);
    session.shows("ready\r\n");
    let supervisor = eventually("the supervisor's number", || {
        let screen = session.screen();
        Pid::from_raw(screen.split("number ").nth(1)?.split_once("\r\n")?.0.parse().ok()?)
    });
    kill_process(supervisor, Signal::KILL).unwrap();
    session.shows("code 137");
    session.shows("its command was killed");
    session.press("a line\n");
    session.shows("read a line");
    assert_eq!(session.ends(), Some(9));
}

#[test]
fn an_interactive_shell_works_under_a_lease() {
    let place = Place::new();
    let mut session = Session::start(&place, &checked("$T sh -i"));
    session.shows("prompt>");
    session.press("echo $((6*7))\n");
    session.shows("42");
    session.press("sh -c 'trap \"exit 3\" INT; echo sleeps; while :; do sleep 0.01; done'\n");
    session.shows("sleeps\r\n");
    session.press("\x03");
    session.press("echo again $?\n");
    session.shows("again 3");
    session.press("exit 6\n");
    session.is_restored(6);
}

#[test]
fn a_shell_with_job_control_that_is_killed_with_its_jobs_leaves_the_terminal_to_us() {
    let place = Place::new();
    // The foreground belongs to a group of the shell's job then, not to that of the command.
    let script = r#"$T sh -ic 'echo "ready $$"; sh -c "echo job runs; sleep 1000"'"#;
    let mut session = Session::start(&place, &checked(script));
    session.shows("job runs\r\n");
    let shell = eventually("the shell's number", || {
        let screen = session.screen();
        Pid::from_raw(screen.split("ready ").nth(1)?.split_once("\r\n")?.0.parse().ok()?)
    });
    kill_process(shell, Signal::KILL).unwrap();
    session.is_restored(137);
}

#[test]
fn a_job_in_the_background_waits_for_the_terminal_and_gets_it_with_the_foreground() {
    let place = Place::new();
    if !std::path::Path::new("/bin/bash").exists() {
        println!("skipped: there is no bash");
        return;
    }
    let mut session = Session::shell(&place, &["bash", "--norc", "--noprofile", "-i"]);
    session.shows("prompt>");
    session.press("$T sh -c 'echo begins; read X; echo got $X' &\n");
    session.shows("begins\r\n");
    session.shows("wants the terminal");
    session.press("fg\n");
    session.shows("sh -c 'echo begins; read X; echo got $X'\r\n");
    session.press("late answer\n");
    session.shows("got late answer");
    session.press("echo code $?\n");
    session.shows("code 0");
    session.press("exit 0\n");
    assert_eq!(session.ends(), Some(0));
}

#[test]
fn whoever_reads_the_commands_output_has_the_keyboard_until_the_command_wants_it() {
    let place = Place::new();
    let enough = place.path("enough");
    let work =
        format!("echo output; until [ -e {} ]; do sleep 0.01; done; read X; echo got $X", enough.display());
    let pager = "read OUTPUT; read KEY </dev/tty; echo pager has $OUTPUT and $KEY; cat";
    let mut session = Session::start(&place, &checked(&format!("$T sh -c '{work}' | sh -c '{pager}'")));
    session.press("a key\n");
    session.shows("pager has output and a key");
    std::fs::write(enough, "").unwrap();
    session.press("an answer\n");
    session.shows("got an answer");
    session.is_restored(0);
}

#[test]
fn a_command_whose_input_is_no_terminal_can_ask_at_the_terminal() {
    let place = Place::new();
    let script = "echo data | $T sh -c 'read X; echo ask; read Y </dev/tty; echo got $X and $Y'";
    let mut session = Session::start(&place, &checked(script));
    session.shows("ask");
    session.press("an answer\n");
    session.shows("got data and an answer");
    session.is_restored(0);
}

#[test]
fn the_end_of_the_terminal_ends_the_command() {
    let place = Place::new();
    let script = "$T sh -c 'echo \"ready $$\"; sleep 1000'";
    let session = Session::start(&place, script);
    session.shows("ready");
    let command = eventually("the command's number", || {
        let screen = session.screen();
        Pid::from_raw(screen.split("ready ").nth(1)?.split_once("\r\n")?.0.parse().ok()?)
    });
    // The session's leader dies, as with a lost connection: its processes get SIGHUP.
    drop(session);
    eventually("the command's end", || (!crate::harness::lives(command)).then_some(()));
    let (code, ..) =
        crate::harness::output(place.tenure(&["run", "--lease", "job", "--wait", "30s", "--", "true"]));
    assert_eq!(code, Some(0));
}
