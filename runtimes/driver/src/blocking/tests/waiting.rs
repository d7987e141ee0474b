//! How a thread waits: for a future, for a time, and within another wait.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::block_on;

use super::{A_WHILE, GENEROUS, Threads};
use crate::blocking::wait::{wait, wait_at_most};
use crate::blocking::{Plain, TimedOut};
use crate::clock;
use crate::runtime::Runtime;

#[test]
fn it_ends_when_another_thread_answers() {
    let (answer, question) = oneshot::channel();
    let thread = thread::spawn(move || wait(question));
    thread::sleep(Duration::from_millis(20));
    answer.send(7).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(7));
}

#[test]
fn it_gives_up_when_its_time_is_over() {
    let (answer, mut question) = oneshot::channel();
    let begun = clock::now();
    assert_eq!(wait_at_most(&mut question, A_WHILE), Err(TimedOut));
    assert!(clock::now().saturating_since(begun) >= A_WHILE);
    assert_eq!(wait_at_most(&mut question, Duration::ZERO), Err(TimedOut));
    answer.send(7).unwrap();
    assert_eq!(wait_at_most(&mut question, Duration::ZERO), Ok(Ok(7)), "it is looked at once");
}

#[test]
fn a_sleep_needs_no_runtime() {
    let plain = Plain(Threads::default());
    // Longer than the thread goes without a look at the clock.
    for limit in [Duration::from_millis(50), Duration::from_millis(1200)] {
        let at = clock::now() + limit;
        assert_eq!(wait_at_most(plain.sleep_until(at), GENEROUS), Ok(()));
        assert!(clock::now() >= at);
    }
    assert_eq!(plain.0.sleeps.load(Ordering::Relaxed), 0);
}

#[test]
fn within_another_executor_a_sleep_is_the_runtimes() {
    let plain = Plain(Threads::default());
    let sleep = || plain.sleep_until(clock::now() + Duration::from_millis(50));
    block_on(sleep());
    assert_eq!(plain.0.sleeps.load(Ordering::Relaxed), 1);
    // The thread waits, but not for this sleep.
    let sleep = sleep();
    in_time(|| wait(async { block_on(sleep) }));
    assert_eq!(plain.0.sleeps.load(Ordering::Relaxed), 2);
}

#[test]
fn a_wait_within_a_wait_leaves_the_outer_one_its_time() {
    let plain = Plain(Threads::default());
    let mut outer = plain.sleep_until(clock::now() + Duration::from_millis(100));
    let far = clock::now() + 2 * GENEROUS;
    let mut first = true;
    let both = poll_fn(move |cx| {
        let poll = outer.as_mut().poll(cx);
        if std::mem::take(&mut first) {
            assert_eq!(wait_at_most(plain.sleep_until(far), Duration::from_millis(10)), Err(TimedOut));
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                wait(async {
                    let mut sleep = pin!(plain.sleep_until(far));
                    poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx)))
                        .await
                        .is_pending()
                        .then(|| panic!("as it does"))
                })
            }));
            assert!(panicked.is_err());
        }
        poll
    });
    // Without a limit, so that nothing else wakes the thread.
    in_time(|| wait(both));
}

/// On a thread of its own, so that a test ends though that does not.
fn in_time(wait: impl FnOnce() + Send + 'static) {
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        wait();
        ended.send(()).unwrap();
    });
    ends.recv_timeout(GENEROUS).unwrap();
}

#[test]
fn the_token_of_an_executor_around_it_stays() {
    // One that has nothing but `park`, as simple ones do.
    let (told, tells) = mpsc::channel();
    let parker = thread::current();
    thread::spawn(move || {
        tells.recv().unwrap();
        parker.unpark();
    });
    told.send(()).unwrap();
    let (answer, question) = oneshot::channel();
    thread::spawn(move || {
        thread::sleep(A_WHILE);
        answer.send(()).unwrap();
    });
    wait(question).unwrap();
    let begun = clock::now();
    thread::park_timeout(GENEROUS);
    assert!(clock::now().saturating_since(begun) < GENEROUS, "the token was taken");
}
