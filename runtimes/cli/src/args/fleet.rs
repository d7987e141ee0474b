//! What the command line says of instances and of the work that they share out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure::LeaseName;

use super::{duration, positive};
use crate::{exit, workloads};

/// Run a command for each workload that belongs to this process, of all that are shared out among the processes that
/// have the same ones.
///
/// Start it several times with the same workloads: each workload runs in one process at a time, and each process has
/// its share of them. When a process comes, it is handed its part, once it has stayed for the hold-down. When
/// one is asked to end, the others take over what it has as each command ends; when one dies, they do so once its leases
/// have passed on. Processes share work only if they have the same workloads, the same --assign and the same --hold-down.
///
/// In each argument {workload} stands for the workload's name. The command finds it in TENURE_WORKLOAD, too, which is
/// enough where no argument has it, and TENURE_LEASE (the same name: it is that of the lease), TENURE_TOKEN, TENURE_OWNER
/// and TENURE_INSTANCE in its environment. Its standard input is empty, and it has no terminal to ask at. It ends before
/// its lease does, come what may: also if this program is killed, stopped, or cut off from the store. What it leaves
/// running is asked to end, and killed after the grace. The lease is given back once nothing of it lives. A command that
/// ends is run again as --restart says, after 1 s, after failures in a row after up to 60 s.
///
/// The program runs until SIGTERM, SIGINT, SIGQUIT or SIGHUP. That is passed on to all commands, which may end by
/// themselves within the grace; a second signal kills them. Nothing is started any more. With --from FILE, SIGHUP reads
/// the file again instead. When an operator has it drain (see `tenure drain`), its commands get SIGTERM and the same
/// grace, and it takes no workload until that is taken back.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Worker {
    /// A workload, 1 to 255 bytes; may be given several times
    #[arg(long, value_name = "NAME", value_parser = workloads::name, required_unless_present = "from")]
    pub(crate) workload: Vec<LeaseName>,

    /// Read workloads from a file (- for standard input), one in each line; blank lines, and those that begin with #, say
    /// nothing. SIGHUP reads the file again: a file that can't be read, or has no workloads, changes nothing. Replace
    /// the file as a whole (write another, and rename it), so that nobody reads a half of it
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// Which workload belongs to which process
    #[arg(long, value_name = "RULE", value_enum, default_value_t = Assign::Rendezvous)]
    pub(crate) assign: Assign,

    /// How long a process must have been there to be given work, unless it came that soon after the eldest one
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub(crate) hold_down: Duration,

    /// What becomes of a command whose workload belongs to another process from now on
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnRebalance::Stop)]
    pub(crate) on_rebalance: OnRebalance,

    /// When a command that has ended is run again. Wherever its workload belongs next it is run again in any case, here as
    /// well after a drain that was taken back: this is not for work that is to be done once
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Restart::Always)]
    pub(crate) restart: Restart,

    /// How long a lease outlives its last renewal, and so how soon a workload passes on after a crash
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) ttl: Duration,

    /// How long commands may take to end by themselves once they are asked to; then they are killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,

    #[command(flatten)]
    pub(crate) membership: Membership,

    /// The command and its arguments; everything after -- belongs to it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How a process shows itself to the others.
#[derive(Args, Debug)]
pub(crate) struct Membership {
    /// The name of this process, for people [default: made of machine, process id and a random number]
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,

    /// Show this about the process; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,

    /// How long the process is listed after its last heartbeat, and so how soon others notice that it died
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) member_ttl: Duration,

    /// The time between heartbeats [default: a third of --member-ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) heartbeat: Option<Duration>,
}

/// Which workload belongs to which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Assign {
    /// Few move when a process comes or goes; none has more than 1.25 times its fair share. Give each process a name of
    /// its own that stays (--instance): restarted under it, it gets what it had
    Rendezvous,
    /// The fewest possible move, but nothing bounds what a process may get
    RendezvousUnbounded,
    /// As even as can be; many move when a process comes or goes
    Balanced,
    /// All belong to the process that came first; the others stand by. All go back to it when its drain is taken back, or
    /// when it goes on after it was frozen
    Primary,
}

/// What becomes of a command whose workload belongs elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRebalance {
    /// SIGTERM, and SIGKILL a moment later (2 s, less if --ttl or --grace is short)
    Stop,
    /// SIGTERM, and SIGKILL after the grace
    Drain,
}

/// When a command that has ended by itself is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Restart {
    /// However it ended
    Always,
    /// Unless it ended with code 0
    OnFailure,
    /// Not at all, unless the workload comes to belong to another process
    Never,
}

/// List the instances: the processes of the fleet that are alive.
///
/// A process is listed from its first heartbeat on, until it leaves; if it dies, until the TTL of its last heartbeat is
/// over. `tenure worker` and `tenure every` are instances, and so are programs that use the library and join.
#[derive(Args, Debug)]
pub(crate) struct Instances {
    /// Write one JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Have an instance drain: it ends what it does in order, and takes nothing new.
///
/// The process goes on to live, and to be listed, and works again once the drain is taken back with --undo. What it does
/// is given to others as it ends. It hears of this at once where the store has hints, or with its next heartbeat.
/// Harmless when repeated. A process that is started later under the same name is not concerned.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Drain {
    /// The instance's name; name/INCARNATION for one process among several of that name, of which the first few
    /// characters will do
    #[arg(value_name = "INSTANCE")]
    pub(crate) instance: String,

    /// Take the drain back
    #[arg(long)]
    pub(crate) undo: bool,

    /// Wait until it holds nothing any more, nor what is left of it if it is gone; at most this long, as in --wait=5m
    /// [default: as long as it takes]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration,
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "undo"
    )]
    pub(crate) wait: Option<Option<Duration>>,
}

/// Show all of it: instances, leases, timers and jobs.
#[derive(Args, Debug)]
#[command(after_help = exit::HELP)]
pub(crate) struct Status {
    /// Write one JSON object, for programs; with --watch one in each line
    #[arg(long)]
    pub(crate) json: bool,

    /// Show it again and again, every 2 s or as in --watch=500ms, until Ctrl-C
    #[arg(
        long,
        value_name = "INTERVAL",
        value_parser = positive,
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) watch: Option<Option<Duration>>,
}

/// `NAME=VALUE`.
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be a name and a value, as in zone=a")?;
    Ok((name.to_owned(), value.to_owned()))
}
