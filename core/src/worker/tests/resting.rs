//! How long a worker rests between its runs.

use super::*;
use crate::worker::Worker;

#[test]
fn delays_that_do_not_fit_are_refused() {
    let refused = |first, longest| {
        RestartPolicy::new(Restart::Always).delays(first, longest).expect_err("it does not fit").field
    };
    assert_eq!(refused(Duration::ZERO, LONGEST), "first_delay");
    assert_eq!(refused(LONGEST, FIRST), "longest_delay");
    let policy = RestartPolicy::new(Restart::Never).delays(FIRST, FIRST).expect("it fits");
    assert_eq!((policy.when(), policy.first_delay(), policy.longest_delay()), (Restart::Never, FIRST, FIRST));
}

#[test]
fn the_shortest_delay_is_a_millisecond() {
    let step = Duration::from_millis(1);
    let policy = RestartPolicy::default();
    assert_eq!(policy.delays(step, step).map(|policy| policy.first_delay()), Ok(step));
    let shorter = step - Duration::from_nanos(1);
    assert_eq!(policy.delays(shorter, step).map_err(|error| error.field), Err("first_delay"));
}

#[test]
fn a_worker_wants_a_candidacy_once_its_rest_is_over_and_not_before() {
    let now = Instant::from_nanos(1_000);
    let worker = Worker::new(now, WorkerKey(1), options(Restart::Always), SplitMix::new(1));
    assert_eq!(worker.wants(Instant::from_nanos(999)), None);
    assert_eq!(worker.wants(now).map(|options| options.grace), Some(LeaseOptions::DEFAULT_GRACE));
}

#[test]
fn a_rest_without_an_end_is_not_waited_for() {
    let mut options = options(Restart::Always);
    options.restart = options.restart.delays(Duration::MAX, Duration::MAX).expect("they fit");
    let (mut bench, lease) = Bench::running(options);
    let id = release_id(&bench.exit(lease, Exit::Completed));
    bench.reply(id, Reply::Released { others_chosen: false });
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.node.len(), 1, "the worker is still there, and can be drained");
}

#[test]
fn failures_in_a_row_are_followed_by_growing_rests_and_a_run_that_lasted_ends_the_row() {
    let (mut bench, mut lease) = Bench::running(options(Restart::Always));
    let mut rest = Duration::ZERO;
    for longest in [1, 2, 4, 8, 8, 8] {
        (rest, lease) = bench.rest(lease, Exit::Failed);
        let longest = Duration::from_secs(longest);
        assert!(longest / 2 <= rest && rest <= longest, "{rest:?} is not half of {longest:?} to all of it");
    }
    assert!(rest > FIRST);
    // It lasts for the longest delay, and fails then.
    let since = bench.now;
    let enough = since + LONGEST;
    while bench.now < enough {
        bench.until(|output| matches!(output, Output::Notice(Notice::Renewed { .. })).then_some(()));
    }
    let (rest, lease) = bench.rest(lease, Exit::Failed);
    assert!(rest <= FIRST, "{rest:?}");
    // So does one that came to its end.
    let (_, lease) = bench.rest(lease, Exit::Failed);
    let (_, lease) = bench.rest(lease, Exit::Completed);
    let (rest, _) = bench.rest(lease, Exit::Failed);
    assert!(rest <= FIRST, "{rest:?}");
}

#[test]
fn a_run_that_was_stopped_is_followed_by_the_shortest_rest_also_after_failures() {
    for exit in [Exit::Completed, Exit::Failed, Exit::Stopped, Exit::NotStarted] {
        let (mut bench, mut lease) = Bench::running(options(Restart::Always));
        for _ in 0..3 {
            (_, lease) = bench.rest(lease, Exit::Failed);
        }
        bench.node.drain(bench.now, lease).expect("known");
        bench.news();
        let (rest, lease) = bench.rest(lease, exit);
        assert!(rest <= FIRST, "{rest:?} after {exit:?}");
        // It neither ends the row nor counts in it.
        let (rest, _) = bench.rest(lease, Exit::Failed);
        assert!(rest >= LONGEST / 2, "{rest:?} after {exit:?}");
    }
}

#[test]
fn a_candidacy_that_the_store_refuses_is_repeated_with_growing_rests() {
    let mut bench = Bench::new(options(Restart::Always));
    for longest in [1, 2, 4, 8, 8] {
        let (id, _) = bench.attempt();
        let begun = bench.now;
        let news = bench.reply(id, Reply::Failed(Failure::Refused));
        assert!(news.iter().any(|output| matches!(
            output,
            Output::Notice(Notice::Failed { why: AcquireFailure::Refused, .. })
        )));
        let at = news.iter().find_map(|output| match output {
            Output::Notice(Notice::Restarting { at, .. }) => Some(*at),
            _ => None,
        });
        let rest = at.expect("it says when").saturating_since(begun);
        let longest = Duration::from_secs(longest);
        assert!(longest / 2 <= rest && rest <= longest, "{rest:?} for {longest:?}");
    }
    bench.run();
}
