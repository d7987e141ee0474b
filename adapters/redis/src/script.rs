//! The scripts: every change is one of them, and so is atomic at the server.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A script, called by its digest.
pub(crate) struct Script(redis::Script, &'static str);

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($file:literal)+;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)));)*
    };
}

scripts! {
    /// Takes a lease, or confirms it.
    ACQUIRE = "common.lua" "waiters.lua" "acquire.lua";
    /// Extends many leases.
    RENEW = "renew.lua";
    /// Ends a lease and wakes who waits for it.
    RELEASE = "common.lua" "free.lua" "release.lua";
    /// Takes a lease away from whoever has it.
    EVICT = "common.lua" "free.lua" "evict.lua";
    /// Registers a handle as one that waits.
    WATCH = "waiters.lua" "watch.lua";
    /// Forgets that a handle waits.
    UNWATCH = "unwatch.lua";
    /// Tells who has leases.
    LOOK = "common.lua" "look.lua";
    /// Reads a timer.
    TIMER_READ = "common.lua" "timer_read.lua";
    /// Writes a timer if it is what it was.
    TIMER_WRITE = "common.lua" "timer_write.lua";
    /// Removes a timer, or the runs of a job.
    FORGET = "common.lua" "forget.lua";
    /// Reads a run of a job, or all.
    RUN_READ = "common.lua" "run_read.lua";
    /// Writes a run of a job if it is what it was.
    RUN_WRITE = "common.lua" "run_write.lua";
    /// Reads a member's record.
    MEMBER_READ = "common.lua" "member_read.lua";
    /// Writes a member's record if it is what it was, and tells the view.
    MEMBER_WRITE = "common.lua" "fleet.lua" "member_write.lua";
    /// Tells who is listed, or records of members.
    MEMBERS_READ = "common.lua" "members_read.lua";
    /// Reads the records of the processes of an instance.
    MARK_READ = "common.lua" "mark_read.lua";
    /// Writes records of members if they are what they were.
    MARK_WRITE = "common.lua" "fleet.lua" "mark_write.lua";
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self(redis::Script::new(source), source)
    }

    /// The call of it, by digest: fails with NOSCRIPT, and then did nothing, where the server does not have it.
    pub(crate) fn call(&self, call: &Call) -> Cmd {
        call.command("EVALSHA", self.0.get_hash())
    }

    /// The call of it with its source, which the server then has.
    pub(crate) fn call_with_source(&self, call: &Call) -> Cmd {
        call.command("EVAL", self.1)
    }
}

/// The keys and arguments of one call. A command is where the library keeps many texts in one piece of memory.
#[derive(Clone)]
pub(crate) struct Call {
    keys: Cmd,
    arguments: Cmd,
}

impl Call {
    pub(crate) fn new() -> Self {
        // Enough for what is about one lease.
        Self { keys: Cmd::with_capacity(4, 256), arguments: Cmd::with_capacity(8, 512) }
    }

    pub(crate) fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.push_key(key.as_ref());
        self
    }

    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.push_arg(argument);
        self
    }

    pub(crate) fn first_key(&self) -> Option<Vec<u8>> {
        self.keys.args_iter().next().map(|key| bytes_of(&key).to_owned())
    }

    pub(crate) fn push_key(&mut self, key: &[u8]) {
        self.keys.arg(key);
    }

    pub(crate) fn push_arg(&mut self, argument: impl ToRedisArgs) {
        self.arguments.arg(argument);
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let texts = || self.keys.args_iter().chain(self.arguments.args_iter());
        let bytes = texts().map(|text| bytes_of(&text).len()).sum::<usize>() + script.len() + 32;
        let mut command = Cmd::with_capacity(texts().count() + 3, bytes);
        command.arg(verb).arg(script).arg(self.keys.args_iter().count());
        for text in texts() {
            command.arg(bytes_of(&text));
        }
        command
    }
}

fn bytes_of<'a>(argument: &Arg<&'a [u8]>) -> &'a [u8] {
    match argument {
        Arg::Simple(bytes) => bytes,
        // The place of a cursor, which no script has.
        _ => b"",
    }
}
