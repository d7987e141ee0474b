//! The picture that the demo draws, line by line: it is the same at a terminal, in a log and in a pipe, but for
//! colours.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::demo::LEASES;
use crate::demo::evidence::Evidence;
use crate::demo::fleet::Role;

/// Where the picture is drawn. Whether anybody looks at it changes nothing.
#[derive(Debug)]
pub(crate) struct Screen {
    shows: bool,
    colours: bool,
}

impl Screen {
    pub(crate) fn new(shows: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { shows, colours: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// A line, or several.
    pub(crate) fn write(&self, text: &str) {
        if self.shows {
            // Whoever read it has had enough; the verdict still is the exit code.
            let _ = io::stdout().write_all(format!("{text}\n").as_bytes());
        }
    }

    /// Says what there is to be seen.
    pub(crate) fn open(&self, members: &[(char, Role)], ttl: Duration) {
        let of = |role: Role| {
            let names: Vec<_> =
                members.iter().filter(|member| member.1 == role).map(|m| self.paint(m.0)).collect();
            names.join(", ")
        };
        self.write(&format!(
            "Five real processes on an embedded store of their own, TTL {}. {} run a command under the lease\n\
             {} (`tenure run`), {} hold {} through the library. Trouble with the network is\n\
             injected between a process and the store; the rest really happens to the processes.\n",
            humantime::format_duration(ttl),
            of(Role::Run),
            LEASES[0],
            of(Role::Library),
            LEASES[1..].join(" and ")
        ));
        self.write(&format!(
            "{:>7}  {}",
            "time",
            LEASES.map(|lease| format!("{lease:<8}")).concat().trim_end()
        ));
    }

    /// A line of the timeline: who is at work on each lease, and what has happened.
    pub(crate) fn line(&self, time: u64, at_work: impl Iterator<Item = Option<char>>, text: &str) {
        let cells: String = at_work
            .map(|name| name.map_or_else(|| "-".to_owned(), |name| self.paint(name)) + "       ")
            .collect();
        self.write(&format!("{:>6.2}s  {cells}{text}", Duration::from_nanos(time).as_secs_f64()));
    }

    /// A member's letter, in its colour.
    pub(crate) fn paint(&self, name: char) -> String {
        let place = (name as u32).wrapping_sub('A' as u32);
        if self.colours && place < 6 {
            format!("\u{1b}[3{}m{name}\u{1b}[0m", 1 + place)
        } else {
            name.to_string()
        }
    }
}

/// The width of a row of the chart, in slices of time.
const SLICES: usize = 72;

/// Who was at work in each slice of a span of time: whoever worked most, `.` for nobody.
pub(crate) fn row(evidence: &Evidence, from: u64, to: u64) -> Vec<char> {
    let slice = (to.saturating_sub(from) / SLICES as u64).max(1);
    (0..SLICES as u64)
        .map(|index| {
            let (start, end) = (from + index * slice, from + (index + 1) * slice);
            let worked = |token: u64| -> u64 {
                let inside =
                    |unit: &crate::history::Unit| unit.end.min(end).saturating_sub(unit.start.max(start));
                evidence.units(token).map(inside).sum()
            };
            let most = evidence.grants.iter().map(|grant| (worked(grant.token), grant.member)).max();
            most.filter(|(time, _)| *time > 0).map_or('.', |(_, member)| member)
        })
        .collect()
}

/// The slice in which an instant lies.
pub(crate) fn slice_of(at: u64, from: u64, to: u64) -> usize {
    let slice = (to.saturating_sub(from) / SLICES as u64).max(1);
    usize::try_from(at.saturating_sub(from) / slice).map_or(SLICES - 1, |index| index.min(SLICES - 1))
}

/// A row of marks, each at its slice or behind the one that is there.
pub(crate) fn marks(marks: &[(usize, char)]) -> String {
    let mut row = String::new();
    for (slice, mark) in marks {
        while row.chars().count() < *slice {
            row.push(' ');
        }
        row.push(*mark);
    }
    row
}

/// A span of time: milliseconds while it is short.
pub(crate) fn short(span: Duration) -> String {
    match span.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::evidence::Grant;
    use crate::history::Unit;

    #[test]
    fn a_row_shows_who_worked_most_in_each_slice() {
        let mut evidence = Evidence::new("job", "nowhere".into());
        for (token, member, start, end) in [(1, 'A', 0, 25), (2, 'B', 26, 30), (3, 'C', 50, 719)] {
            let process = 1;
            evidence.grants.push(Grant { token, member, process, began: start, ended: None });
            evidence.history.units.push(Unit { lease: "job".into(), token, process, start, end });
        }
        let row: String = row(&evidence, 0, 720).into_iter().collect();
        assert_eq!(row, format!("AAA..{}", "C".repeat(67)), "in the third slice A worked for 5, B for 4");
    }

    #[test]
    fn marks_stand_at_their_time_and_never_on_each_other() {
        assert_eq!(marks(&[(2, 'k'), (2, 'f'), (6, 'd')]), "  kf  d");
        assert_eq!(slice_of(0, 0, 720), 0);
        assert_eq!(slice_of(719, 0, 720), 71);
        assert_eq!(slice_of(10_000, 0, 720), 71);
    }

    #[test]
    fn short_spans_are_told_in_milliseconds() {
        assert_eq!(short(Duration::from_micros(1_640)), "1.6 ms");
        assert_eq!(short(Duration::from_micros(38_400)), "38 ms");
        assert_eq!(short(Duration::from_millis(1_960)), "1.96 s");
    }
}
