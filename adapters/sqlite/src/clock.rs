//! The clock that all processes of a machine share, and what tells one boot from another.

use tenure_store::StoreError;
pub(crate) use tenure_store::clock::{micros, now, wall};

/// What the records' times are relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's name for this start of the machine.
    pub(crate) id: String,
    /// The time namespace: processes in different ones read different times from the same clock.
    pub(crate) time_namespace: i64,
}

impl Boot {
    /// This boot, in this process's time namespace.
    pub(crate) fn current() -> Result<Self, StoreError> {
        let id = boot_id().map_err(|error| {
            StoreError::unsupported(format!(
                "can't tell this start of the machine from the earlier ones ({error}), so leases of before a \
                 restart could not be told from current ones"
            ))
        })?;
        Ok(Self { id, time_namespace: time_namespace() })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_id() -> Result<String, String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    check_boot_id(&text)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_id() -> Result<String, String> {
    // There is no safe call for it. kern.bootsessionuuid is macOS's; the others at least have a start time.
    let mut last = String::new();
    for key in ["kern.bootsessionuuid", "kern.boottime"] {
        match std::process::Command::new("sysctl").args(["-n", key]).output() {
            Ok(output) if output.status.success() => {
                return check_boot_id(&String::from_utf8_lossy(&output.stdout));
            }
            Ok(output) => last = format!("sysctl {key}: {}", output.status),
            Err(error) => last = format!("sysctl {key}: {error}"),
        }
    }
    Err(last)
}

fn check_boot_id(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the kernel's boot id is empty".to_owned()),
        id => Ok(id.chars().take(128).collect()),
    }
}

/// The inode of the time namespace, zero where the kernel has none.
fn time_namespace() -> i64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/time").map_or(0, |meta| i64::try_from(meta.ino()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_is_the_same_whoever_asks() {
        assert_eq!(Boot::current(), Boot::current());
    }
}
