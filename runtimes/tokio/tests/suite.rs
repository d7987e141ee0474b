//! The suite on tokio: with one thread and with several.

mod hosts;

mod one_thread {
    tenure_suite::suite!(one thread: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(several threads: crate::hosts::Threads);
}
