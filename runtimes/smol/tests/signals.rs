//! What happens on smol when the process is asked to end. A process of its own: signals concern all of it.
#![cfg(unix)]

mod hosts;

mod one_thread {
    tenure_suite::suite!(signals: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(signals: crate::hosts::Threads);
}

mod global {
    tenure_suite::suite!(signals: crate::hosts::Global);
}
