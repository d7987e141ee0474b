//! Lines for the person or the log at the other end of standard error.

use std::fmt;
use std::io::{self, Write};

use rustix::process::getpid;
use rustix::termios::{LocalModes, isatty, tcgetattr, tcgetpgrp};

use crate::tree;

/// Writes one line, `tenure: ...`, to standard error. Whether anybody reads it changes nothing.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes don't mix.
    let _ = Stderr.write_all(format!("tenure: {text}\n").as_bytes());
}

/// The same; false if it had to be left unsaid.
pub(crate) fn could_say(text: &str) -> bool {
    let can = !would_stop();
    line(format_args!("{text}"));
    can
}

/// Standard error that never stops us.
///
/// A process that writes to a terminal whose foreground it does not have is stopped if the terminal is set so
/// (`stty tostop`); stopped, the supervisor would not renew. What can't be said then is left unsaid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if would_stop() { Ok(bytes.len()) } else { io::stderr().write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_stop() -> bool {
    let stderr = io::stderr();
    isatty(&stderr)
        && tcgetpgrp(&stderr).is_ok_and(|foreground| tree::group_of(getpid()) != Some(foreground))
        && tcgetattr(&stderr).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
}
