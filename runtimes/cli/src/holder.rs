//! How holders of leases and spans of time are described to people.

use std::time::{Duration, SystemTime};

use tenure::Holder;

/// The instance's name in an owner: `{instance}/{incarnation}.{n}`. A foreign program's owner as it is.
pub(crate) fn instance(owner: &str) -> &str {
    let ours = |text: &str| {
        text.split_once('.').is_some_and(|(incarnation, n)| {
            incarnation.len() == 32
                && incarnation.bytes().all(|b| b.is_ascii_hexdigit())
                && n.parse::<u64>().is_ok()
        })
    };
    match owner.rsplit_once('/') {
        Some((instance, rest)) if ours(rest) => instance,
        _ => owner,
    }
}

/// One line: who, where, since when, for how much longer.
pub(crate) fn describe(holder: &Holder) -> String {
    let mut text = format!("{:?}", instance(&holder.owner));
    let mut details = Vec::new();
    if let Some(host) = &holder.metadata.host {
        details.push(format!("host {}", printable(host)));
    }
    if let Some(pid) = holder.metadata.pid {
        details.push(format!("process {pid}"));
    }
    if let Some(token) = holder.token {
        details.push(format!("token {token}"));
    }
    if let Some(since) = holder.since
        && let Ok(age) = SystemTime::now().duration_since(since)
    {
        details.push(format!("for {}", span(age)));
    }
    if let Some(text) = &holder.metadata.text {
        details.push(format!("{text:?}"));
    }
    if let Some(problem) = &holder.problem {
        details.push(printable(problem));
    }
    if !details.is_empty() {
        text.push_str(&format!(" ({})", details.join(", ")));
    }
    text
}

/// The same, and how long the lease lasts without a renewal.
pub(crate) fn held_by(holder: &Holder) -> String {
    let left = holder
        .remaining
        .map_or_else(String::new, |left| format!(", for another {} unless it is renewed", span(left)));
    format!("{}{left}", describe(holder))
}

/// A text from a store, without what could steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A span of time, to the tenth of a second when it is short.
pub(crate) fn span(span: Duration) -> String {
    if span < Duration::from_secs(60) {
        return format!("{:.1}s", span.as_secs_f64());
    }
    humantime::format_duration(Duration::from_secs(span.as_secs())).to_string()
}

/// A point in time, as RFC 3339 in UTC.
pub(crate) fn time(time: SystemTime) -> String {
    if can_be_told(time) { humantime::format_rfc3339_millis(time).to_string() } else { "?".to_owned() }
}

/// The same, to the nanosecond.
pub(crate) fn exact_time(time: SystemTime) -> String {
    if can_be_told(time) { humantime::format_rfc3339_nanos(time).to_string() } else { "?".to_owned() }
}

/// humantime's formatter fails before 1970 and after 9999, and such times do stand in foreign records.
fn can_be_told(time: SystemTime) -> bool {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.is_ok_and(|since| since.as_secs() < 253_402_300_800)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_is_what_stands_before_our_incarnation() {
        let ours = format!("host:1:ab/c/{:032x}.7", 0xfeed_u32);
        assert_eq!(instance(&ours), "host:1:ab/c");
        for foreign in ["somebody", "a/b", "a/0123.4", ""] {
            assert_eq!(instance(foreign), foreign);
        }
    }

    #[test]
    fn texts_from_a_store_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn spans_are_short_to_read() {
        assert_eq!(span(Duration::from_millis(14_230)), "14.2s");
        assert_eq!(span(Duration::from_millis(90_500)), "1m 30s");
    }

    #[test]
    fn times_out_of_range_are_no_panic() {
        assert_eq!(time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "?");
        assert_eq!(time(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)), "?");
        assert_eq!(exact_time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(exact_time(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "?");
    }
}
