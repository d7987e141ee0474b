//! Three processes.
