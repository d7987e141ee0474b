//! The embedded store of Tenure: several processes on one machine, no server.
