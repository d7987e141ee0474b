//! Plain threads over tokio: the suite, and what is tokio's alone.

mod hosts;

use std::future::poll_fn;
use std::task::Poll;

use tenure_driver::blocking::Tenure;
use tenure_memory::MemoryStore;
use tenure_suite::plain::use_all;
use tenure_tokio::Tokio;
use tokio::runtime::Builder;

mod one_thread {
    tenure_suite::suite!(plain threads: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(plain threads: crate::hosts::Threads);
}

fn start() -> Tenure {
    tenure_suite::plain::start(&Tokio::current(), &MemoryStore::new())
}

#[test]
fn a_runtime_that_threads_call_in_needs_nothing_enabled() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        start().scope(|tenure| use_all(&tenure));
        // The last handle goes inside, too.
        drop(start().acquire("a").wait().unwrap());
    });
}

#[test]
fn a_task_that_has_spent_its_budget_may_wait_as_a_thread() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..10_000).for_each(|n| sender.send(n).unwrap());
        poll_fn(|cx| {
            let mut taken = 0;
            while receiver.poll_recv(cx).is_ready() {
                taken += 1;
                assert!(taken < 10_000, "tokio has no budgets any more");
            }
            // From here on tokio's own futures are not ready, whatever happens.
            start().scope(|tenure| use_all(&tenure));
            Poll::Ready(())
        })
        .await;
    });
}

#[test]
fn all_threads_of_a_runtime_may_be_blocked() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = [(); 4].map(|()| runtime.spawn(async { start().scope(|tenure| use_all(&tenure)) }));
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn a_runtime_that_ends_takes_nothing_of_the_threads_along() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let tenure = runtime.block_on(async { start() });
    drop(runtime);
    tenure.scope(|tenure| use_all(&tenure));
}
