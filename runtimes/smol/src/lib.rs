//! Tenure on smol.
//!
//! [`Smol`] is the runtime of `tenure::smol`. The clock is [`tenure_driver::clock::now`], which goes on while the machine
//! sleeps; smol's own clock does not.

mod own_thread;
mod within;

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

#[cfg(target_os = "linux")]
use async_io::Async;
use async_io::Timer;
use async_signal::{Signal, Signals};
use futures::StreamExt;
use futures::future::BoxFuture;
#[doc(no_inline)]
pub use smol::Executor;
#[cfg(target_os = "linux")]
use tenure_driver::alarm::TimerFd;
use tenure_driver::alarm::{Sleeps, sleep_until};
use tenure_driver::core::Instant;
use tenure_driver::{Alarm, Runtime, clock, sealed};

use own_thread::OwnThread;
use within::{Within, let_go};

/// Where smol runs what Tenure does: smol's own executor, or one of the program.
///
/// smol does not tell an executor which one runs it. So all work of workers, coordinators and periodic jobs runs here,
/// wherever it is started.
///
/// ```
/// use std::sync::Arc;
/// use tenure_driver::Builder;
/// use tenure_memory::MemoryStore;
/// use tenure_smol::{Executor, Smol};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let executor = Arc::new(Executor::new());
/// let tenure = Builder::new(Smol::on(&executor)).store(MemoryStore::new()).start()?;
/// smol::block_on(executor.run(async {
///     let lease = tenure.acquire("backup").await?;
///     lease.run(async { println!("alone under token {}", lease.token()) }).await?;
///     lease.release().await?;
///     tenure.shutdown().await?;
///     Ok(())
/// }))
/// # }
/// ```
#[derive(Clone)]
pub struct Smol {
    executor: Place,
    own_thread: Option<OwnThread>,
}

#[derive(Clone)]
enum Place {
    Global,
    Given(Weak<Executor<'static>>),
}

impl Smol {
    /// smol's own executor, that of [`smol::spawn`]. It has one thread, or as many as the variable `SMOL_THREADS` says, and
    /// lives as long as the process.
    ///
    /// Work that blocks that thread keeps the leases from being renewed, unless that is done
    /// [on a thread of its own](tenure_driver::Builder::on_own_thread).
    #[must_use]
    pub const fn global() -> Self {
        Self { executor: Place::Global, own_thread: None }
    }

    /// An executor of the program. Something has to [run](Executor::run) it for as long as a lease is to be renewed.
    ///
    /// Tenure does not keep it alive. When it is dropped, the leases end at once for those who work under them, and are not
    /// given back: others get them when their TTL is over. So [shut down](tenure_driver::Tenure::shutdown) before.
    #[must_use]
    pub fn on(executor: &Arc<Executor<'static>>) -> Self {
        Self { executor: Place::Given(Arc::downgrade(executor)), own_thread: None }
    }
}

impl sealed::Sealed for Smol {}

impl Runtime for Smol {
    type Alarm = SmolAlarm;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(thread) = &self.own_thread {
            return thread.run(task);
        }
        match &self.executor {
            // It panics where there is no thread for its executor: then the task is dropped.
            Place::Global => _ = catch_unwind(AssertUnwindSafe(|| smol::spawn(task).detach())),
            Place::Given(executor) => {
                let Some(executor) = executor.upgrade() else { return };
                executor.spawn(Within::new(&executor, task)).detach();
                let_go(executor);
            }
        }
    }

    fn here(&self) -> Self {
        Self { executor: self.executor.clone(), own_thread: None }
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        Ok(Self { executor: self.executor.clone(), own_thread: Some(OwnThread::new()?) })
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(sleep_until(at, Timer::after))
    }

    fn alarm(&self) -> SmolAlarm {
        SmolAlarm {
            #[cfg(target_os = "linux")]
            fd: TimerFd::new(Async::new).ok(),
            sleeps: Sleeps::default(),
        }
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        // Here rather than in the future: from the call on, a signal is not to end the process.
        let signals = Signals::new(ASKING_TO_END);
        Box::pin(async move {
            if let Ok(mut signals) = signals
                && let Some(Ok(_signal)) = signals.next().await
            {
                return;
            }
            std::future::pending().await
        })
    }

    fn check(&self) -> Result<(), String> {
        if let Place::Given(executor) = &self.executor
            && executor.strong_count() == 0
        {
            return Err(
                "the smol executor has been dropped: keep it for as long as it is to run Tenure".to_owned()
            );
        }
        // smol starts what it needs when that is used first, and tells of a failure only by a panic.
        let started = catch_unwind(|| {
            drop(Signals::new([] as [Signal; 0]));
            if matches!(self.executor, Place::Global) && self.own_thread.is_none() {
                smol::spawn(async {}).detach();
            }
        });
        started.map_err(|_panic| {
            "smol could not be started: the operating system gave no thread or no descriptor for it"
                .to_owned()
        })
    }
}

#[cfg(unix)]
const ASKING_TO_END: [Signal; 2] = [Signal::Int, Signal::Term];
#[cfg(not(unix))]
const ASKING_TO_END: [Signal; 1] = [Signal::Int];

impl fmt::Debug for Smol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executor = match &self.executor {
            Place::Global => "global",
            Place::Given(_) => "given",
        };
        let mut smol = f.debug_struct("Smol");
        smol.field("executor", &executor).field("own_thread", &self.own_thread.is_some()).finish()
    }
}

/// The alarm of the driver.
pub struct SmolAlarm {
    /// Wakes at once when the machine wakes. `None` if the system gave none.
    #[cfg(target_os = "linux")]
    fd: Option<TimerFd<Async<OwnedFd>>>,
    /// Without it: looks at the clock once a second.
    sleeps: Sleeps,
}

impl Alarm for SmolAlarm {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(target_os = "linux")]
        if let Some(fd) = &mut self.fd {
            match fd.poll_at(at, |fd| fd.poll_readable(cx)) {
                Ok(poll) => return poll,
                Err(_broken) => self.fd = None,
            }
        }
        self.sleeps.poll_at(at, cx, |at| Box::pin(sleep_until(at, Timer::after)))
    }

    fn clear(&mut self) {
        self.sleeps.clear();
        #[cfg(target_os = "linux")]
        if let Some(fd) = &mut self.fd {
            fd.clear();
        }
    }
}

impl fmt::Debug for SmolAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmolAlarm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tenure_suite::alarms::goes_off_when_it_is_due;

    use super::*;

    #[test]
    fn an_alarm_without_a_descriptor_goes_off_when_it_is_due() {
        smol::block_on(async {
            let alarm = SmolAlarm {
                #[cfg(target_os = "linux")]
                fd: None,
                sleeps: Sleeps::default(),
            };
            goes_off_when_it_is_due(&Smol::global(), alarm).await;
        });
    }
}
