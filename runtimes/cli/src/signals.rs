//! Signals as messages, and which were ignored when the program was started.
//!
//! `nohup` and shells without job control start programs with signals ignored, and mean it: such a signal is
//! neither caught nor forwarded, and the command inherits that it is ignored.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that this process takes as messages from now on.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Signals {
    /// Takes these signals, apart from those that were ignored when the program was started.
    pub(crate) fn listen(wanted: &[Signal]) -> io::Result<Self> {
        wanted
            .iter()
            .filter(|wanted| !is_ignored(**wanted))
            .map(|wanted| Ok((*wanted, signal(SignalKind::from_raw(wanted.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next signal. May be dropped at any time without losing one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether this program was started with the signal ignored. To be asked before any handler is installed.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let bit = u32::try_from(signal.as_raw() - 1).unwrap_or(0);
    ignored().checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
}

/// The ignored signals as a mask, signal 1 in the lowest bit.
fn ignored() -> u64 {
    // There is no way to ask for it without unsafe code but this one. Where it does not exist, none is ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// What people call it.
pub(crate) fn name(signal: Signal) -> String {
    match signal {
        Signal::HUP => "SIGHUP".into(),
        Signal::INT => "SIGINT".into(),
        Signal::QUIT => "SIGQUIT".into(),
        Signal::TERM => "SIGTERM".into(),
        Signal::TSTP => "SIGTSTP".into(),
        Signal::TTIN => "SIGTTIN".into(),
        Signal::TTOU => "SIGTTOU".into(),
        Signal::STOP => "SIGSTOP".into(),
        other => format!("signal {}", other.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_runtime_ignores_sigpipe_and_nobody_ignores_sigkill() {
        assert!(is_ignored(Signal::PIPE));
        assert!(!is_ignored(Signal::KILL));
    }
}
