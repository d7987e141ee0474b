//! Stores on real servers have every property that a store must have, in either runtime.

mod common;

mod needs_redis {
    #[cfg(feature = "tokio")]
    mod tokio {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::tokio(), Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[cfg(feature = "smol")]
    mod smol {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::Smol, Flavour::Redis), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[cfg(feature = "tokio")]
    mod sentinel {
        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_sentinel(Runtime::tokio()), needs: "needs redis", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    /// The server itself is started again, too, and has kept everything.
    #[cfg(feature = "tokio")]
    mod started_again {
        use tenure_servers::{Config, Redis};

        use crate::common::{At, Restarted, Runtime};

        macro_rules! properties {
            ($($property:ident)*) => {$(
                #[test]
                #[ignore = "needs redis"]
                fn $property() {
                    let server = Redis::with(Config::new().set("appendonly", "yes").set("appendfsync", "always"));
                    let url = server.url();
                    tenure_store::conformance::$property(&Restarted(At { runtime: Runtime::tokio(), url, server }));
                }
            )*};
        }

        properties! {
            tokens_rise_over_reopening
            reopening_keeps_what_is_held
            reopening_keeps_timers
            reopening_keeps_claims
            reopening_keeps_the_records_of_jobs
            reopening_keeps_members
        }
    }
}

mod needs_valkey {
    #[cfg(feature = "tokio")]
    mod tokio {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::tokio(), Flavour::Valkey), needs: "needs valkey", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }

    #[cfg(feature = "smol")]
    mod smol {
        use tenure_servers::Flavour;

        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::Smol, Flavour::Valkey), needs: "needs valkey", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
        });
    }
}
