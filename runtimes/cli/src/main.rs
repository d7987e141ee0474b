//! The program `tenure`: commands under leases, and a look at the leases.

#[cfg(not(unix))]
compile_error!("the program `tenure` needs a Unix: it runs commands in process groups");

mod alarm;
mod args;
mod clock;
mod exit;
mod failure;
mod guarded;
mod guardian;
mod holder;
mod leases;
mod logs;
mod program;
mod protocol;
mod release;
mod run;
mod say;
mod shim;
mod signals;
mod store;
mod supervisor;
mod terminal;
mod tree;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Action, Cli};
use crate::failure::Failure;
use crate::store::Place;

fn main() -> ExitCode {
    // The roles that `tenure run` gives to further processes come first: they have no command line of their own.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(program::GUARDIAN) => return guardian::run(arguments),
        Some(program::SHIM) => return shim::run(arguments),
        Some(program::FOREGROUND) => return terminal::hand_back(arguments),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            args::explain(&mut error);
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

fn perform(cli: &Cli) -> Result<u8, Failure> {
    logs::start(cli.verbose)?;
    let place = Place::new(cli.store.as_deref())?;
    // The leases are renewed on the worker thread, so that nothing that this thread does (it writes to a standard
    // error that may be stuck) keeps them from it. The guardian is started by this one, which lives to the end.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::INTERNAL, format!("the program could not start: {error}")))?;
    runtime.block_on(async {
        match &cli.action {
            Action::Run(args) => run::run(args, &place).await,
            Action::Leases(args) => leases::leases(args, &place).await,
            Action::Release(args) => release::release(args, &place).await,
        }
    })
}
