//! What was set up, and is started by nobody.

use std::fmt::Display;
use std::thread;

use crate::events;

/// Tells in the log when the setup that it is part of is dropped: that does nothing, and whoever wrote it thinks otherwise.
#[derive(Debug)]
pub(crate) struct Unstarted {
    what: &'static str,
    name: Option<Box<str>>,
    started: bool,
}

impl Unstarted {
    pub(crate) fn new(what: &'static str, name: impl AsRef<str>) -> Self {
        Self { what, name: Some(name.as_ref().into()), started: false }
    }

    pub(crate) const fn unnamed(what: &'static str) -> Self {
        Self { what, name: None, started: false }
    }

    /// It is being started, with or without success.
    pub(crate) fn begin(mut self) {
        self.started = true;
    }

    fn tell(&self, name: &dyn Display) {
        let what = self.what;
        events::not_started(what, format_args!("{what}{name} was set up and never started: call `start`"));
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if self.started || thread::panicking() {
            return;
        }
        match &self.name {
            Some(name) => self.tell(&format_args!(" {name:?}")),
            None => self.tell(&""),
        }
    }
}
