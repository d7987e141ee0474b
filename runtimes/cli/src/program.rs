//! This executable, to be started again in another role.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The first argument that makes this program the guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The first argument that makes this program the shim.
pub(crate) const SHIM: &str = "__shim";
/// The first argument that makes this program hand a terminal back.
pub(crate) const FOREGROUND: &str = "__foreground";

/// This very executable in one of these roles, also if its file was replaced or removed meanwhile.
pub(crate) fn again(role: &str) -> Command {
    let path = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| "tenure".into())
    };
    let mut command = Command::new(path);
    command.arg0("tenure").arg(role);
    command
}
