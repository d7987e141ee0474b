//! The suite on smol: on an executor with one thread, on one with several, and on smol's own.

mod hosts;

mod one_thread {
    tenure_suite::suite!(one thread: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(several threads: crate::hosts::Threads);
}

mod global {
    tenure_suite::suite!(shared: crate::hosts::Global);
}
