//! The in-process store of Tenure, for tests and single-process programs.
