//! The in-process store of Tenure, for tests and for programs of a single process.
//!
//! A [`MemoryStore`] keeps its leases, timers, records of jobs and members in this process and forgets them with it. All its
//! handles, made by [`MemoryStore::handle`] or by cloning, see the same ones; each one stands for a process of its own, with
//! its own hints and its own place among the waiters.
//!
//! Time is read from a clock that also counts while the machine sleeps, or from the one that a test hands in.
//! Nothing happens by itself: what is over is found and removed by the next operation.
//!
//! ```
//! use tenure_memory::MemoryStore;
//! let store = MemoryStore::new();
//! let other_process = store.handle();
//! # drop(other_process);
//! ```

mod clock;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use tenure_store::core::{Identity, Instant, JobName, LeaseName, Presence, TimerName, Timestamp, Token};
use tenure_store::{
    Acquire, Acquired, DrainMark, Eviction, Heartbeat, Hints, JobRecord, LeaseRecord, Leave, Limits,
    MemberEntry, Release, Released, Renew, Renewed, RunRecord, RunReport, SimpleStore, StoreError,
    TimerAnswer, TimerEntry, TimerRequest, check_claim_floor, check_floor,
};

use crate::clock::Clocks;
use crate::state::State;
use crate::waiting::HandleId;

/// A store in this process: one of the handles on it.
///
/// Dropping a handle ends its hints and forgets what it waits for; its leases live until their TTL is over.
/// The leases are gone with the last handle.
pub struct MemoryStore {
    shared: Arc<Shared>,
    id: HandleId,
}

struct Shared {
    clocks: Clocks,
    state: Mutex<State>,
}

impl MemoryStore {
    /// The highest floor that is accepted. It leaves as many tokens again above it, so that a floor that is
    /// wrong can't use them up.
    pub const MAX_FLOOR: Token = Token::new(u64::MAX / 2);

    /// A new, empty store on the machine's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clocks::real())
    }

    /// A new, empty store whose leases and claims expire by this clock, for tests with a time of their own.
    #[must_use]
    pub fn with_clock(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self::on(Clocks::real().with_now(now))
    }

    /// The same with the wall clock too: timers go by it, tokens begin there, and the times of grants and runs are
    /// read from it. It may step.
    #[must_use]
    pub fn with_clocks(
        now: impl Fn() -> Instant + Send + Sync + 'static,
        wall: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        Self::on(Clocks::real().with_now(now).with_wall(wall))
    }

    fn on(clocks: Clocks) -> Self {
        let mut state = State::default();
        let id = state.waiting.new_handle();
        Self { shared: Arc::new(Shared { clocks, state: Mutex::new(state) }), id }
    }

    /// Another handle on the same leases, as another process would have one.
    #[must_use]
    pub fn handle(&self) -> Self {
        let id = self.with_state(|state| state.waiting.new_handle());
        Self { shared: self.shared.clone(), id }
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = act(&mut state);
        let wakers = state.waiting.take_wakers();
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        answer
    }

    /// Acts on the state as it is now.
    fn now<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.with_state(|state| {
            state.advance(self.shared.clocks.read());
            act(state)
        })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// The same as [`MemoryStore::handle`].
impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        self.handle()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.with_state(|state| state.waiting.forget_handle(self.id));
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("handle", &self.id).finish_non_exhaustive()
    }
}

impl SimpleStore for MemoryStore {
    fn limits(&self) -> Limits {
        Limits::DEFAULT
    }

    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        self.limits().check_acquire(&request)?;
        check_floor(&request, Self::MAX_FLOOR)?;
        self.now(|state| state.acquire(request, self.id))
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        self.limits().check_renew(&request)?;
        Ok(self.now(|state| state.renew(&request)))
    }

    async fn release(&self, request: Release) -> Result<Released, StoreError> {
        Ok(self.now(|state| state.release(&request, self.id)))
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.now(|state| state.inspect(&name)))
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        Ok(self.now(|state| state.list(after.as_ref(), most)))
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.now(|state| state.evict(&name, how)))
    }

    fn hints(&self) -> Option<Hints> {
        self.with_state(|state| state.waiting.new_queue(self.id)).map(StreamExt::boxed)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.now(|state| state.watch(&name, self.id));
        Ok(())
    }

    async fn unwatch(&self, name: LeaseName) {
        self.with_state(|state| state.waiting.forget(&name, self.id));
    }

    async fn timer(&self, request: TimerRequest) -> Result<TimerAnswer, StoreError> {
        self.limits().check_timer(&request)?;
        check_claim_floor(&request, Self::MAX_FLOOR)?;
        self.now(|state| state.timer(&request)).map_err(|error| error.about(&request.name))
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        Ok(self.now(|state| state.timers(after.as_ref(), most)))
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.limits().check_report(&report)?;
        self.now(|state| state.report(&report));
        Ok(())
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        Ok(self.now(|state| state.jobs(after.as_ref(), most)))
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        Ok(self.now(|state| state.runs(&job)))
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        Ok(self.now(|state| state.forget_job(&job)))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Presence, StoreError> {
        self.limits().check_heartbeat(&beat)?;
        self.now(|state| state.heartbeat(&beat, self.id)).map_err(|error| error.about(&beat.identity))
    }

    async fn leave(&self, leave: Leave) -> Result<(), StoreError> {
        self.limits().check(&leave.clone().into())?;
        self.now(|state| state.leave(&leave));
        Ok(())
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        Ok(self.now(|state| state.members(after.as_ref(), most)))
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        Ok(self.now(|state| state.mark(&mark)))
    }

    async fn close(&self) {
        self.with_state(|state| state.waiting.forget_handle(self.id));
    }
}
