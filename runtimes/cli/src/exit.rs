//! The exit codes of `tenure`, in one place. They are part of its interface.
//!
//! Where `sysexits.h` has a meaning that fits, its number is used. `tenure run` otherwise ends with the
//! command's own code, or with 128 plus the number of the signal that ended the command. `tenure every` ends with 128
//! plus the number of the signal that asked it to end, and so does `tenure worker`; what became of their commands is not
//! told by their codes.

use std::process::ExitCode;

use rustix::process::Signal;

use crate::protocol::Ending;
use crate::say;

/// The arguments make no sense.
pub(crate) const USAGE: u8 = 64;
/// There is no such instance.
pub(crate) const NO_INSTANCE: u8 = 68;
/// The store can't be reached, or did not answer in time.
pub(crate) const UNREACHABLE: u8 = 69;
/// The check of `tenure demo` failed: two worked at once, or a token was not above the one before.
pub(crate) const UNSAFE: u8 = 70;
/// A part of `tenure` itself failed, for example a process could not be started.
pub(crate) const INTERNAL: u8 = 71;
/// Somebody else has the lease, and waiting was not wanted or took too long; nothing was run. Or an instance was not
/// drained in time.
pub(crate) const BUSY: u8 = 75;
/// The lease was lost while the command ran, which was therefore stopped.
pub(crate) const LOST: u8 = 76;
/// The command ran for the longest time that was allowed and was stopped.
pub(crate) const MAX_HOLD: u8 = 77;
/// The configuration, or the store itself, makes it impossible; trying again does not help.
pub(crate) const REFUSED: u8 = 78;
/// The command was found but can't be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// What `--help` says of them.
pub(crate) const HELP: &str = "\
Exit codes:
  of the command      its own, or 128+n when signal n ended it (run)
  64   usage: the arguments make no sense
  68   there is no such instance (drain)
  69   unreachable: the store can't be reached or does not answer
  70   unsafe: the check of the demo failed
  71   a process could not be started, or another part of tenure failed
  75   busy: somebody else has the lease, or an instance was not drained in time (drain --wait)
  76   lost: the lease was lost, and the command was stopped because of it
  77   the command ran for --max-hold and was stopped
  78   refused: the configuration or the store makes it impossible
  126  the command can't be executed
  127  the command was not found
  128+n  signal n came while waiting for the lease (run), or ended the program (every, worker, status)";

/// The code for an end by a signal, as a shell has it.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    Ending::Signal(signal.as_raw()).code()
}

/// Says what went wrong inside, and gives the code for it.
pub(crate) fn internal(what: &str) -> ExitCode {
    say::line(format_args!("{what}"));
    ExitCode::from(INTERNAL)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::HELP;

    #[test]
    fn the_guide_lists_the_codes_that_the_help_lists() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/command_line.md");
        let guide = std::fs::read_to_string(page).unwrap();
        let (_, listed) = guide.split_once("| code | is |").unwrap();
        let codes = |text: &str| -> BTreeSet<u8> {
            let firsts = text.lines().filter_map(|line| line.trim_matches(['|', ' ']).split("  ").next());
            let firsts = firsts.map(|line| line.split('|').next().unwrap_or_default());
            firsts
                .flat_map(|first| first.split([' ', ',', '+']))
                .filter_map(|word| word.parse().ok())
                .collect()
        };
        assert_eq!(codes(listed), codes(HELP));
        assert_eq!(codes(HELP).len(), 12);
    }
}
