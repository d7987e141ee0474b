//! What came of it: the chart, the hand-overs, and the verdict.

use std::time::Duration;

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::demo::evidence::Grant;
use crate::demo::fleet::Role;
use crate::demo::picture::{marks, row, short, slice_of};
use crate::demo::{Demo, MEMBERS};
use crate::history::{Breach, Unit};
use crate::witness::now;

/// What was done to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Kill,
    Freeze,
    Drain,
    Cut,
    BadNetwork,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Drain => "drain",
            Self::Cut => "cut-off",
            Self::BadNetwork => "bad-network",
        }
    }

    /// Its mark in the chart, and that of its end.
    const fn marks(self) -> (char, char) {
        match self {
            Self::Kill => ('k', ' '),
            Self::Freeze => ('f', 'g'),
            Self::Drain => ('d', ' '),
            Self::Cut => ('x', 'y'),
            Self::BadNetwork => ('(', ')'),
        }
    }
}

/// Why nobody may have worked for longer than the next one took.
const EVIDENCE: &str = "(A unit of work takes 20 ms, and one that kill -9 cuts short leaves no evidence.)";

const LEGEND: &str = "k killed   f frozen, g goes on   d drained   x cut off, y reachable   (..) bad network";

/// What happened to a member, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    what: What,
    member: char,
    at: u64,
    /// When it was over, if it lasted.
    pub(crate) over: Option<u64>,
    hand_overs: Vec<HandOver>,
    /// The leases that the member held.
    leases: Vec<&'static str>,
    /// Whether the member kept its leases, where it should.
    kept: Option<bool>,
    /// What else was counted.
    pub(crate) counts: Vec<(&'static str, usize)>,
}

impl Event {
    /// Something that brought hand-overs about.
    pub(crate) fn new(what: What, member: char, at: u64, hand_overs: Vec<HandOver>) -> Self {
        let leases = hand_overs.iter().map(|hand_over| hand_over.lease).collect();
        Self { what, member, at, over: None, hand_overs, leases, kept: None, counts: Vec::new() }
    }

    /// Something that a member is to survive without losing what it holds.
    pub(crate) fn survived(what: What, member: char, at: u64, leases: Vec<&'static str>, kept: bool) -> Self {
        Self { leases, kept: Some(kept), ..Self::new(what, member, at, Vec::new()) }
    }
}

/// A lease that went from one member to another.
#[derive(Clone, Debug)]
pub(crate) struct HandOver {
    pub(crate) lease: &'static str,
    pub(crate) before: Grant,
    pub(crate) after: Grant,
    /// When the last work of the one before had ended.
    pub(crate) worked: u64,
    /// What brought it about.
    pub(crate) at: u64,
}

impl HandOver {
    /// From the event to the next one's work.
    fn took(&self) -> Duration {
        Duration::from_nanos(self.after.began.saturating_sub(self.at))
    }

    /// How long nobody worked.
    fn idle(&self) -> Duration {
        Duration::from_nanos(self.after.began.saturating_sub(self.worked))
    }
}

/// Shows it all, for people or as JSON.
pub(crate) fn show(demo: &Demo, json: bool, breaches: &[Breach]) {
    let end = now();
    if json {
        use std::io::Write;
        let _ = std::io::stdout().write_all(format!("{}\n", as_json(demo, end, breaches)).as_bytes());
        return;
    }
    demo.screen.write(&chart(demo, end));
    if !demo.events.is_empty() {
        demo.screen.write(&format!("\n{}\n{EVIDENCE}\n", hand_overs(demo).trim_fmt()));
    }
    demo.screen.write(&verdict(demo, end, breaches));
}

fn chart(demo: &Demo, end: u64) -> String {
    let from = demo.started;
    let slice =
        Duration::from_nanos(end.saturating_sub(from)) / row(&demo.evidence[0], from, end).len() as u32;
    let mut text = format!("\nWho was at work, a letter for {}:\n", short(slice));
    for evidence in &demo.evidence {
        let letters: String =
            row(evidence, from, end).into_iter().map(|letter| demo.screen.paint(letter)).collect();
        text.push_str(&format!("  {:<8}{letters}\n", evidence.lease));
        let mut marked = Vec::new();
        for event in &demo.events {
            if event.leases.contains(&evidence.lease) {
                let (begin, over) = event.what.marks();
                marked.push((slice_of(event.at, from, end), begin));
                marked.extend(event.over.map(|at| (slice_of(at, from, end), over)));
            }
        }
        text.push_str(&format!("  {:<8}{}\n", "", marks(&marked)));
    }
    text.push_str(&format!("  {LEGEND}"));
    text
}

fn hand_overs(demo: &Demo) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["EVENT", "LEASE", "FROM", "TO", "TOKEN", "NEXT AT WORK AFTER", "NOBODY WORKED FOR"]);
    for event in &demo.events {
        for hand_over in &event.hand_overs {
            let HandOver { lease, before, after, .. } = hand_over;
            let rise = i128::from(after.token) - i128::from(before.token);
            table.add_row([
                format!("{} {}", event.what.name(), event.member),
                (*lease).to_owned(),
                before.member.to_string(),
                after.member.to_string(),
                format!("{rise:+}"),
                short(hand_over.took()),
                short(hand_over.idle()),
            ]);
        }
        if let Some(kept) = event.kept {
            let row = [
                format!("{} {}", event.what.name(), event.member),
                if event.leases.is_empty() { "-".to_owned() } else { event.leases.join(", ") },
                event.member.to_string(),
                if kept { "kept" } else { "lost" }.to_owned(),
            ];
            table.add_row(row.into_iter().chain(std::iter::repeat_n("-".to_owned(), 3)));
        }
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

fn verdict(demo: &Demo, end: u64, breaches: &[Breach]) -> String {
    let grants: usize = demo.evidence.iter().map(|evidence| evidence.grants.len()).sum();
    let units: usize = demo.evidence.iter().map(|evidence| evidence.history.units.len()).sum();
    let mut text = format!(
        "{units} units of work under {grants} grants, by {} processes, in {:.1} s.\n",
        demo.fleet.starts(),
        Duration::from_nanos(end - demo.started).as_secs_f64()
    );
    if breaches.is_empty() {
        text.push_str(
            "Verdict: no two ever worked at once, and each grant had a token above the one before.",
        );
        return text;
    }
    text.push_str(&format!("Verdict: UNSAFE, {} breach(es).", breaches.len()));
    /// More than anybody reads.
    const MOST: usize = 5;
    for breach in breaches.iter().take(MOST) {
        text.push_str(&format!("\n- {}:", breach.what()));
        breach.entries().for_each(|entry| text.push_str(&format!("\n    {entry}")));
    }
    text
}

/// The whole as one object. The names of the fields are part of the interface.
fn as_json(demo: &Demo, end: u64, breaches: &[Breach]) -> Value {
    let milliseconds = |span: Duration| span.as_micros() as f64 / 1e3;
    let since_start = |at: u64| milliseconds(Duration::from_nanos(at.saturating_sub(demo.started)));
    let unit = |unit: &Unit| json!({ "lease": unit.lease, "token": unit.token, "pid": unit.process, "start_ns": unit.start, "end_ns": unit.end });
    let hand_over = |hand_over: &HandOver| {
        json!({
            "lease": hand_over.lease,
            "from": hand_over.before.member.to_string(),
            "to": hand_over.after.member.to_string(),
            "token_before": hand_over.before.token,
            "token_after": hand_over.after.token,
            "handover_ms": milliseconds(hand_over.took()),
            "idle_ms": milliseconds(hand_over.idle()),
        })
    };
    let event = |event: &Event| {
        json!({
            "event": event.what.name(),
            "member": event.member.to_string(),
            "at_ms": since_start(event.at),
            "over_ms": event.over.map(since_start),
            "handovers": event.hand_overs.iter().map(hand_over).collect::<Vec<_>>(),
            "leases": event.leases,
            "kept": event.kept,
            "counts": event.counts.iter().map(|(what, count)| ((*what).to_owned(), json!(count))).collect::<serde_json::Map<_, _>>(),
        })
    };
    let member = |(name, role): (char, Role)| {
        let kind = match role {
            Role::Run => "run",
            Role::Library => "library",
            Role::Rogue => "rogue",
        };
        json!({ "member": name.to_string(), "kind": kind, "leases": role.leases() })
    };
    let grants = demo.evidence.iter().flat_map(|evidence| {
        evidence.grants.iter().map(|grant| {
            json!({
                "lease": evidence.lease,
                "token": grant.token,
                "member": grant.member.to_string(),
                "pid": grant.process,
                "began_ns": grant.began,
                "ended_ns": grant.ended,
            })
        })
    });
    let breach = |breach: &Breach| json!({ "what": breach.what(), "entries": breach.entries().map(unit).collect::<Vec<_>>() });
    json!({
        "ttl_ms": milliseconds(demo.ttl),
        "took_ms": since_start(end),
        "members": MEMBERS.map(member),
        "processes": demo.fleet.starts(),
        "events": demo.events.iter().map(event).collect::<Vec<_>>(),
        "grants": grants.collect::<Vec<_>>(),
        "work": demo.evidence.iter().flat_map(|evidence| &evidence.history.units).map(unit).collect::<Vec<_>>(),
        "verdict": { "safe": breaches.is_empty(), "breaches": breaches.iter().map(breach).collect::<Vec<_>>() },
    })
}
