//! `tenure status`: instances, leases, timers and jobs on one screen.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use comfy_table::Table;
use rustix::process::Signal;
use rustix::termios::isatty;
use serde_json::{Value, json};
use tenure::{JobRecord, LeaseRecord, RequestError, Tenure, TimerEntry};

use crate::args::Status;
use crate::failure::Failure;
use crate::instances::{self, Instance};
use crate::run::no_signals;
use crate::signals::Signals;
use crate::store::Place;
use crate::{exit, jobs, leases, list, say, timers};

/// Between two pictures, unless it is said otherwise: a store has better things to do.
const INTERVAL: Duration = Duration::from_secs(2);
/// Moves to the upper left corner of a terminal and clears what follows.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Shows everything, once or again and again.
pub(crate) async fn status(args: &Status, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let result = match args.watch {
        None => show(args, place, &tenure, "").await.map(|_| 0),
        Some(interval) => watch(args, place, &tenure, interval.unwrap_or(INTERVAL)).await,
    };
    let _ = tenure.shutdown().await;
    result.map_err(|failure| failure.at(place.name()))
}

/// Shows it until a signal asks for the end, or nobody reads it any more.
async fn watch(args: &Status, place: &Place, tenure: &Tenure, interval: Duration) -> Result<u8, Failure> {
    let mut signals = Signals::listen(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])
        .map_err(|error| no_signals(&error))?;
    let before = if !args.json && isatty(io::stdout()) { CLEAR } else { "" };
    let show_for_ever = async {
        loop {
            match show(args, place, tenure, before).await {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                // The next look may fare better.
                Err(failure) if failure.code == exit::UNREACHABLE => {
                    say::line(format_args!("{}", failure.message));
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(interval).await;
        }
    };
    tokio::select! {
        signal = signals.next() => Ok(exit::of_signal(signal)),
        result = show_for_ever => result,
    }
}

/// Shows it once; false if nobody reads it any more.
async fn show(args: &Status, place: &Place, tenure: &Tenure, before: &str) -> Result<bool, Failure> {
    let picture = place.answer(Picture::take(tenure)).await?;
    let text = if args.json {
        format!("{}\n", picture.as_json(place.name()))
    } else {
        format!("{before}{}", picture.as_text(place.name()))
    };
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(exit::INTERNAL, format!("can't write the status: {error}"))),
    }
}

/// What a store has.
struct Picture {
    instances: Vec<Instance>,
    leases: Vec<LeaseRecord>,
    timers: Vec<TimerEntry>,
    jobs: Vec<JobRecord>,
}

impl Picture {
    async fn take(tenure: &Tenure) -> Result<Self, RequestError> {
        let members = tenure.members().await?;
        let all = tenure.jobs();
        let (leases, timers, jobs) = tokio::try_join!(tenure.leases(), tenure.timers(), all.all())?;
        let instances = instances::with_holds(members, &leases, &timers);
        Ok(Self { instances, leases, timers, jobs })
    }

    /// One object, with the arrays that the single listings give.
    fn as_json(&self, store: &str) -> Value {
        let Self { instances, leases, timers, jobs } = self;
        json!({
            "store": store,
            "instances": instances.iter().map(instances::as_json).collect::<Vec<_>>(),
            "leases": leases.iter().map(leases::as_json).collect::<Vec<_>>(),
            "timers": timers.iter().map(timers::as_json).collect::<Vec<_>>(),
            "jobs": jobs.iter().map(jobs::as_json).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, store: &str) -> String {
        let Self { instances, leases, timers, jobs } = self;
        let mut text = format!("store {store}\n");
        section(&mut text, "instances", instances, instances::table);
        match instances::strangers(instances, leases) {
            0 => {}
            1 => text.push_str("1 more process holds leases without being an instance: it has not joined\n"),
            more => {
                let _written = writeln!(
                    text,
                    "{more} more processes hold leases without being instances: they have not joined"
                );
            }
        }
        section(&mut text, "leases", leases, leases::table);
        section(&mut text, "timers", timers, timers::table);
        section(&mut text, "jobs", jobs, jobs::table);
        text
    }
}

/// Adds a list with a heading; one that is empty is a line.
fn section<T>(text: &mut String, what: &str, records: &[T], table: impl Fn(&[T]) -> Table) {
    // Nothing can go wrong with a text in memory.
    let _written = match records {
        [] => write!(text, "\n{what}: none\n"),
        _ => write!(text, "\n{what}: {}\n{}\n", records.len(), list::lines(&table(records))),
    };
}
