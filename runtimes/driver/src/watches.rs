//! Which leases the store is to send hints about.

use std::collections::{HashMap, VecDeque};

use tenure_core::{CommandId, LeaseName};

/// The most requests of this kind on their way at once.
const MAX_REQUESTS: usize = 64;

/// What is wanted of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Hints; the command wants a reply.
    On(CommandId),
    /// No more hints.
    Off,
}

impl Watch {
    pub(crate) const fn id(self) -> Option<CommandId> {
        match self {
            Self::On(id) => Some(id),
            Self::Off => None,
        }
    }
}

/// Requests to watch and to stop watching. Those about one name go one after the other, or a late one would
/// undo its successor.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    names: HashMap<LeaseName, Name>,
    /// Names with something wanted and nothing running.
    ready: VecDeque<LeaseName>,
    running: usize,
}

#[derive(Debug, Default)]
struct Name {
    running: bool,
    wanted: VecDeque<Watch>,
}

impl Watches {
    /// Queues a request. Returns the command of one that is not needed any more.
    pub(crate) fn want(&mut self, name: LeaseName, watch: Watch) -> Option<CommandId> {
        let entry = self.names.entry(name.clone()).or_default();
        if watch == Watch::Off
            && let Some(&Watch::On(id)) = entry.wanted.back()
        {
            // Not begun yet: it takes nothing to undo it, but what was asked before it stays.
            entry.wanted.pop_back();
            if entry.wanted.back() != Some(&Watch::Off) {
                entry.wanted.push_back(Watch::Off);
            }
            return Some(id);
        }
        entry.wanted.push_back(watch);
        if !entry.running && entry.wanted.len() == 1 {
            self.ready.push_back(name);
        }
        None
    }

    /// The next request to send; [`Watches::ended`] is due for each.
    pub(crate) fn next(&mut self) -> Option<(LeaseName, Watch)> {
        if self.running >= MAX_REQUESTS {
            return None;
        }
        let name = self.ready.pop_front()?;
        let entry = self.names.get_mut(&name)?;
        let watch = entry.wanted.pop_front()?;
        entry.running = true;
        self.running += 1;
        Some((name, watch))
    }

    pub(crate) fn ended(&mut self, name: &LeaseName) {
        let Some(entry) = self.names.get_mut(name) else { return };
        self.running = self.running.saturating_sub(1);
        entry.running = false;
        if entry.wanted.is_empty() {
            self.names.remove(name);
        } else {
            self.ready.push_back(name.clone());
        }
    }

    /// How many names there is something to do about.
    pub(crate) fn entries(&self) -> usize {
        self.names.len() + self.running
    }

    /// How many names wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LeaseName {
        LeaseName::new(text).unwrap()
    }

    #[test]
    fn requests_about_one_name_go_one_after_the_other() {
        let mut watches = Watches::default();
        assert_eq!(watches.want(name("a"), Watch::Off), None);
        assert_eq!(watches.next(), Some((name("a"), Watch::Off)));
        assert_eq!(watches.want(name("a"), Watch::Off), None);
        assert_eq!(watches.next(), None);
        assert_eq!(watches.want(name("b"), Watch::Off), None);
        assert_eq!(watches.next(), Some((name("b"), Watch::Off)));
        watches.ended(&name("a"));
        assert_eq!(watches.next(), Some((name("a"), Watch::Off)));
        watches.ended(&name("a"));
        watches.ended(&name("b"));
        assert_eq!(watches.next(), None);
        assert!(watches.names.is_empty());
    }

    #[test]
    fn so_many_requests_go_at_once_and_no_more() {
        let mut watches = Watches::default();
        for n in 0..MAX_REQUESTS + 1 {
            watches.want(name(&n.to_string()), Watch::Off);
        }
        for n in 0..MAX_REQUESTS {
            assert_eq!(watches.next(), Some((name(&n.to_string()), Watch::Off)));
        }
        assert_eq!(watches.next(), None);
        watches.ended(&name("0"));
        assert_eq!(watches.next(), Some((name(&MAX_REQUESTS.to_string()), Watch::Off)));
    }
}
