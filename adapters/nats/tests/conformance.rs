//! Stores on real servers have every property that a store must have.

mod common;

mod needs_nats {
    mod tokio {
        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::tokio()), needs: "needs nats-server", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
            tokens_lie_above_the_floor: "tokens are given by the server",
        });
    }

    mod smol {
        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared(Runtime::Smol), needs: "needs nats-server", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
            tokens_lie_above_the_floor: "tokens are given by the server",
        });
    }

    mod three_replicas {
        use crate::common::{At, Runtime};

        tenure_store::conformance!(At::shared_cluster(Runtime::tokio()), needs: "needs nats-server", ignore: {
            a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the server's clock can't be set",
            tokens_lie_above_the_floor: "tokens are given by the server",
        });
    }

    /// The server itself is started again, too, and has kept everything.
    mod started_again {
        use tenure_servers::Nats;

        use crate::common::{At, Restarted, Runtime};

        macro_rules! properties {
            ($($property:ident)*) => {$(
                #[test]
                #[ignore = "needs nats-server"]
                fn $property() {
                    let server = Nats::start();
                    let url = server.url();
                    let at = At { runtime: Runtime::tokio(), url, replicas: 1, server };
                    tenure_store::conformance::$property(&Restarted(at));
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
