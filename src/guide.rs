//! The guide: a page for each thing that one has to understand, in the order in which a newcomer needs them.

macro_rules! pages {
    ($($(#[$about:meta])* $page:ident;)*) => {
        $($(#[$about])* #[doc = include_str!(concat!("guide/", stringify!($page), ".md"))] pub mod $page {})*
    };
}

pages! {
    leases;
    timers;
    assignment;
    drain;
    fencing;
    choosing_ttls;
    guarantees;
    observing;
    testing;
    writing_an_adapter;
    migrating;
}
