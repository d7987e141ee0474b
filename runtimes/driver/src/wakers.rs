//! The tasks that wait for something to change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Any number of tasks that wait for the same thing.
///
/// It lives under a lock, and a waker runs foreign code when it is woken and when it is dropped: so what comes
/// out is for the caller to let go of once the lock is free.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

/// A place among the [`Wakers`].
#[derive(Debug)]
pub(crate) struct Place(Option<u64>);

impl Place {
    /// None yet.
    pub(crate) const NEW: Self = Self(None);
}

impl Wakers {
    /// Has `waker` woken after the next [`Wakers::take`]; gives back the waker that it replaces.
    #[must_use]
    pub(crate) fn register(&mut self, place: &mut Place, waker: &Waker) -> Option<Waker> {
        let id = *place.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.waiting.get(&id) {
            Some(registered) if registered.will_wake(waker) => None,
            _ => self.waiting.insert(id, waker.clone()),
        }
    }

    #[must_use]
    pub(crate) fn leave(&mut self, place: &mut Place) -> Option<Waker> {
        place.0.take().and_then(|id| self.waiting.remove(&id))
    }

    /// Moves all who wait to `woken`, to be woken once the lock is free.
    pub(crate) fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(std::mem::take(&mut self.waiting).into_values());
    }
}

pub(crate) fn wake(woken: Vec<Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

/// A state, and the tasks that wait for it to change.
#[derive(Debug, Default)]
pub(crate) struct Watched<S>(Mutex<Inner<S>>);

#[derive(Debug, Default)]
struct Inner<S> {
    state: S,
    waiting: Wakers,
}

impl<S> Watched<S> {
    pub(crate) fn new(state: S) -> Self {
        Self(Mutex::new(Inner { state, waiting: Wakers::default() }))
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&self.lock().state)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut S)) {
        let mut woken = Vec::new();
        {
            let mut inner = self.lock();
            change(&mut inner.state);
            inner.waiting.take(&mut woken);
        }
        wake(woken);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a change of what is [`Watched`].
pub(crate) struct Waiting<S> {
    watched: Arc<Watched<S>>,
    place: Place,
}

impl<S> Waiting<S> {
    pub(crate) fn new(watched: &Arc<Watched<S>>) -> Self {
        Self { watched: Arc::clone(watched), place: Place::NEW }
    }

    /// Ready with what `wanted` finds, once it finds something.
    pub(crate) fn poll<T>(&mut self, cx: &Context<'_>, wanted: impl FnOnce(&S) -> Option<T>) -> Poll<T> {
        let mut inner = self.watched.lock();
        let found = wanted(&inner.state);
        let replaced = match found {
            Some(_) => inner.waiting.leave(&mut self.place),
            None => inner.waiting.register(&mut self.place, cx.waker()),
        };
        drop(inner);
        drop(replaced);
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S> Drop for Waiting<S> {
    fn drop(&mut self) {
        let left = self.watched.lock().waiting.leave(&mut self.place);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_moved_to_another_task_is_woken_there_and_who_left_is_not() {
        let (old, new, gone) = (Arc::<Count>::default(), Arc::<Count>::default(), Arc::<Count>::default());
        let mut wakers = Wakers::default();
        let (mut moving, mut leaving) = (Place::NEW, Place::NEW);
        assert!(wakers.register(&mut moving, &old.clone().into()).is_none());
        assert!(wakers.register(&mut leaving, &gone.clone().into()).is_none());
        assert!(wakers.register(&mut moving, &new.clone().into()).is_some());
        assert!(wakers.leave(&mut leaving).is_some());
        let mut woken = Vec::new();
        wakers.take(&mut woken);
        wake(woken);
        let counts = [old, new, gone].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 1, 0]);
    }
}
