//! Tenure on tokio.
