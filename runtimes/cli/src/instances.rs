//! `tenure instances` and `tenure drain`: the processes of the fleet.

use std::collections::BTreeSet;
use std::time::Duration;

use comfy_table::Table;
use serde_json::{Map, Value, json};
use tenure::{Identity, LeaseRecord, MemberEntry, RequestError, Tenure, TimerEntry};

use crate::args::{Drain, Instances};
use crate::failure::Failure;
use crate::holder::{printable, span, time};
use crate::list::{self, millis, system_time, unknown};
use crate::store::Place;
use crate::{clock, exit, say};

/// An instance, and what it has.
pub(crate) struct Instance {
    entry: MemberEntry,
    /// The leases that it holds.
    leases: usize,
    /// The ticks that it runs.
    runs: usize,
}

impl Instance {
    /// What it does, in a word that is part of the interface.
    const fn state(&self) -> &'static str {
        if self.entry.problem.is_some() {
            return "unreadable";
        }
        match (self.entry.member.draining, self.holds_nothing()) {
            (false, _) => "active",
            (true, false) => "draining",
            (true, true) => "drained",
        }
    }

    const fn holds_nothing(&self) -> bool {
        self.leases == 0 && self.runs == 0
    }
}

/// The instances, with what the store knows of them.
///
/// # Errors
/// [`RequestError`].
pub(crate) async fn look(tenure: &Tenure) -> Result<Vec<Instance>, RequestError> {
    // What an instance has is looked at after it was seen draining, not before.
    let members = tenure.members().await?;
    let (leases, timers) = tokio::try_join!(tenure.leases(), tenure.timers())?;
    Ok(with_holds(members, &leases, &timers))
}

/// The instances, joined with what they hold by the owners.
pub(crate) fn with_holds(
    members: Vec<MemberEntry>,
    leases: &[LeaseRecord],
    timers: &[TimerEntry],
) -> Vec<Instance> {
    let instance = |entry: MemberEntry| {
        let (leases, runs) = held_by(&entry.member.identity, leases, timers);
        Instance { entry, leases, runs }
    };
    members.into_iter().map(instance).collect()
}

/// How many processes hold leases and are not listed: `tenure run`, and programs that have not joined.
pub(crate) fn strangers(instances: &[Instance], leases: &[LeaseRecord]) -> usize {
    let listed: BTreeSet<_> =
        instances.iter().map(|instance| instance.entry.member.identity.to_string()).collect();
    let process = |record: &LeaseRecord| Some(record.holder.owner.rsplit_once('.')?.0.to_owned());
    let holders: BTreeSet<_> = leases.iter().filter_map(process).collect();
    holders.difference(&listed).count()
}

/// How many leases a process holds, and how many ticks it runs, whether it is listed or not: of one that has died its
/// leases are left until their time is over, and what it guarded may work until then.
fn held_by(process: &Identity, leases: &[LeaseRecord], timers: &[TimerEntry]) -> (usize, usize) {
    let process = format!("{process}.");
    let leases = leases.iter().filter(|record| record.holder.owner.starts_with(&process)).count();
    let runs = timers.iter().flat_map(|entry| {
        let now = entry.time.now;
        entry.record.claims.iter().filter(move |claim| !claim.ttl.is_zero() && claim.ends > now)
    });
    (leases, runs.filter(|claim| claim.owner.starts_with(&process)).count())
}

/// Lists the instances.
pub(crate) async fn instances(args: &Instances, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let instances = place.answer(look(&tenure)).await;
    let _ = tenure.shutdown().await;
    let instances = instances.map_err(|error| Failure::from(error).at(place.name()))?;
    let nothing = || format!("there are no instances in {}", place.name());
    list::write(args.json, &instances, as_json, table, nothing)
}

/// An instance as an object. The names of the fields are part of the interface; what is not known is null.
pub(crate) fn as_json(instance: &Instance) -> Value {
    let Instance { entry, leases, runs } = instance;
    let MemberEntry { member, marked, knows_mark, heard, ttl, metadata, problem, .. } = entry;
    let labels = member.labels.iter().map(|(name, value)| (name.to_owned(), json!(value)));
    let known = |value: Value| if problem.is_none() { value } else { Value::Null };
    json!({
        "instance": member.identity.instance(),
        "incarnation": member.identity.incarnation().to_string(),
        "state": instance.state(),
        "drain_wanted": known(json!(marked)),
        "drain_heard": known(json!(knows_mark)),
        "joined": known(json!(time(system_time(member.joined)))),
        "age_ms": known(json!(millis(member.age))),
        "heard_ms": known(json!(millis(*heard))),
        "ttl_ms": known(json!(millis(*ttl))),
        "leases": leases,
        "runs": runs,
        "labels": labels.collect::<Map<_, _>>(),
        "host": metadata.host.as_deref(),
        "pid": metadata.pid,
        "text": metadata.text.as_deref(),
        "problem": problem.as_deref(),
    })
}

pub(crate) fn table(instances: &[Instance]) -> Table {
    let header = [
        "INSTANCE",
        "INCARNATION",
        "STATE",
        "LEASES",
        "RUNS",
        "JOINED",
        "HERE FOR",
        "HEARD",
        "HOST",
        "PID",
        "LABELS",
    ];
    list::table(
        header,
        instances.iter().map(|instance| {
            let Instance { entry, leases, runs } = instance;
            let MemberEntry { member, heard, metadata, problem, .. } = entry;
            if let Some(problem) = problem {
                let [joined, here_for, heard, host, pid] = std::array::from_fn(|_| unknown());
                let (name, state) = (printable(member.identity.instance()), instance.state().to_owned());
                let (leases, runs) = (leases.to_string(), runs.to_string());
                let (short, problem) = (short(&member.identity), printable(problem));
                return [name, short, state, leases, runs, joined, here_for, heard, host, pid, problem];
            }
            let labels: Vec<_> =
                member.labels.iter().map(|(name, value)| printable(&format!("{name}={value}"))).collect();
            [
                printable(member.identity.instance()),
                short(&member.identity),
                instance.state().to_owned(),
                leases.to_string(),
                runs.to_string(),
                time(system_time(member.joined)),
                span(member.age),
                format!("{} ago", span(*heard)),
                metadata.host.as_deref().map_or_else(unknown, printable),
                metadata.pid.map_or_else(unknown, |pid| pid.to_string()),
                if labels.is_empty() { unknown() } else { labels.join("\n") },
            ]
        }),
    )
}

/// Enough of an incarnation to tell processes apart.
fn short(identity: &Identity) -> String {
    const DIGITS: usize = 8;
    identity.incarnation().to_string().chars().take(DIGITS).collect()
}

/// Marks instances to drain, or no longer.
pub(crate) async fn drain(args: &Drain, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let result = marked(args, place, &tenure).await;
    let _ = tenure.shutdown().await;
    result.map_err(|failure| failure.at(place.name()))
}

async fn marked(args: &Drain, place: &Place, tenure: &Tenure) -> Result<u8, Failure> {
    let name = &args.instance;
    let listed = place.answer(tenure.members()).await?;
    let meant = meant(name, &listed).map_err(|text| Failure::new(exit::USAGE, text))?;
    // A name that was listed a moment ago may not be any more.
    let concerned = match meant {
        Meant::Process(process) => {
            let is_listed = place.answer(tenure.mark_process(&process, !args.undo)).await?;
            if is_listed { vec![process] } else { Vec::new() }
        }
        Meant::Name => place.answer(tenure.mark(name, !args.undo)).await?,
        // The store may remember it, and its mark would come back with it.
        Meant::Nobody if args.undo => place.answer(tenure.mark(name, false)).await?,
        Meant::Nobody => Vec::new(),
    };
    if concerned.is_empty() {
        let text = format!("there is no instance {name:?} in {}: see `tenure instances`", place.name());
        return Err(Failure::new(exit::NO_INSTANCE, text));
    }
    say_marked(args, &listed, &concerned);
    match args.wait {
        None => Ok(0),
        Some(limit) => wait(tenure, place, &concerned, limit).await,
    }
}

fn say_marked(args: &Drain, listed: &[MemberEntry], concerned: &[Identity]) {
    if concerned.len() > 1 {
        say::line(format_args!("there are {} processes of the name {:?}", concerned.len(), args.instance));
    }
    for process in concerned {
        let before = listed.iter().find(|entry| entry.member.identity == *process);
        let (was_marked, was_draining) =
            before.map_or((false, false), |entry| (entry.marked, entry.member.draining));
        let what = match (args.undo, was_marked) {
            (false, false) if was_draining => "drains by itself already; it stays drained when that ends",
            (false, false) => "is to drain",
            (false, true) => "was to drain already",
            (true, _) if before.is_none() => {
                "is not listed; should it come back, it is not to drain any more"
            }
            (true, true) => "is not to drain any more",
            (true, false) if was_draining => "was not asked to drain; it does by itself",
            (true, false) => "was not asked to drain",
        };
        let pid = before.and_then(|entry| entry.metadata.pid);
        let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        say::line(format_args!("instance {:?}/{}{pid} {what}", process.instance(), short(process)));
    }
}

/// Whom the command line means.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// All processes of the name.
    Name,
    /// One of them.
    Process(Identity),
    Nobody,
}

/// Finds out who is meant: a name as it is counts more than one with the beginning of an incarnation behind it.
fn meant(text: &str, listed: &[MemberEntry]) -> Result<Meant, String> {
    let identities = || listed.iter().map(|entry| &entry.member.identity);
    if identities().any(|identity| identity.instance() == text) {
        return Ok(Meant::Name);
    }
    let Some((name, beginning)) = text.rsplit_once('/').filter(|(_, beginning)| !beginning.is_empty()) else {
        return Ok(Meant::Nobody);
    };
    let beginning = beginning.to_ascii_lowercase();
    let mut processes = identities().filter(|identity| {
        identity.instance() == name && identity.incarnation().to_string().starts_with(&beginning)
    });
    match (processes.next(), processes.next()) {
        (None, _) => Ok(Meant::Nobody),
        (Some(process), None) => Ok(Meant::Process(process.clone())),
        (Some(_), Some(_)) => Err(format!(
            "several processes of {name:?} begin with {beginning:?}: give more of the incarnation"
        )),
    }
}

/// Waits until these hold nothing any more. One that is gone may: its leases go on until their time is over.
///
/// One that holds nothing may not have heard of the drain yet, and take something still: its heartbeats must have said
/// that it knows.
async fn wait(
    tenure: &Tenure,
    place: &Place,
    concerned: &[Identity],
    limit: Option<Duration>,
) -> Result<u8, Failure> {
    /// Between two looks.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    let since = clock::now();
    loop {
        // What a process holds is looked at after it was seen to know, not before.
        let members = place.answer(tenure.members()).await?;
        let holds = place.answer(async { tokio::try_join!(tenure.leases(), tenure.timers()) });
        let (leases, timers) = holds.await?;
        let listed = |process: &Identity| members.iter().find(|entry| entry.member.identity == *process);
        let taken_back = |entry: &MemberEntry| !entry.marked && entry.problem.is_none();
        if concerned.iter().filter_map(listed).any(taken_back) {
            let text = "the drain was taken back before it was done";
            return Err(Failure::new(exit::BUSY, text));
        }
        let waits: Vec<_> = concerned
            .iter()
            .map(|process| (process, listed(process), held_by(process, &leases, &timers)))
            .filter(|(_, listed, held)| is_waited_for(*listed, *held))
            .collect();
        if waits.is_empty() {
            say::line(format_args!("drained: nothing is held any more"));
            return Ok(0);
        }
        if limit.is_some_and(|limit| clock::now().saturating_since(since) >= limit) {
            let waits: Vec<_> =
                waits.iter().map(|(process, listed, held)| why_waited_for(process, *listed, *held)).collect();
            let text = format!("not drained in time: {}; the drain goes on", waits.join(", "));
            return Err(Failure::new(exit::BUSY, text));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether a process that was marked holds something, or may take something still; `None` is one that is not listed any
/// more.
fn is_waited_for(listed: Option<&MemberEntry>, held: (usize, usize)) -> bool {
    held != (0, 0) || listed.is_some_and(|entry| !entry.knows_mark)
}

fn why_waited_for(process: &Identity, listed: Option<&MemberEntry>, held: (usize, usize)) -> String {
    let (leases, runs) = held;
    let unheard = listed.is_some_and(|entry| !entry.knows_mark);
    let unheard = if unheard { ", and has not heard of it yet" } else { "" };
    let (name, short) = (process.instance(), short(process));
    format!("{name:?}/{short} holds {leases} lease(s) and runs {runs} tick(s){unheard}")
}

#[cfg(test)]
mod tests {
    use tenure::store_contract::{Heartbeat, MemberRecord, StoreTime};
    use tenure::{Incarnation, Instant, Labels, Metadata, Timestamp};

    use super::*;

    fn entry(name: &str, incarnation: u128) -> MemberEntry {
        let identity = Identity::new(name, Incarnation::new(incarnation)).unwrap();
        let time = StoreTime { wall: Timestamp::EPOCH, now: Instant::ZERO };
        let beat = Heartbeat {
            identity: identity.clone(),
            sequence: 0,
            joined: None,
            draining: false,
            marked: false,
            digests: [].into(),
            labels: Labels::new([("zone", "a")]).unwrap(),
            known: None,
            ttl: Duration::from_secs(15),
            metadata: Metadata::new(),
            timeout: Duration::from_secs(1),
        };
        let mut record = None;
        MemberRecord::beat(&mut record, &beat, time).unwrap();
        record.unwrap().entry(&identity, Instant::from_nanos(1_500_000_000))
    }

    const A: u128 = 0xabcd << 112;

    #[test]
    fn an_instance_is_meant_by_its_name_or_by_the_beginning_of_an_incarnation() {
        let listed = [entry("web", A), entry("web", A + 1), entry("a/b", A), entry("a", 0xb << 124)];
        let process = |n: usize| Ok(Meant::Process(listed[n].member.identity.clone()));
        assert_eq!(meant("web", &listed), Ok(Meant::Name));
        assert_eq!(meant("a/b", &listed), Ok(Meant::Name), "as it is, it is a name");
        assert_eq!(meant("a/b/ABC", &listed), process(2));
        assert_eq!(meant("a/b0", &listed), process(3));
        let whole = format!("web/{}", listed[1].member.identity.incarnation());
        assert_eq!(meant(&whole, &listed), process(1));
        for nobody in ["", "we", "web/", "web/1", "b", "/"] {
            assert_eq!(meant(nobody, &listed), Ok(Meant::Nobody), "{nobody:?}");
        }
        assert!(meant("web/ab", &listed).unwrap_err().contains("several"));
    }

    #[test]
    fn what_an_instance_holds_is_what_its_own_process_holds() {
        let members = vec![entry("web", A), entry("web", A + 1)];
        let [one, _] = &members[..] else { panic!() };
        let owner = format!("{}.3", one.member.identity);
        let lease = |owner: &str| {
            LeaseRecord::new(tenure::LeaseName::new("job").unwrap(), tenure::Holder::new(owner))
        };
        let leases = [lease(&owner), lease("somebody")];
        let mut instances = with_holds(members, &leases, &[]);
        assert_eq!(instances.iter().map(|instance| instance.leases).collect::<Vec<_>>(), [1, 0]);
        assert!(instances.iter().all(|instance| instance.state() == "active"));
        instances.iter_mut().for_each(|instance| instance.entry.member.draining = true);
        assert_eq!(instances.iter().map(Instance::state).collect::<Vec<_>>(), ["draining", "drained"]);
    }

    #[test]
    fn a_drain_is_waited_for_until_the_process_has_heard_and_nothing_is_held_be_it_listed_or_not() {
        let web = entry("web", A);
        let mut knows = web.clone();
        knows.knows_mark = true;
        let record = |owner: String| {
            LeaseRecord::new(tenure::LeaseName::new("job").unwrap(), tenure::Holder::new(&*owner))
        };
        let leases = [record(format!("{}.1", web.member.identity)), record("web/1.1".to_owned())];
        let held = held_by(&web.member.identity, &leases, &[]);
        assert_eq!(held, (1, 0));
        assert!(is_waited_for(None, held), "it is gone, and its lease is not");
        assert!(is_waited_for(Some(&knows), held));
        assert!(is_waited_for(Some(&web), (0, 0)), "it may take something still");
        assert!(!is_waited_for(Some(&knows), (0, 0)));
        assert!(!is_waited_for(None, (0, 0)));
        let why = |entry| why_waited_for(&web.member.identity, Some(entry), (0, 0));
        assert!(why(&web).contains("not heard") && !why(&knows).contains("not heard"));
    }

    #[test]
    fn of_an_instance_that_can_not_be_read_the_problem_is_shown_and_nothing_is_made_up() {
        let identity = entry("web", A).member.identity;
        let unreadable = MemberEntry::unreadable(identity, "it is \u{1b}[2J damaged");
        let instances = with_holds(vec![unreadable], &[], &[]);
        let value = as_json(&instances[0]);
        assert_eq!((&value["instance"], &value["state"]), (&"web".into(), &"unreadable".into()));
        assert_eq!(value["problem"], "it is \u{1b}[2J damaged");
        for unknown in ["drain_wanted", "drain_heard", "joined", "age_ms", "heard_ms", "ttl_ms"] {
            assert_eq!(value[unknown], Value::Null, "{unknown}");
        }
        let text = table(&instances).to_string();
        assert!(text.contains("unreadable") && text.contains("damaged"), "{text:?}");
        assert!(!text.contains("active") && !text.contains(" ago") && !text.contains('\u{1b}'), "{text:?}");
        assert_eq!(as_json(&with_holds(vec![entry("web", A)], &[], &[])[0])["problem"], Value::Null);
    }

    #[test]
    fn nothing_in_a_record_can_steer_the_terminal() {
        let instances = with_holds(vec![entry("web", A)], &[], &[]);
        let text = table(&instances).to_string();
        assert!(!text.contains('\u{1b}') && text.contains("abcd0000") && text.contains("zone="), "{text:?}");
        let value = as_json(&instances[0]);
        assert_eq!((&value["age_ms"], &value["heard_ms"]), (&1500.into(), &1500.into()));
    }
}
