//! All the processes that a command has started, seen from the process that adopts its orphans.
//!
//! Both the guardian and, should that die, its supervisor are child subreapers: whatever loses its parent below
//! them becomes their child. So a living descendant always has a living ancestor (or itself) among our children,
//! and when none of our children lives, nothing that the command started does, in its process group or out.

use std::io;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
};

/// Makes this process the parent of all orphans among its descendants.
///
/// # Errors
/// The operating system's; or that `/proc`, in which they are found, speaks of other processes than ours.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let this = rustix::process::getpid();
        if std::fs::read_link("/proc/self")?.as_os_str() != this.to_string().as_str() {
            return Err(io::Error::other(
                "/proc shows the processes of another namespace; mount one for this namespace",
            ));
        }
        rustix::process::set_child_subreaper(Some(this))?;
    }
    Ok(())
}

/// Asks the system to send this process a signal when its parent dies.
///
/// It is sent when the *thread* that started this process ends; the parent has to keep that one.
pub(crate) fn signal_on_death_of_parent(signal: Signal) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
    Ok(())
}

/// Whether this child of ours has ended. It is not reaped: its number stays its own.
fn has_ended(child: Pid) -> bool {
    !matches!(ending(child), Ok(None))
}

/// How this child of ours has ended, without reaping it; `None` while it lives.
pub(crate) fn ending(child: Pid) -> Result<Option<WaitIdStatus>, Errno> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(child), options))
}

/// Buries a child that has ended; one that lives is left alone.
fn reap(child: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(child), options));
}

/// Sends a signal to a child that has not been reaped. If it may not be sent, nothing can be done about it.
pub(crate) fn signal_one(child: Pid, signal: Signal) {
    let _ = kill_process(child, signal);
}

/// The guardians that this process has started and not buried. Each sees to the tree of its own command, and is of
/// none here: what else becomes our child has lost its guardian.
static GUARDIANS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn guardians() -> MutexGuard<'static, Vec<Pid>> {
    GUARDIANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a guardian. It belongs to no tree of this process.
pub(crate) fn start_guardian(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    // Nobody looks at our children while there is one of which it is not known what it is.
    let mut guardians = guardians();
    let guardian = start()?;
    guardians.push(Pid::from_child(&guardian));
    Ok(guardian)
}

/// Waits for the end of a guardian, and buries it.
pub(crate) fn bury_guardian(guardian: &mut Child) {
    let number = Pid::from_child(guardian);
    let _ = guardian.wait();
    guardians().retain(|guardian| *guardian != number);
}

/// What a command has started.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The command's process group, led by the command. Its leader is not reaped while the tree is in use, so
    /// that the number stays the group's.
    group: Option<Pid>,
    /// Children that this process had before: whoever became `tenure` by `exec` brings his own along.
    strangers: Vec<Pid>,
}

impl Tree {
    /// A tree to be, in a process that has all the children by now that it has for other reasons.
    pub(crate) fn new() -> Self {
        Self { group: None, strangers: children() }
    }

    /// Names the command's process group.
    pub(crate) fn plant(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// The command's process group, once there is one.
    pub(crate) const fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An empty group, or one of another user's processes: nothing that could be done about it.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends a signal to the command's process group and to those who have left it and lost their parent.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal_group(signal);
        self.strays().into_iter().for_each(|stray| signal_one(stray, signal));
    }

    /// Those that have left the command's process group and lost their parent, and live.
    pub(crate) fn strays(&self) -> Vec<Pid> {
        let is_stray = |child: &Pid| group_of(*child) != self.group;
        self.living().into_iter().filter(is_stray).collect()
    }

    /// Those children that live, the command among them.
    pub(crate) fn living(&self) -> Vec<Pid> {
        self.children().into_iter().filter(|child| !has_ended(*child)).collect()
    }

    /// Kills everything; true once nothing lives. To be repeated until then: a process takes a moment to die,
    /// and its children become ours only by its death.
    pub(crate) fn kill(&self) -> bool {
        self.signal_group(Signal::KILL);
        self.living().into_iter().for_each(|child| signal_one(child, Signal::KILL));
        self.has_ended()
    }

    /// Whether nothing of it lives any more.
    pub(crate) fn has_ended(&self) -> bool {
        let before = self.children();
        // What lost its parent between the listing and our look at that parent is in a second listing.
        before.iter().all(|child| has_ended(*child))
            && self.children().iter().all(|child| before.contains(child))
            && is_empty(self.group)
    }

    /// Buries the dead, apart from the command itself.
    pub(crate) fn reap_orphans(&self) {
        for child in self.children() {
            if Some(child) != self.group {
                reap(child);
            }
        }
    }

    /// Buries all the dead. The group's number may be used again afterwards.
    pub(crate) fn reap_all(self) {
        self.children().into_iter().chain(self.group).for_each(reap);
    }

    fn children(&self) -> Vec<Pid> {
        let guardians = guardians();
        let is_ours = |child: &Pid| !self.strangers.contains(child) && !guardians.contains(child);
        children().into_iter().filter(is_ours).collect()
    }
}

/// Whether nothing lives in the process group. On Linux what is known of our children says it already.
#[cfg(target_os = "linux")]
fn is_empty(_group: Option<Pid>) -> bool {
    true
}

/// Without adopted orphans the group is all that can be asked. Its dead leader, which is not reaped, does not count
/// as somebody who could get a signal.
#[cfg(not(target_os = "linux"))]
fn is_empty(group: Option<Pid>) -> bool {
    group.is_none_or(|group| has_ended(group) && rustix::process::test_kill_process_group(group).is_err())
}

/// Our children, the dead that have not been reaped among them.
#[cfg(target_os = "linux")]
fn children() -> Vec<Pid> {
    listed_children().unwrap_or_else(|_| found_children())
}

/// From the kernel's list. It is complete because nothing is reaped while it is read.
#[cfg(target_os = "linux")]
fn listed_children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        children.extend(list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

/// From a look at every process, for kernels without that list.
#[cfg(target_os = "linux")]
fn found_children() -> Vec<Pid> {
    let this = rustix::process::getpid();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .filter(|pid| parent(*pid) == Some(this))
        .collect()
}

/// The parent of a process; `None` if there is no such process, or if it can't be known.
#[cfg(target_os = "linux")]
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    stat(pid, 1)
}

/// The process group of a process; `None` if there is no such process, or if its group has no number here.
///
/// The first process of a container may be in a group of the world outside. The system call says 0 then, which
/// rustix takes for impossible; so the kernel is asked in this way.
#[cfg(target_os = "linux")]
pub(crate) fn group_of(pid: Pid) -> Option<Pid> {
    stat(pid, 2)
}

/// A process id among the fields of `/proc/PID/stat`, counted from the state on.
#[cfg(target_os = "linux")]
fn stat(pid: Pid, field: usize) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything; the other fields follow the last bracket.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    Pid::from_raw(fields.split_ascii_whitespace().nth(field)?.parse().ok()?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn group_of(pid: Pid) -> Option<Pid> {
    rustix::process::getpgid(Some(pid)).ok()
}

/// Nothing is known of them here; the command's process group stands for all.
#[cfg(not(target_os = "linux"))]
fn children() -> Vec<Pid> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn parent(_pid: Pid) -> Option<Pid> {
    None
}
