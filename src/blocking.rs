//! The same for plain threads.
