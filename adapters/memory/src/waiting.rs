//! Who watches and who waits for which lease, and who is to hear of the members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use tenure_store::core::{Instant, LeaseName, Wake};
use tenure_store::{Hint, HintQueue, HintStream};

/// One store handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HandleId(u64);

/// A release names so many waiters: one would leave the lease idle if just that one is stuck, more would
/// only race each other.
const MOST_CHOSEN: usize = 2;

/// The registrations of all handles.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    handles_made: u64,
    handles: BTreeMap<HandleId, Handle>,
    leases: BTreeMap<LeaseName, Registrations>,
    /// When each waiter's registration ends, so that those that never came back are forgotten.
    ends: BTreeSet<(Instant, LeaseName, HandleId)>,
    /// Whom to wake once the lock is released.
    to_wake: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Handle {
    queue: Option<Arc<HintQueue>>,
    /// The leases with a registration of this handle.
    leases: BTreeSet<LeaseName>,
    /// The last version of the members' view that it was told of; `None` if it has sent no heartbeat.
    members: Option<u64>,
}

#[derive(Debug, Default)]
struct Registrations {
    watchers: BTreeSet<HandleId>,
    /// The longest registered first.
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    handle: HandleId,
    until: Instant,
}

impl Waiting {
    pub(crate) fn new_handle(&mut self) -> HandleId {
        let id = HandleId(self.handles_made);
        self.handles_made += 1;
        self.handles.insert(id, Handle::default());
        id
    }

    /// A new queue for the hints of a handle, in place of the one before.
    pub(crate) fn new_queue(&mut self, id: HandleId) -> Option<HintStream> {
        let queue = Arc::new(HintQueue::new());
        let handle = self.handles.entry(id).or_default();
        if let Some(former) = handle.queue.replace(Arc::clone(&queue)) {
            self.to_wake.extend(former.close_without_waking());
        }
        queue.listen()
    }

    /// Forgets a handle and all that it registered.
    pub(crate) fn forget_handle(&mut self, id: HandleId) {
        let Some(handle) = self.handles.remove(&id) else { return };
        for name in &handle.leases {
            self.forget_in_lease(name, id);
        }
        if let Some(queue) = handle.queue {
            self.to_wake.extend(queue.close_without_waking());
        }
    }

    pub(crate) fn watch(&mut self, name: &LeaseName, id: HandleId) {
        let Some(handle) = self.handles.get_mut(&id) else { return };
        handle.leases.insert(name.clone());
        self.leases.entry(name.clone()).or_default().watchers.insert(id);
    }

    /// Registers a handle as a waiter until then. One that is registered keeps its place.
    pub(crate) fn wait(&mut self, name: &LeaseName, id: HandleId, until: Instant) {
        let Some(handle) = self.handles.get_mut(&id) else { return };
        handle.leases.insert(name.clone());
        let waiters = &mut self.leases.entry(name.clone()).or_default().waiters;
        if let Some(waiter) = waiters.iter_mut().find(|waiter| waiter.handle == id) {
            self.ends.remove(&(waiter.until, name.clone(), id));
            waiter.until = until;
        } else {
            waiters.push(Waiter { handle: id, until });
        }
        self.ends.insert((until, name.clone(), id));
    }

    /// Ends a handle's watch and its waiting.
    pub(crate) fn forget(&mut self, name: &LeaseName, id: HandleId) {
        self.forget_in_lease(name, id);
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.leases.remove(name);
        }
    }

    fn forget_in_lease(&mut self, name: &LeaseName, id: HandleId) {
        self.stop_waiting(name, id);
        if let Some(lease) = self.leases.get_mut(name) {
            lease.watchers.remove(&id);
            if lease.watchers.is_empty() && lease.waiters.is_empty() {
                self.leases.remove(name);
            }
        }
    }

    /// Ends a handle's waiting; if it watches it goes on watching.
    pub(crate) fn stop_waiting(&mut self, name: &LeaseName, id: HandleId) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let Some(place) = lease.waiters.iter().position(|waiter| waiter.handle == id) else { return };
        let waiter = lease.waiters.remove(place);
        self.ends.remove(&(waiter.until, name.clone(), id));
        if lease.watchers.contains(&id) {
            return;
        }
        if lease.watchers.is_empty() && lease.waiters.is_empty() {
            self.leases.remove(name);
        }
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.leases.remove(name);
        }
    }

    /// Forgets the waiters whose registration has ended.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((until, name, id)) = self.ends.first().cloned()
            && until <= now
        {
            self.stop_waiting(&name, id);
        }
    }

    /// Tells all who watch that the lease is free, and names the two who have waited longest. Returns
    /// whether any were named. `releaser` is not named: its process knows already. Nor is a waiter that would
    /// not hear of it.
    pub(crate) fn free(&mut self, name: &LeaseName, releaser: Option<HandleId>) -> bool {
        let Some(lease) = self.leases.get(name) else { return false };
        let chosen: Vec<HandleId> = lease
            .waiters
            .iter()
            .map(|waiter| waiter.handle)
            .filter(|waiter| Some(*waiter) != releaser && lease.watchers.contains(waiter))
            .filter(|waiter| self.handles.get(waiter).is_some_and(|handle| handle.queue.is_some()))
            .take(MOST_CHOSEN)
            .collect();
        for &watcher in &lease.watchers {
            let wake = Wake::Free { chosen: chosen.contains(&watcher) };
            send(&self.handles, &mut self.to_wake, watcher, name, wake);
        }
        // One that still waits after its try registers again.
        for &id in &chosen {
            self.stop_waiting(name, id);
        }
        !chosen.is_empty()
    }

    /// Tells all others who watch that the lease is held.
    pub(crate) fn held(&mut self, name: &LeaseName, holder: HandleId, wake: Wake) {
        let Some(lease) = self.leases.get(name) else { return };
        for &watcher in lease.watchers.iter().filter(|watcher| **watcher != holder) {
            send(&self.handles, &mut self.to_wake, watcher, name, wake);
        }
    }

    /// A heartbeat of this handle was answered: from now on it hears of other versions of the members' view.
    pub(crate) fn told_members(&mut self, id: HandleId, version: u64) {
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.members = Some(version);
        }
    }

    /// Tells all who have sent a heartbeat that the members' view is of this version, unless they know.
    pub(crate) fn members(&mut self, version: u64) {
        for handle in self.handles.values_mut() {
            if handle.members.is_some_and(|told| told != version) {
                handle.members = Some(version);
                self.to_wake
                    .extend(handle.queue.as_ref().and_then(|queue| queue.push_without_waking(Hint::Members)));
            }
        }
    }

    /// Whom to wake, without any lock: a waker may run anything.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.to_wake)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.ends.is_empty()
            && self.handles.values().all(|handle| handle.leases.is_empty())
    }
}

fn send(
    handles: &BTreeMap<HandleId, Handle>,
    to_wake: &mut Vec<Waker>,
    to: HandleId,
    name: &LeaseName,
    wake: Wake,
) {
    if let Some(queue) = handles.get(&to).and_then(|handle| handle.queue.as_ref()) {
        to_wake.extend(queue.push_without_waking(Hint::Lease { name: name.clone(), wake }));
    }
}
