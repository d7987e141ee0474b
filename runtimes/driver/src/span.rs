//! Spans of time in messages.

use std::fmt;
use std::time::Duration;

/// A measured span, to be read by people: to the tenth of a second while it is short, then to the second.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds < 60 {
            return write!(f, "{:.1}s", self.0.as_secs_f64());
        }
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        parts
            .enumerate()
            .try_for_each(|(n, (count, unit))| write!(f, "{}{count}{unit}", if n == 0 { "" } else { " " }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_to_read() {
        let text = |millis| Span(Duration::from_millis(millis)).to_string();
        assert_eq!(text(13_994), "14.0s");
        assert_eq!(text(40), "0.0s");
        assert_eq!(text(90_500), "1m 30s");
        assert_eq!(text(90_000_000), "1d 1h");
    }
}
