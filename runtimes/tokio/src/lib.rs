//! Tenure on tokio.
//!
//! [`Tokio`] is the runtime of the crate `tenure` unless it is told otherwise. The clock is
//! [`tenure_driver::clock::now`], which goes on while the machine sleeps; tokio's own clock does not.

mod own_thread;

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
#[cfg(target_os = "linux")]
use tenure_driver::alarm::TimerFd;
use tenure_driver::alarm::{Sleeps, sleep_until};
use tenure_driver::core::Instant;
use tenure_driver::{Alarm, Runtime, clock, sealed};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use own_thread::OwnThread;

/// A tokio runtime: the one that was current, or one of its own.
#[derive(Clone, Debug)]
pub struct Tokio {
    handle: Option<Handle>,
    own: Option<OwnThread>,
    /// Where work goes that is started outside of any runtime, if that is not `handle`: the thread of the leases is for
    /// nothing else where the program has a runtime.
    program: Option<Handle>,
}

impl Tokio {
    /// The runtime that this is called in. Outside of one, [`Builder::start`] fails with an error that says so.
    ///
    /// The runtime needs its I/O and time drivers: `#[tokio::main]` has them, a `tokio::runtime::Builder` wants
    /// `enable_all`.
    ///
    /// [`Builder::start`]: tenure_driver::Builder::start
    #[must_use]
    pub fn current() -> Self {
        Self { handle: Handle::try_current().ok(), own: None, program: None }
    }

    /// The runtime of whoever waits: that of the driver may be another one, and stuck or gone.
    fn near(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.handle.clone())
    }
}

impl sealed::Sealed for Tokio {}

impl Runtime for Tokio {
    type Alarm = TokioAlarm;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        match (&self.own, &self.handle) {
            (Some(own), _) => own.run(task),
            (None, Some(handle)) => drop(handle.spawn(task)),
            (None, None) => {}
        }
    }

    fn here(&self) -> Self {
        let current = Handle::try_current().ok().or_else(|| self.program.clone());
        Self { handle: current.or_else(|| self.handle.clone()), own: None, program: None }
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        let (own, handle) = OwnThread::new()?;
        let program = self.program.clone().or_else(|| self.handle.clone());
        Ok(Self { handle: Some(handle), own: Some(own), program })
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let Some(handle) = self.near() else { return Box::pin(std::future::pending()) };
        // A task, because a sleep of tokio panics when it is polled while its runtime ends.
        let mut sleep = AbortOnDrop(handle.spawn(sleep_until(at, tokio::time::sleep)));
        Box::pin(async move {
            if (&mut sleep.0).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn alarm(&self) -> TokioAlarm {
        TokioAlarm {
            #[cfg(target_os = "linux")]
            fd: TimerFd::new(register).ok(),
            sleeps: Sleeps::default(),
        }
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        let Some(handle) = self.near() else { return Box::pin(std::future::pending()) };
        // Here rather than in the task: from the call on, a signal is not to end the process.
        let signals = {
            let _entered = handle.enter();
            Signals::listen()
        };
        let mut waiting = AbortOnDrop(handle.spawn(signals.next()));
        Box::pin(async move {
            if (&mut waiting.0).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn check(&self) -> Result<(), String> {
        let missing = |what: &str| {
            Err(format!(
                "the tokio runtime lacks {what}: build it with `enable_all`, or use `#[tokio::main]`"
            ))
        };
        let Some(handle) = &self.handle else {
            return Err(
                "there is no tokio runtime here: call it from an async function that tokio runs, or \
                        inside of `Runtime::enter`"
                    .to_owned(),
            );
        };
        let _entered = handle.enter();
        // tokio tells of a missing driver only by a panic.
        let probe = |probe: fn()| std::panic::catch_unwind(probe).is_ok();
        if !probe(|| drop(tokio::time::sleep(Duration::ZERO))) {
            return missing("its timer");
        }
        #[cfg(target_os = "linux")]
        if !probe(|| drop(TimerFd::new(register))) {
            return missing("its I/O driver");
        }
        Ok(())
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The requests to end, from now on. `None` if the system does not tell.
#[cfg(unix)]
struct Signals(Option<[tokio::signal::unix::Signal; 2]>);

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        Self(interrupt.and_then(|interrupt| Ok([interrupt, terminate?])).ok())
    }

    async fn next(self) {
        let Some(mut signals) = self.0 else { return std::future::pending().await };
        std::future::poll_fn(|cx| {
            let ready = |signal: &mut tokio::signal::unix::Signal| signal.poll_recv(cx).is_ready();
            if signals.iter_mut().map(ready).fold(false, |a, b| a | b) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The alarm of the driver.
pub struct TokioAlarm {
    /// Wakes at once when the machine wakes. `None` if the system gave none.
    #[cfg(target_os = "linux")]
    fd: Option<TimerFd<AsyncFd<OwnedFd>>>,
    /// Without it: looks at the clock once a second.
    sleeps: Sleeps,
}

/// Called inside of the runtime.
#[cfg(target_os = "linux")]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // What replaces it is unsafe: it relies on the descriptor staying open, which an `OwnedFd` that is never
    // taken out warrants.
    #[allow(deprecated, reason = "newer versions of tokio offer no safe form; older ones have no other")]
    AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)
}

impl Alarm for TokioAlarm {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(target_os = "linux")]
        if let Some(fd) = &mut self.fd {
            let fired =
                |fd: &AsyncFd<OwnedFd>| fd.poll_read_ready(cx).map_ok(|mut ready| ready.clear_ready());
            match fd.poll_at(at, fired) {
                Ok(poll) => return poll,
                Err(_broken) => self.fd = None,
            }
        }
        self.sleeps.poll_at(at, cx, |at| Box::pin(sleep_until(at, tokio::time::sleep)))
    }

    fn clear(&mut self) {
        self.sleeps.clear();
        #[cfg(target_os = "linux")]
        if let Some(fd) = &mut self.fd {
            fd.clear();
        }
    }
}

impl fmt::Debug for TokioAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioAlarm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tenure_suite::alarms::goes_off_when_it_is_due;

    use super::*;

    #[test]
    fn an_alarm_without_a_descriptor_goes_off_when_it_is_due() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = TokioAlarm {
                #[cfg(target_os = "linux")]
                fd: None,
                sleeps: Sleeps::default(),
            };
            goes_off_when_it_is_due(&Tokio::current(), alarm).await;
        });
    }
}
