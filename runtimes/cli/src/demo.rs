//! `tenure demo`: a fleet of real processes, what may happen to them, and the check that no two ever worked at once.
//!
//! Members are what users have: `tenure run` of a command, and a program that holds several leases through the
//! library. They meet in an embedded store in a folder of the demo's own. Every unit of work leaves evidence
//! ([`witness`](crate::witness)), and the verdict comes from that alone ([`history`](crate::history)).

mod evidence;
mod fleet;
mod folder;
pub(crate) mod member;
mod notes;
mod picture;
mod report;
mod script;
mod trouble;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{SqliteStore, Tenure};

use crate::args;
use crate::exit;
use crate::failure::Failure;
use crate::say;
use crate::signals::{self, Signals};
use crate::witness::now;
use evidence::{Evidence, Grant, News};
use fleet::{Fleet, Role};
use folder::Folder;
use picture::Screen;
use report::Event;

/// The lease of those that are started by `tenure run`.
const BACKUP: &str = "backup";
/// The leases of those that use the library.
const SHARED: [&str; 2] = ["mailer", "reports"];
/// All, in the order in which they are shown.
const LEASES: [&str; 3] = [BACKUP, SHARED[0], SHARED[1]];
const MEMBERS: [(char, Role); 5] =
    [('A', Role::Run), ('B', Role::Run), ('C', Role::Run), ('D', Role::Library), ('E', Role::Library)];
/// How long work may take to end by itself when its member is drained. It takes a unit.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks at what the members do.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// For each step of the script: far more than it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// A member that ends without a reason is started again; more often than this, something is wrong.
const MOST_FALLS: usize = 10;

/// Where the evidence of a lease is.
fn evidence_of(folder: &Path, lease: &str) -> PathBuf {
    folder.join(format!("{lease}.evidence"))
}

/// Where the members meet.
fn store_in(folder: &Path) -> PathBuf {
    folder.join("leases.db")
}

/// Shows it; returns the exit code.
pub(crate) async fn demo(args: &args::Demo) -> Result<u8, Failure> {
    let ends = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
    let mut signals = Signals::listen(&ends).map_err(|error| failed("receive signals", &error))?;
    let mut demo = Demo::new(args)?;
    let played = tokio::select! {
        played = demo.play(args.rogue) => played,
        signal = signals.next() => {
            demo.end(GRACE).await;
            drop(demo);
            say::line(format_args!("{}: all members were ended", signals::name(signal)));
            return Ok(exit::of_signal(signal));
        }
    };
    let played = match (played, demo.end(LIMIT).await) {
        (Ok(()), false) => Err(Failure::new(exit::INTERNAL, "the demo's members don't end; they are killed")),
        (played, _) => played.and_then(|()| demo.look()),
    };
    // The verdict is about what was seen, however far it came.
    let breaches: Vec<_> = demo.evidence.iter().flat_map(Evidence::breaches).collect();
    if played.is_ok() || !breaches.is_empty() {
        report::show(&demo, args.json, &breaches);
    }
    match played {
        _ if !breaches.is_empty() => Ok(exit::UNSAFE),
        Ok(()) => Ok(0),
        Err(failure) => Err(failure),
    }
}

/// The demo as far as it has come.
struct Demo {
    ttl: Duration,
    started: u64,
    screen: Screen,
    /// One for each of [`LEASES`].
    evidence: Vec<Evidence>,
    events: Vec<Event>,
    falls: usize,
    /// Our own access to the store.
    store: Tenure,
    // In this order: all members have ended before their folder is removed.
    fleet: Fleet,
    _folder: Folder,
}

impl Demo {
    fn new(args: &args::Demo) -> Result<Self, Failure> {
        let folder = Folder::new().map_err(|error| failed("make a folder for its store", &error))?;
        let refused = |error: &dyn std::fmt::Display| Failure::new(exit::REFUSED, error.to_string());
        let store = SqliteStore::open(store_in(folder.path())).map_err(|error| refused(&error))?;
        let store = tenure::builder().store(store).start().map_err(|error| refused(&error))?;
        let fleet =
            Fleet::new(folder.path(), args.ttl).map_err(|error| failed("look after processes", &error))?;
        Ok(Self {
            ttl: args.ttl,
            started: now(),
            screen: Screen::new(!args.json),
            evidence: LEASES.map(|lease| Evidence::new(lease, evidence_of(folder.path(), lease))).into(),
            events: Vec::new(),
            falls: 0,
            store,
            fleet,
            _folder: folder,
        })
    }

    /// Ends all members in order; tells whether all have ended in time. Those that have not are killed when the
    /// fleet is dropped.
    async fn end(&mut self, limit: Duration) -> bool {
        self.fleet.ask_to_end();
        let limit = now() + nanos(limit);
        while !self.fleet.has_ended() && now() < limit {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let _ = self.store.shutdown().await;
        self.fleet.has_ended()
    }

    fn evidence(&self, lease: &str) -> &Evidence {
        let index = LEASES.iter().position(|name| *name == lease).unwrap_or(0);
        &self.evidence[index]
    }

    /// Waits for a condition, and tells meanwhile what happens.
    async fn until<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Failure> {
        let limit = now() + nanos(LIMIT);
        loop {
            self.look()?;
            if let Some(found) = condition(self) {
                return Ok(found);
            }
            if now() > limit {
                let message = format!(
                    "the demo waited {} for {what}, in vain; the machine may be too busy, which --ttl can \
                     make up for{}",
                    humantime::format_duration(LIMIT),
                    self.last_words()
                );
                return Err(Failure::new(exit::INTERNAL, message));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What the members said last.
    fn last_words(&self) -> String {
        let last = |name: char| {
            let log = self.fleet.log(name);
            log.lines().last().map_or_else(String::new, |line| format!("\n  {name}: {line}"))
        };
        self.fleet.members().iter().map(|member| last(member.name)).collect()
    }

    /// Takes in what has happened.
    fn look(&mut self) -> Result<(), Failure> {
        for index in 0..self.evidence.len() {
            let news = self.evidence[index].read().map_err(|error| failed("read the evidence", &error))?;
            for news in news {
                self.tell(index, news);
            }
        }
        for (name, status) in self.fleet.fallen() {
            self.falls += 1;
            if self.falls > MOST_FALLS {
                let message =
                    format!("member {name} of the demo does not stay: {status}{}", self.last_words());
                return Err(Failure::new(exit::INTERNAL, message));
            }
            self.say(&format!("{name} has ended ({}), and is started again", outcome(status)));
            self.start_again(name)?;
        }
        Ok(())
    }

    fn tell(&mut self, index: usize, news: News) {
        let evidence = &self.evidence[index];
        let lease = evidence.lease;
        let text = match news {
            News::Began(grant) => match evidence.work_before(grant) {
                Some(before) => {
                    let idle = Duration::from_nanos(grant.began.saturating_sub(before));
                    format!(
                        "{} works on {lease}, on which nobody had worked for {}",
                        grant.member,
                        picture::short(idle)
                    )
                }
                None => format!("{} works on {lease}", grant.member),
            },
            News::Ended(Grant { member, .. }) => format!("{member} has stopped its work on {lease}"),
        };
        self.say(&text);
    }

    /// A line of the timeline: who is at work on what, and what has happened.
    fn say(&self, text: &str) {
        let at_work = self.evidence.iter().map(|evidence| evidence.at_work().map(|grant| grant.member));
        self.screen.line(now() - self.started, at_work, text);
    }

    fn start_again(&mut self, name: char) -> Result<(), Failure> {
        self.fleet.restart(name).map_err(|error| failed("start a member", &error))
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(exit::INTERNAL, format!("the demo can't {what}: {error}"))
}

/// How a process has ended.
fn outcome(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => "killed".to_owned(),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
