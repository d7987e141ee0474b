//! Whatever comes in, from whomever: the node keeps to its rules.

use proptest::prelude::*;
use tenure_core::{Jitter, SplitMix};
use tenure_verify::hostile::{Step, run};

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default()
    })]

    /// S3, S6, S7, S9, as far as a node can keep them alone; and that everything comes to an end.
    #[test]
    fn no_sequence_of_events_panics_and_misuse_changes_nothing(
        steps in prop::collection::vec(step(), 0..400)
    ) {
        // It asserts by itself.
        let _reached = run(&steps);
    }
}

fn step() -> impl Strategy<Value = Step> {
    any::<[u8; Step::LENGTH]>().prop_map(|bytes| Step::read(&bytes))
}

/// Else the test above would show little.
#[test]
fn hostile_events_get_far() {
    let mut source = SplitMix::new(1);
    let mut total = [0; 20];
    for _ in 0..300 {
        let mut step = |_| Step::read(&[(); Step::LENGTH].map(|()| source.below(256) as u8));
        let steps: Vec<Step> = (0..400).map(&mut step).collect();
        let reached = run(&steps);
        let counts = [
            reached.acquired,
            reached.regressed,
            reached.renewed,
            reached.lost,
            reached.released,
            reached.started,
            reached.restarting,
            reached.stuck,
            reached.ticked,
            reached.tick_runs,
            reached.ticks_skipped,
            reached.rebased,
            reached.unreadable,
            reached.views,
            reached.assigned,
            reached.dropped,
            reached.drained,
            reached.resumed,
            reached.left,
            reached.misuse,
        ];
        for (total, count) in total.iter_mut().zip(counts) {
            *total += count;
        }
    }
    assert!(total.iter().all(|count| *count > 10), "{total:?}");
}
