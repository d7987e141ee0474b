//! A program that runs while it is wanted, and no longer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::time::eventually;

/// A program that writes to a log. Dropped, it is killed and gone.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Kills the program when this process ends without having done so: killed, or with the program in a static.
    watch: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it. Whatever it writes goes to the end of the log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let open = || File::options().create(true).append(true).open(log).expect("a log can be written");
        command.stdin(Stdio::null()).stdout(open()).stderr(open());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // Its standard input ends when the last process that has the other side open is gone, and that is we.
        let mut watch = Command::new("sh");
        watch.args(["-c", r#"trap "" INT TERM HUP; read -r _; kill -9 "$0""#]).arg(child.id().to_string());
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = watch.spawn().expect("there is a shell");
        Self { child, watch, log: log.to_owned() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the program is our child");
    }

    /// Stops it where it stands, and returns once it does.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).expect("the program is our child");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the program is our child").is_some()
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) {
        eventually("a program's end", || self.has_ended().then_some(()));
    }

    /// What it has written since it was started; before, too, if something else wrote to the same log.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // In this order: a number may be given to another process as soon as the child is reaped.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
