//! This executable, to be started again in another role.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The first argument that makes this program the guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The first argument that makes this program the guardian in a session of its own.
pub(crate) const APART_GUARDIAN: &str = "__guardian-apart";
/// The first argument that makes this program the shim.
pub(crate) const SHIM: &str = "__shim";
/// The first argument that makes this program bind itself to the demo's life and become a member.
pub(crate) const DEMO_BOUND: &str = "__demo-bound";
/// The first argument that makes this program the command of a member of the demo.
pub(crate) const DEMO_WORK: &str = "__demo-work";
/// The first argument that makes this program a member of the demo that uses the library.
pub(crate) const DEMO_MEMBER: &str = "__demo-member";
/// The first argument that makes this program hand a terminal back.
pub(crate) const FOREGROUND: &str = "__foreground";

/// This very executable in one of these roles, also if its file was replaced or removed meanwhile.
pub(crate) fn again(role: &str) -> Command {
    let mut command = Command::new(path());
    command.arg0("tenure").arg(role);
    command
}

/// The path by which this executable can start itself, and its children can.
pub(crate) fn path() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| "tenure".into())
    }
}
