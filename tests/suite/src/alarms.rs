//! The waits of a runtime: never over before their time, and set anew at any point.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tenure_driver::core::Instant;
use tenure_driver::{Alarm, Runtime, clock};

use crate::api::GENEROUS;
use crate::host::Host;
use crate::waiting::{run, soon};

/// An alarm goes off when it is due and never before, whatever it was set to before, and also after it was cleared.
pub fn the_alarm_goes_off_when_it_is_due_and_never_before<H: Host>() {
    let host = H::new();
    run(&host, async { goes_off_when_it_is_due(&host.runtime(), host.runtime().alarm()).await });
}

/// The same for an alarm that the test has made.
pub async fn goes_off_when_it_is_due(runtime: &impl Runtime, mut alarm: impl Alarm) {
    for wait in WAITS {
        is_due_after(&mut alarm, wait).await;
    }
    // It is set anew: a late deadline does not hide an early one, nor the other way round.
    assert!(is_set(&mut alarm, clock::now() + GENEROUS).await);
    is_due_after(&mut alarm, SOON).await;
    for far in [clock::now() + GENEROUS, Instant::MAX] {
        assert!(is_set(&mut alarm, far).await);
    }
    is_due_after(&mut alarm, SOON).await;
    // One that went off unseen.
    assert!(is_set(&mut alarm, clock::now() + SOON).await);
    runtime.sleep_until(clock::now() + SOON * 2).await;
    is_due_after(&mut alarm, SOON).await;
    // One that was cleared, and one that went off before.
    assert!(is_set(&mut alarm, clock::now() + SOON).await);
    alarm.clear();
    is_due_after(&mut alarm, SOON).await;
    alarm.clear();
    is_due_after(&mut alarm, SOON).await;
}

/// The last one is longer than any runtime sleeps in one go.
const WAITS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_millis(5),
    Duration::from_millis(1100),
];
const SOON: Duration = Duration::from_millis(10);

async fn is_due_after(alarm: &mut impl Alarm, wait: Duration) {
    let at = clock::now() + wait;
    poll_fn(|cx| alarm.poll_at(at, cx)).await;
    assert!(clock::now() >= at);
}

async fn is_set(alarm: &mut impl Alarm, at: Instant) -> bool {
    poll_fn(|cx| Poll::Ready(alarm.poll_at(at, cx).is_pending())).await
}

/// A sleep ends when it is due and never before, on a thread that knows nothing of the runtime, too, and in whatever task
/// it is polled.
pub fn sleeps_end_when_they_are_due_and_can_be_awaited_anywhere<H: Host>() {
    let host = H::new();
    run(&host, async {
        let runtime = host.runtime();
        for wait in WAITS {
            let at = clock::now() + wait;
            runtime.sleep_until(at).await;
            assert!(clock::now() >= at);
        }
        let (made_here, at) = (runtime.sleep_until(clock::now() + TENTH), clock::now() + TENTH);
        let moved = runtime.clone();
        let (ended, ends) = futures::channel::oneshot::channel();
        let elsewhere = thread::spawn(move || {
            let made_there = moved.sleep_until(at);
            futures::executor::block_on(async {
                made_here.await;
                assert!(clock::now() >= at);
                made_there.await;
            });
            ended.send(clock::now()).unwrap();
        });
        assert!(soon(&runtime, ends).await.unwrap() >= at);
        elsewhere.join().unwrap();
        // Polled once by somebody else, who has no more interest in it.
        let at = clock::now() + TENTH;
        let mut sleep = pin!(runtime.sleep_until(at));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        soon(&runtime, sleep).await;
        assert!(clock::now() >= at);
    });
}

const TENTH: Duration = Duration::from_millis(100);
