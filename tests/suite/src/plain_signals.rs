//! What a program of plain threads does when the process is asked to end. Signals concern all of it: these are for a
//! test binary of their own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tenure_driver::blocking::Ctx;
use tenure_driver::core::StopReason;
use tenure_driver::{AcquireError, LostReason, WorkerStatus};
use tenure_memory::MemoryStore;

use crate::api::GENEROUS;
use crate::host::Host;
use crate::plain::{everywhere, start, until};

const A_WHILE: Duration = Duration::from_millis(300);

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signal(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

/// In a scope the first signal asks, and the second one stops; what the program does itself comes to its end.
pub fn a_signal_asks_threads_to_end_and_a_second_one_stops_them<H: Host>() {
    let _alone = alone();
    everywhere::<H>(|runtime| {
        let store = MemoryStore::new();
        let value = start(runtime, &store).scope(|tenure| {
            // With the default grace, which is longer than this takes.
            let lease = tenure.acquire("a").wait().unwrap();
            let worker = tenure
                .worker("w", |ctx: Ctx| {
                    ctx.lost();
                })
                .start()
                .unwrap();
            until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
            signal(Signal::TERM);
            assert_eq!(lease.stopping_timeout(GENEROUS), Ok(StopReason::Drain));
            assert!(tenure.draining_timeout(GENEROUS).is_ok());
            let refused = tenure.acquire("b").wait();
            assert!(matches!(refused, Err(AcquireError::ShuttingDown { .. })), "{refused:?}");
            assert!(lease.lost_timeout(A_WHILE).is_err(), "there is its grace");
            assert!(lease.is_valid());
            signal(Signal::INT);
            let lost = lease.lost_timeout(GENEROUS).expect("the second signal stops it");
            assert_eq!(lost.why, LostReason::Stopped(StopReason::Drain));
            worker.ended_timeout(GENEROUS).expect("the second signal stops it");
            // Another one ends nothing.
            signal(Signal::INT);
            7
        });
        assert_eq!(value, 7);
        let other = start(runtime, &store);
        drop(other.try_acquire("a").wait().unwrap());
        other.shutdown().unwrap();
    });
}

/// A program that waits for its end is drained at the first signal, and stopped at a second one.
pub fn a_signal_drains_threads_that_wait_for_it_and_a_second_one_stops_them<H: Host>() {
    let _alone = alone();
    for twice in [false, true] {
        everywhere::<H>(|runtime| {
            let store = MemoryStore::new();
            let tenure = start(runtime, &store);
            let work = move |ctx: Ctx| {
                if twice {
                    // Much longer than it is given.
                    ctx.lost();
                } else {
                    ctx.draining();
                }
            };
            let worker = tenure.worker("w", work).start().unwrap();
            until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
            // While this one listens, too, a signal that comes early does not end the process.
            start(runtime, &store).scope(|_| {
                let sender = {
                    let (tenure, worker) = (tenure.clone(), worker.clone());
                    thread::spawn(move || {
                        until("it drains", || {
                            signal(Signal::TERM);
                            tenure.draining_timeout(A_WHILE).is_ok()
                        });
                        if twice {
                            until("it is stopped", || {
                                signal(Signal::TERM);
                                worker.ended_timeout(A_WHILE).is_ok()
                            });
                        }
                    })
                };
                tenure.until_terminated().unwrap();
                sender.join().unwrap();
            });
            worker.ended_timeout(GENEROUS).unwrap();
            assert!(matches!(tenure.acquire("w").wait(), Err(AcquireError::Closed)), "it is shut down");
            let other = start(runtime, &store);
            drop(other.try_acquire("w").wait().unwrap());
            other.shutdown().unwrap();
        });
    }
}
