//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tenure::{Every as Period, Missed};

use crate::exit;

mod fleet;

pub(crate) use fleet::{Assign, Drain, Instances, Membership, OnRebalance, Restart, Status, Worker};

/// Runs commands under leases, at the ticks of shared timers, and for workloads that instances share out among
/// themselves: each in one process at a time.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: Action,

    /// Where leases and timers are kept, for example sqlite:/path/to/file.db or redis://host (also rediss:, valkey:,
    /// redis+unix:, redis+sentinel:, redis+cluster:) or nats://host (also tls:) [default: a file of this user's, below
    /// $XDG_STATE_HOME or ~/.local/state] [env: TENURE_STORE]
    // Were it read here, the usage in a refusal would show the option as if it had to be given.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Log more to standard error: -v what happens, -vv also each renewal. TENURE_LOG=target=level,... says it
    /// in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Run(Run),
    Every(Every),
    Worker(Worker),
    Status(Status),
    Instances(Instances),
    Drain(Drain),
    Leases(Leases),
    Release(Release),
    Timers(Timers),
    Jobs(Jobs),
    Demo(Demo),
}

/// Run a command while holding a lease.
///
/// The command finds TENURE_LEASE, TENURE_TOKEN and TENURE_OWNER in its environment. It ends before the lease
/// does, come what may: also if this program is killed, stopped, or cut off from the store. SIGTERM, SIGINT,
/// SIGQUIT and SIGHUP are passed on to it. The lease is given back once nothing of the command lives any more;
/// what it leaves running is asked to end, and killed after the grace.
///
/// A command that is stopped from the keyboard (Ctrl-Z) is continued at once: it would hold the lease for nothing.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Run {
    /// The lease's name, 1 to 255 bytes
    #[arg(long, value_name = "NAME")]
    pub(crate) lease: String,

    /// How long the lease outlives its last renewal, and so how soon it passes on after a crash
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) ttl: Duration,

    /// Wait for the lease at most this long [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: if somebody else has the lease, end with code 75
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// What happens to the command when the lease can't be renewed any more
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// How long the command may take to end by itself after SIGTERM, SIGINT or --max-hold; then it is killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,

    /// Stop the command this long after it got the lease, so that others have their turn
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub(crate) max_hold: Option<Duration>,

    /// The command and its arguments; everything after -- belongs to it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Run a command at each tick of a timer, on one of all the processes that have the timer.
///
/// The first tick comes one period after the first process ever named the timer. From then on ticks are a period apart,
/// and no end or restart of any process changes that. Each tick is claimed by one process, which runs the command; so
/// each is run at most once, and with --retry once more if the process that ran it died, or was asked to end.
///
/// The command finds TENURE_TIMER, TENURE_TICK (the number of the tick), TENURE_TICK_TIME (when it was due, in UTC),
/// TENURE_MISSED (how many ticks before it came while no process was there), TENURE_TOKEN and TENURE_OWNER in its
/// environment. Its standard input is empty, and it has no terminal to ask at. It ends before its claim does, come what
/// may: also if this program is killed, stopped, or cut off from the store. What it leaves running is asked to end, and
/// killed after the grace. A command that fails is recorded as failed (see `tenure jobs`), and the program goes on.
///
/// The program runs until SIGTERM, SIGINT, SIGQUIT or SIGHUP. That is passed on to commands that run, which may end by
/// themselves within the grace; a second signal kills them. Nothing is started any more. Suspended (Ctrl-Z) it runs
/// nothing, and what it ran is killed before the claim ends.
///
/// The process is a member of the fleet (see `tenure instances`). When an operator has it drain (see `tenure drain`), its
/// commands get SIGTERM and the same grace, and it claims no tick until that is taken back.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Every {
    /// The time between two ticks, for example 10m
    #[arg(value_name = "PERIOD", value_parser = period)]
    pub(crate) period: Duration,

    /// The timer's name, 1 to 255 bytes; its runs are recorded under the same name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,

    /// What becomes of ticks that came while no process could run them, or none could reach the store: skip runs the
    /// latest of them, catch-up=N the last N, one after the other; with --overlap allow they run side by side, as far as
    /// no more than 16 run in all processes, and those beyond that may be passed over
    #[arg(long, value_name = "HOW", default_value = "skip", value_parser = missed)]
    pub(crate) missed: Missed,

    /// Do not run a tick that is later than this; at least 20ms [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) late_limit: Option<Duration>,

    /// What becomes of a tick that is due while the command still runs, wherever that is
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Overlap::Skip)]
    pub(crate) overlap: Overlap,

    /// Run a tick once more if the process that ran it died or was asked to end: the command must bear being repeated
    #[arg(long)]
    pub(crate) retry: bool,

    /// How long a claim outlives its last renewal, and so how soon after a crash the next command may run
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) ttl: Duration,

    /// How long commands may take to end by themselves once this program is asked to end; then they are killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,

    #[command(flatten)]
    pub(crate) membership: Membership,

    /// The command and its arguments; everything after -- belongs to it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What becomes of a tick while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overlap {
    /// It is not run
    Skip,
    /// It waits for the end; of several, the latest is run, or those that --missed catches up
    Queue,
    /// It is run beside it, at most 16 at once in all processes
    Allow,
}

/// What happens to a command whose lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM in time for it to end by itself, SIGKILL before the lease is over
    Term,
    /// SIGKILL at once
    Kill,
}

/// List the leases that are held.
#[derive(Args, Debug)]
pub(crate) struct Leases {
    /// Write one JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the timers, with the next tick of each and the runs that are claimed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Timers {
    #[command(subcommand)]
    pub(crate) action: Option<TimersAction>,

    /// Write one JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// What else to do with timers.
#[derive(Debug, Subcommand)]
pub(crate) enum TimersAction {
    /// Remove a timer that no process has any more. One that still has it makes it anew, and counts ticks from then on
    Forget {
        /// The timer's name
        name: String,
    },
}

/// List the jobs, with the last run of each.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    pub(crate) action: Option<JobsAction>,

    /// Write one JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// What else to do with jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsAction {
    /// List the last runs of a job, at most 100, the latest first
    History {
        /// The job's name
        name: String,

        /// Write one JSON array, for programs
        #[arg(long)]
        json: bool,
    },
    /// Remove the records of a job
    Forget {
        /// The job's name
        name: String,
    },
}

/// Take a lease away from its holder.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("how").required(true))]
pub(crate) struct Release {
    /// The lease's name
    pub(crate) name: String,

    /// Make the holder's renewals fail, so that it stops; the lease becomes free when its TTL runs out, after the
    /// holder has stopped. Safe
    #[arg(long, group = "how")]
    pub(crate) force: bool,

    /// Free the lease now: the next holder may start while this one still works. Only tokens protect then
    #[arg(long, group = "how")]
    pub(crate) now: bool,
}

/// Watch leases at work: five real processes, one killed, one frozen, two drained, one cut off.
///
/// The processes meet in a store of the demo's own, in a temporary folder that is removed at the end; --store
/// can't be used, and TENURE_STORE changes nothing. Some are
/// `tenure run` of a command, some hold several leases through the library. Each unit of work leaves evidence,
/// and the demo checks in the end that no two ever worked at once and that tokens rose. It takes about ten
/// seconds. Network trouble is injected between a process and the store; all else really happens.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Demo {
    /// Write one JSON object at the end, with the whole history and the verdict, and nothing else
    #[arg(long)]
    pub(crate) json: bool,

    /// The TTL of the leases: more for a very busy machine. Each second makes the demo four longer
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = demo_ttl)]
    pub(crate) ttl: Duration,

    /// Let in somebody who works without a lease, to see the check fail
    #[arg(long, hide = true)]
    pub(crate) rogue: bool,
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let read = || {
        let matches = Cli::command().try_get_matches()?;
        if let Some(demo) = matches.subcommand_matches("demo")
            && demo.value_source("store") == Some(ValueSource::CommandLine)
        {
            let why = "--store can't be used with demo, which has a store of its own";
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, why));
        }
        Cli::from_arg_matches(&matches)
    };
    read().map_err(|mut error| {
        explain(&mut error);
        error
    })
}

/// Adds a tip to an error of those who leave the two dashes out.
fn explain(error: &mut clap::Error) {
    let mut arguments = std::env::args_os();
    let takes_command = |argument: &OsString| ["run", "every", "worker"].iter().any(|name| argument == name);
    let action = arguments.find(takes_command);
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(action) = action
        && !arguments.any(|argument| argument == "--")
    {
        let example = match action.to_str() {
            Some("run") => "run --lease NAME",
            Some("every") => "every PERIOD --name NAME",
            _ => "worker --workload NAME",
        };
        let tip = format!("the command comes after two dashes, as in: tenure {example} -- COMMAND").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// The units that are understood. Months and years are left out: `M` is too easily taken for a minute.
const UNITS: &[&str] = &[
    "ns", "nsec", "us", "usec", "ms", "msec", "s", "sec", "secs", "second", "seconds", "m", "min", "mins",
    "minute", "minutes", "h", "hr", "hrs", "hour", "hours", "d", "day", "days",
];

/// A duration with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(format!("{text} of what? Add a unit, for example {text}s for seconds (ms, s, m, h, d)"));
    }
    let unknown =
        text.split(|c: char| !c.is_alphabetic()).find(|unit| !unit.is_empty() && !UNITS.contains(unit));
    if let Some(unit) = unknown {
        return Err(format!(
            "the unit {unit:?} is not known; there are ms, s, m, h and d, for example 1h30m"
        ));
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// A duration that is not zero.
fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A duration that can be the time between two ticks.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    Period::new(period).map_err(|error| error.to_string())?;
    Ok(period)
}

/// `skip`, or `catch-up=N`.
fn missed(text: &str) -> Result<Missed, String> {
    if text == "skip" {
        return Ok(Missed::Skip);
    }
    let Some(at_most) = text.strip_prefix("catch-up=") else {
        return Err("there are skip, and catch-up=N".to_owned());
    };
    match at_most.parse() {
        Ok(at_most @ 1..=Missed::MOST) => Ok(Missed::CatchUp { at_most }),
        _ => Err(format!("it must be a number between 1 and {}, as in catch-up=10", Missed::MOST)),
    }
}

/// Long enough for a busy machine, and short enough for the demo to stay below a minute.
fn demo_ttl(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        ttl if (Duration::from_secs(1)..=Duration::from_secs(10)).contains(&ttl) => Ok(ttl),
        _ => Err("it must lie between 1s and 10s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(2 * 86400)));
    }

    #[test]
    fn a_bare_number_is_refused_with_a_hint() {
        let hint = duration("15").unwrap_err();
        assert!(hint.contains("15s"), "{hint}");
    }

    #[test]
    fn units_that_could_be_mistaken_are_refused() {
        for text in ["1M", "1y", "2months", "1w", "5x", "", "s", "-5s"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_period_must_leave_time_to_ask_the_store() {
        assert_eq!(period("200ms"), Ok(Duration::from_millis(200)));
        for text in ["0s", "9ms", "200y", "10"] {
            assert!(period(text).is_err(), "{text}");
        }
    }

    #[test]
    fn missed_ticks_are_skipped_or_caught_up_with_up_to_a_limit() {
        assert_eq!(missed("skip"), Ok(Missed::Skip));
        assert_eq!(missed("catch-up=1000"), Ok(Missed::CatchUp { at_most: 1000 }));
        for text in ["", "catch-up", "catch-up=", "catch-up=0", "catch-up=1001", "catch-up=-1", "Skip"] {
            assert!(missed(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn everything_after_the_two_dashes_belongs_to_the_command() {
        let cli = Cli::try_parse_from(["tenure", "run", "--lease", "n", "--", "cat", "-v", "--", "--store"]);
        let Ok(Cli { action: Action::Run(run), store: None, verbose: 0 }) = cli else { panic!("{cli:?}") };
        assert_eq!(run.command, ["cat", "-v", "--", "--store"]);
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
