//! The scripts: every change of a lease is one of them, and so is atomic at the server.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

/// A script, called by its digest.
pub(crate) struct Script(redis::Script, &'static str);

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file))));)*
    };
}

scripts! {
    /// Takes a lease, or confirms it.
    ACQUIRE = "acquire.lua";
    /// Extends many leases.
    RENEW = "renew.lua";
    /// Ends a lease and wakes who waits for it.
    RELEASE = "release.lua";
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

/// The keys and arguments of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl Call {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.keys.push(key.into());
        self
    }

    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len()).arg(&self.keys[..]).arg(&self.arguments[..]);
        command
    }
}
