//! The demo's processes: started, told, ended. All of them are children of this process, and known by their ids.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::demo::evidence::Grant;
use crate::demo::trouble::Weather;
use crate::demo::{BACKUP, GRACE, SHARED, store_in};
use crate::program;
use crate::tree::{self, Tree};
use crate::witness::now;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `tenure run` of a command that works.
    Run,
    /// A program that holds several leases through the library.
    Library,
    /// One that works on what the others work on, and has no lease. For tests: the check is to find it.
    Rogue,
}

impl Role {
    /// The leases that it wants.
    pub(crate) const fn leases(self) -> &'static [&'static str] {
        match self {
            Self::Run | Self::Rogue => &[BACKUP],
            Self::Library => &SHARED,
        }
    }
}

/// A member of the fleet: a name, and the process that has it for now.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: char,
    pub(crate) role: Role,
    child: Child,
    /// Its standard input. Members end with it, also where they can't be bound to our life.
    orders: Option<ChildStdin>,
    log: PathBuf,
    started: u64,
    /// Its process has ended, in this way.
    status: Option<ExitStatus>,
    /// The script wants it to end, and will start it again.
    pub(crate) is_to_end: bool,
}

/// The members.
#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    ttl: Duration,
    members: Vec<Member>,
    tree: Tree,
    /// Processes started so far.
    starts: usize,
}

impl Fleet {
    /// None yet.
    pub(crate) fn new(folder: &Path, ttl: Duration) -> io::Result<Self> {
        let tree = Tree::new();
        // A guardian whose supervisor is killed becomes our child, so that its end is seen.
        tree::adopt_orphans()?;
        Ok(Self { folder: folder.to_owned(), ttl, members: Vec::new(), tree, starts: 0 })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many processes were started for them.
    pub(crate) const fn starts(&self) -> usize {
        self.starts
    }

    /// Starts a member.
    pub(crate) fn start(&mut self, name: char, role: Role) -> io::Result<()> {
        self.starts += 1;
        let started = now();
        let log = self.folder.join(format!("{name}.{}.log", self.starts));
        let output = File::create(&log)?;
        let mut child = self
            .command(name, role)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // So that Ctrl-C is for us alone.
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take();
        let member = Member { name, role, child, orders, log, started, status: None, is_to_end: false };
        match self.members.iter_mut().find(|member| member.name == name) {
            Some(before) => *before = member,
            None => self.members.push(member),
        }
        Ok(())
    }

    fn command(&self, name: char, role: Role) -> Command {
        let work = [program::DEMO_WORK.into(), self.folder.clone().into_os_string(), name.to_string().into()];
        let store = format!("sqlite:{}", percent_encoded(&store_in(&self.folder)));
        let milliseconds = |duration: Duration| format!("{}ms", duration.as_millis());
        // They are bound to the thread that starts them: that of `main`, which lives to the end.
        let mut command = program::again(program::DEMO_BOUND);
        command.arg(getpid().to_string());
        match role {
            Role::Run => {
                command.args(["run", "--store", &store, "--lease", BACKUP]);
                command.args(["--ttl", &milliseconds(self.ttl), "--grace", &milliseconds(GRACE), "--"]);
                command.arg(program::path()).args(work);
            }
            Role::Library => {
                command.arg(program::DEMO_MEMBER).args(&work[1..]).arg(self.ttl.as_millis().to_string());
            }
            Role::Rogue => {
                command.args(work);
                command.env(crate::run::LEASE_VARIABLE, BACKUP).env(crate::supervisor::TOKEN_VARIABLE, "1");
            }
        }
        command.env_remove("TENURE_LOG");
        command
    }

    fn member(&self, name: char) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    fn member_mut(&mut self, name: char) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.name == name)
    }

    /// Starts a member again, as a service manager would.
    pub(crate) fn restart(&mut self, name: char) -> io::Result<()> {
        match self.member(name).map(|member| member.role) {
            Some(role) => self.start(name, role),
            None => Ok(()),
        }
    }

    /// Announces that a member is to end by what is done to it next.
    pub(crate) fn expect_end(&mut self, name: char) {
        if let Some(member) = self.member_mut(name) {
            member.is_to_end = true;
        }
    }

    /// Sends a signal to the process of a member, unless it has ended.
    pub(crate) fn signal(&mut self, name: char, signal: Signal) {
        if let Some(member) = self.member_mut(name)
            && member.status().is_none()
        {
            let _ = kill_process(Pid::from_child(&member.child), signal);
        }
    }

    /// Tells a member what the network is like.
    pub(crate) fn tell(&mut self, name: char, weather: Weather) {
        if let Some(orders) = self.member_mut(name).and_then(|member| member.orders.as_mut()) {
            // One that is gone is seen to be.
            let _ = writeln!(orders, "{}", weather.name());
        }
    }

    /// How the process of a member has ended.
    pub(crate) fn status(&mut self, name: char) -> Option<ExitStatus> {
        self.member_mut(name)?.status()
    }

    /// Members whose process ended though the script does not want it.
    pub(crate) fn fallen(&mut self) -> Vec<(char, ExitStatus)> {
        self.members
            .iter_mut()
            .filter(|member| !member.is_to_end && member.role != Role::Rogue)
            .filter_map(|member| Some((member.name, member.status()?)))
            .collect()
    }

    /// Whether a grant is that of a member's present process. Of one that was killed it may look so for a while.
    pub(crate) fn has(&self, grant: Grant) -> bool {
        self.member(grant.member)
            .is_some_and(|member| member.status.is_none() && member.started < grant.began)
    }

    /// What the present process of a member has written.
    pub(crate) fn log(&self, name: char) -> String {
        self.member(name)
            .map_or_else(String::new, |member| std::fs::read_to_string(&member.log).unwrap_or_default())
    }

    /// Asks all to end.
    pub(crate) fn ask_to_end(&mut self) {
        let names: Vec<char> = self.members.iter().map(|member| member.name).collect();
        for name in names {
            self.expect_end(name);
            self.signal(name, Signal::TERM);
            // The stopped could not handle it.
            self.signal(name, Signal::CONT);
        }
    }

    /// Whether all have ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.members.iter_mut().all(|member| member.status().is_some()) && self.tree.has_ended()
    }

    /// Kills what lives, and waits until nothing does.
    fn kill(&mut self) {
        for member in &mut self.members {
            // Also those that are stopped. What stands below a supervisor is killed by its guardian; here as well
            // where orphans become our children.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
        while !self.tree.kill() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::mem::take(&mut self.tree).reap_all();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Member {
    fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }
}

/// A path as it stands in a URL.
fn percent_encoded(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let encode = |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_any_characters_names_the_same_file_in_a_url() {
        for path in ["/srv/a b%20?c#d/é.db", "/plain/file-1.db"] {
            let url = format!("sqlite:{}", percent_encoded(Path::new(path)));
            let options = tenure::SqliteOptions::from_url(&url).unwrap();
            assert_eq!(options.path(), Path::new(path), "{url}");
        }
    }
}
