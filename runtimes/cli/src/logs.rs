//! The log, on standard error.

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit;
use crate::failure::Failure;
use crate::say::Stderr;

/// The variable that says what is logged, `target=level,...`; it counts more than `-v`.
const VARIABLE: &str = "TENURE_LOG";

/// Starts logging: warnings, with `-v` what happens, with `-vv` each renewal.
pub(crate) fn start(verbose: u8) -> Result<(), Failure> {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let targets = match std::env::var(VARIABLE) {
        Ok(filter) if !filter.is_empty() => filter.parse::<Targets>().map_err(|error| {
            Failure::new(exit::USAGE, format!("{VARIABLE}={filter:?} can't be understood: {error}"))
        })?,
        // Of our own crates only: those below speak of things that are not the user's.
        // That the lease is lost is said by `run` itself.
        _ => Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("tenure", level)
            // Whoever can't go on for it says so, with the same words.
            .with_target("tenure_redis::cannot_connect", if verbose == 0 { Level::ERROR } else { level })
            .with_target("tenure::lost", if verbose == 0 { Level::ERROR } else { level }),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines).with(targets).init();
    Ok(())
}
