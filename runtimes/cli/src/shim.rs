//! The process that becomes the command.
//!
//! It binds itself to its guardian's life, waits for the word to go, and turns into the command. All of it
//! happens in the command's own process, because the binding belongs to a process and outlasts `exec`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid};

use crate::exit;
use crate::protocol::{Order, receive_with};
use crate::{say, tree};

/// Runs as the shim: the arguments are the guardian's process id and the command.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let guardian = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let (Some(guardian), Some(program)) = (guardian, arguments.next()) else {
        return exit::internal("this is a part of `tenure run`, not to be called by hand");
    };
    let bound = tree::signal_on_death_of_parent(Signal::KILL);
    // The guardian may have died before we were bound to it.
    if bound.is_err() || getppid() != Some(guardian) {
        return exit::internal("the command's guardian is gone; nothing was started");
    }
    match take_stdin() {
        Ok(()) => {}
        // The guardian is gone, or was told that there is no time left.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return ExitCode::from(exit::LOST),
        Err(error) => return exit::internal(&format!("no standard input for the command: {error}")),
    }

    let error = Command::new(&program).args(arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE };
    let hint = if error.kind() == io::ErrorKind::NotFound && program.as_encoded_bytes().contains(&b' ') {
        "; its arguments are words of their own, and a line for a shell is run with: sh -c LINE"
    } else {
        ""
    };
    say::line(format_args!("cannot run {program:?}: {error}{hint}"));
    ExitCode::from(code)
}

/// Waits for the word to go on our standard input, which brings the command's.
fn take_stdin() -> io::Result<()> {
    let (frame, descriptors) = receive_with(io::stdin())?;
    match (Order::parse(&frame), &descriptors[..]) {
        (Some(Order::Go), [stdin]) => Ok(rustix::stdio::dup2_stdin(stdin)?),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
