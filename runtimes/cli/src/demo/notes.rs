//! What members that use the library tell the demo: lines on standard output, which is their log.

use std::io::{self, Write};

/// It waits for the lease.
pub(crate) const WAITS: &str = "waits";
/// A request was held back, as nothing gets through to the store.
pub(crate) const HELD_BACK: &str = "held-back";
/// Such a request has arrived at last, and did nothing there.
pub(crate) const LATE_REFUSED: &str = "late-refused";
/// Such a request has arrived at last, and was executed.
pub(crate) const LATE_EXECUTED: &str = "late-executed";

/// Writes a note about a lease.
pub(crate) fn note(what: &str, lease: &str) {
    // One write, so that lines of several threads don't mix. Without a reader there is nothing to be said.
    let _ = io::stdout().write_all(format!("{what} {lease}\n").as_bytes());
}

/// The leases that the notes of this kind in a log are about.
pub(crate) fn noted<'a>(log: &'a str, what: &str) -> impl Iterator<Item = &'a str> {
    log.lines().filter_map(move |line| line.strip_prefix(what)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_among_other_lines() {
        let log = "waits mailer\ntenure: waits\nlate-refused mailer\nlate-refused reports\nlate";
        assert!(noted(log, WAITS).eq(["mailer"]));
        assert!(noted(log, LATE_REFUSED).eq(["mailer", "reports"]));
        assert_eq!(noted(log, "late").count(), 0);
    }
}
