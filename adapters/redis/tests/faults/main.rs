//! What happens to leases when the server, or the way to it, is in trouble.

#![cfg(target_os = "linux")]

mod ops;

mod needs_redis {
    mod connecting;
    mod connection;
    mod given;
    mod sentinel;
    mod states;
}
