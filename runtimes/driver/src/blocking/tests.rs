//! The handles of plain threads.
