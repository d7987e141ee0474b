//! The program `tenure`: commands under leases, at the ticks of timers and for workloads, and a look at all of them.

#[cfg(not(unix))]
compile_error!("the program `tenure` needs a Unix: it runs commands in process groups");

mod alarm;
mod args;
mod clock;
mod demo;
mod every;
mod exit;
mod failure;
mod guarded;
mod guardian;
mod history;
mod hold;
mod holder;
mod instances;
mod jobs;
mod leases;
mod list;
mod logs;
mod program;
mod protocol;
mod release;
mod run;
mod say;
mod service;
mod shim;
mod signals;
mod status;
mod store;
mod supervisor;
mod task;
mod terminal;
mod timers;
mod tree;
mod wait;
mod witness;
mod worker;
mod workloads;

use std::process::ExitCode;

use crate::args::{Action, Cli};
use crate::failure::Failure;
use crate::guarded::Surroundings;
use crate::store::Place;

fn main() -> ExitCode {
    // The roles that this program gives to further processes come first: they have no command line of their own.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(program::GUARDIAN) => return guardian::run(arguments, Surroundings::Ours),
        Some(program::APART_GUARDIAN) => return guardian::run(arguments, Surroundings::Apart),
        Some(program::SHIM) => return shim::run(arguments),
        Some(program::DEMO_BOUND) => return demo::member::bound(arguments),
        Some(program::DEMO_WORK) => return demo::member::work(arguments),
        Some(program::DEMO_MEMBER) => return demo::member::member(arguments),
        Some(program::FOREGROUND) => return terminal::hand_back(arguments),
        _ => {}
    }
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are errors in the parser's eyes only.
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    match perform(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say::line(format_args!("{}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

/// The variable that names the store.
const STORE_VARIABLE: &str = "TENURE_STORE";

fn perform(cli: &Cli) -> Result<u8, Failure> {
    logs::start(cli.verbose)?;
    // The leases are renewed on the worker thread, so that nothing that this thread does (it writes to a standard
    // error that may be stuck) keeps them from it. The guardian is started by this one, which lives to the end.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::INTERNAL, format!("the program could not start: {error}")))?;
    let given =
        cli.store.clone().or_else(|| Some(std::env::var_os(STORE_VARIABLE)?.to_string_lossy().into_owned()));
    let place = || Place::new(given.as_deref());
    runtime.block_on(async {
        match &cli.action {
            Action::Run(args) => run::run(args, &place()?).await,
            Action::Every(args) => every::every(args, &place()?, cli.verbose).await,
            Action::Worker(args) => worker::worker(args, &place()?, cli.verbose).await,
            Action::Status(args) => status::status(args, &place()?).await,
            Action::Instances(args) => instances::instances(args, &place()?).await,
            Action::Drain(args) => instances::drain(args, &place()?).await,
            Action::Leases(args) => leases::leases(args, &place()?).await,
            Action::Release(args) => release::release(args, &place()?).await,
            Action::Timers(args) => timers::timers(args, &place()?).await,
            Action::Jobs(args) => jobs::jobs(args, &place()?).await,
            // It has a store of its own.
            Action::Demo(args) => demo::demo(args).await,
        }
    })
}
