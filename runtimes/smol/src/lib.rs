//! Tenure on smol.
