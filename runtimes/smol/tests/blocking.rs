//! Plain threads over smol: the suite.

mod hosts;

mod one_thread {
    tenure_suite::suite!(plain threads: crate::hosts::OneThread);
}

mod threads {
    tenure_suite::suite!(plain threads: crate::hosts::Threads);
}

mod global {
    tenure_suite::suite!(plain threads: crate::hosts::Global);
}
