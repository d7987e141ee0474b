//! A Cluster: all properties of a store, and what happens when slots move and nodes die.

#[path = "../common/mod.rs"]
mod common;

mod needs_redis {
    #[cfg(feature = "tokio")]
    mod tokio {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_cluster(Runtime::tokio(), Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[cfg(feature = "tokio")]
    mod dying;
    #[cfg(feature = "tokio")]
    mod held;
    #[cfg(feature = "tokio")]
    mod layout;
    #[cfg(feature = "tokio")]
    mod moving;
}

mod needs_valkey {
    #[cfg(feature = "smol")]
    mod smol {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_cluster(Runtime::Smol, Flavour::Valkey), needs: "needs valkey", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }
}
