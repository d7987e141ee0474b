//! What happens to plain threads over tokio when the process is asked to end. A process of its own: signals concern all of it.
#![cfg(unix)]

mod hosts;

mod one_thread {
    tenure_suite::suite!(signals of plain threads: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(signals of plain threads: crate::hosts::Threads);
}
