//! The same on smol.
