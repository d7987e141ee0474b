//! This executable, to be started again in another role.

use std::path::PathBuf;

/// The first argument that makes this program the guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The first argument that makes this program the shim.
pub(crate) const SHIM: &str = "__shim";
/// The first argument that makes this program hand a terminal back.
pub(crate) const FOREGROUND: &str = "__foreground";

/// Where this very executable is found, also if its file was replaced or removed meanwhile.
pub(crate) fn path() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "tenure".into())
}
