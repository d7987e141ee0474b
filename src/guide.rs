//! The guide: a page for each thing that one has to understand, in the order in which a newcomer needs them.
//!
//! | page | for |
//! |---|---|
//! | [leases] | work that one instance does at a time: locks, leader election, workers |
//! | [timers] | work that is due now and then, once in the whole fleet |
//! | [assignment] | work that the instances share out among themselves |
//! | [drain] | ending in order: deploys, SIGTERM, operators |
//! | [fencing] | writes that a holder of the past can't do any more |
//! | [choosing_ttls] | what each setting of time costs and buys, with the figures |
//! | [guarantees] | what holds whatever happens, and what does not |
//! | [redis] | Redis and Valkey as the store: URLs, permissions, what replication can't promise |
//! | [nats] | NATS JetStream as the store: servers, URLs, permissions, what an election costs |
//! | [observing] | logs, counts, metrics, and what to be woken up for |
//! | [testing] | tests that let hours pass in milliseconds, and break things by name |
//! | [command_line] | the program `tenure`, for work in any language |
//! | [migrating] | from `SET NX`, from cron, from leader election by a Kubernetes lease |
//! | [writing_an_adapter] | a store of your own |
//!
//! The first three say what there is. Whoever protects data reads [fencing] and [guarantees] before the first deploy.
//!
//! The examples on these pages are compiled and run by the tests, but for a few that need a crate of somebody else. They
//! use the store in memory (`memory:`), so that they leave nothing behind; a program has `tenure::embedded("app")`, which its
//! processes on one machine share, or `tenure::connect(url)`. Each ends with `shutdown`, which is not shown everywhere.

/// Emits a module for each page, with links to its neighbours.
macro_rules! pages {
    ($first:ident $($rest:ident)*) => {
        pages!(@ "Back to [the guide](super)." , $first $($rest)*);
    };
    (@ $before:expr, $page:ident $next:ident $($rest:ident)*) => {
        pages!(@@ $page, concat!($before, " Next: [", stringify!($next), "](super::", stringify!($next), ")."));
        pages!(@ concat!("Before: [", stringify!($page), "](super::", stringify!($page), ")."), $next $($rest)*);
    };
    (@ $before:expr, $page:ident) => {
        pages!(@@ $page, concat!($before, " Back to [the guide](super)."));
    };
    (@@ $page:ident, $neighbours:expr) => {
        pub mod $page {
            #![doc = include_str!(concat!("guide/", stringify!($page), ".md"))]
            //!
            //! ---
            #![doc = $neighbours]
        }
    };
}

pages! {
    leases
    timers
    assignment
    drain
    fencing
    choosing_ttls
    guarantees
    redis
    nats
    observing
    testing
    command_line
    migrating
    writing_an_adapter
}
