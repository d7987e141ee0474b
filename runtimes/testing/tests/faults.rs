//! Each fault shows, through a `Tenure`.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::testing::{Crashed, Fault, Fleet, StoreFault, Task};
use tenure::{AcquireError, Ctx, Lease, LostReason, ReleaseOutcome, StoreErrorKind, Tenure, Token};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(15);
const LEASE: &str = "leader";

fn fault(name: &str) -> Fault {
    name.parse().unwrap()
}

fn acquire(fleet: &Fleet, tenure: &Tenure) -> Lease {
    fleet.block_on(async { tenure.acquire(LEASE).await }).unwrap()
}

fn acquiring(fleet: &Fleet, tenure: &Tenure) -> Task<Result<Lease, AcquireError>> {
    let name = tenure.identity().instance().to_owned();
    let tenure = tenure.clone();
    fleet.spawn(&name, async move { tenure.acquire(LEASE).await })
}

fn try_acquire(fleet: &Fleet, tenure: &Tenure) -> Result<Lease, AcquireError> {
    fleet.block_on(async { tenure.try_acquire(LEASE).await })
}

fn granted(task: &Task<Result<Lease, AcquireError>>) -> Lease {
    task.take().expect("it has ended").expect("its process lives").expect("it was granted")
}

/// The token in the store's record.
fn stored(fleet: &Fleet) -> Option<Token> {
    fleet.leases().first().and_then(|record| record.holder.token)
}

/// Who worked when: from the start of a run to when it was dropped or ended, in time since the fleet was made.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

type Entry = (String, &'static str, Duration);

impl Log {
    fn note(&self, tenure: &Tenure, what: &'static str) {
        let since = tenure.now().saturating_since(tenure::Instant::ZERO + Duration::from_secs(1_000_000));
        self.0.lock().unwrap().push((tenure.identity().instance().to_owned(), what, since));
    }

    fn names(&self) -> Vec<(String, &'static str)> {
        self.0.lock().unwrap().iter().map(|(name, what, _)| (name.clone(), *what)).collect()
    }

    fn when(&self, n: usize) -> Duration {
        self.0.lock().unwrap()[n].2
    }
}

/// A worker whose runs are noted.
fn lead(tenure: &Tenure, log: &Log) -> tenure::Worker {
    struct Run(Tenure, Log);
    impl Drop for Run {
        fn drop(&mut self) {
            self.1.note(&self.0, "ends");
        }
    }
    let (own, log) = (tenure.clone(), log.clone());
    let work = move |ctx: Ctx| {
        log.note(&own, "starts");
        let run = Run(own.clone(), log.clone());
        async move {
            let _run = run;
            loop {
                ctx.sleep(SECOND / 10).await;
            }
        }
    };
    tenure.worker(LEASE, work).start().unwrap()
}

#[test]
fn cut_off_a_holder_ends_at_the_fence_and_the_next_one_starts_after_the_ttl() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    let next = acquiring(&fleet, &green);
    fleet.advance(20 * SECOND);
    let fence = lease.deadlines().fence_at;
    fleet.inject("blue", fault("cut-off"));

    let lost = fleet.block_on(lease.lost());
    assert_eq!(lost.why, LostReason::Expired);
    // The last renewal before it counts.
    assert_eq!((blue.now(), lease.deadlines().fence_at), (fence, fence));
    assert!(!lease.is_valid() && !next.is_finished());
    fleet.advance_until(|| next.is_finished());
    assert!(green.now() > lease.deadlines().valid_until);
    assert!(granted(&next).token() > lease.token());
}

#[test]
fn work_of_who_is_cut_off_is_never_beside_that_of_the_next() {
    for seed in 0..20 {
        let fleet = Fleet::seeded(seed);
        let log = Log::default();
        let workers = ["blue", "green"].map(|name| lead(&fleet.start(name), &log));
        fleet.advance(20 * SECOND + Duration::from_millis(seed * 333));
        let (holder, other) = match fleet.holder(LEASE).as_deref() {
            Some("blue") => ("blue", "green"),
            _ => ("green", "blue"),
        };
        fleet.inject(holder, Fault::CutOff);
        fleet.advance(TTL + 5 * SECOND);
        let entry = |name: &str, what| (name.to_owned(), what);
        assert_eq!(log.names(), [entry(holder, "starts"), entry(holder, "ends"), entry(other, "starts")]);
        // Healed it waits for its turn.
        fleet.heal(holder);
        fleet.advance(TTL);
        assert_eq!(log.names().len(), 3);
        drop(workers);
    }
}

#[test]
fn requests_that_are_lost_renew_nothing() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    fleet.inject("blue", fault("requests-lost"));
    let began = fleet.elapsed();
    assert_eq!(fleet.block_on(lease.lost()).why, LostReason::Expired);
    let next = acquire(&fleet, &green);
    assert!(next.token() > lease.token());
    // The TTL counts from the grant: nothing came after it.
    assert!(fleet.elapsed() - began <= TTL + SECOND);
}

#[test]
fn replies_that_are_lost_renew_the_record_and_not_the_lease() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    fleet.inject("blue", fault("replies-lost"));
    assert_eq!(fleet.block_on(lease.lost()).why, LostReason::Expired);
    assert_eq!(stored(&fleet), Some(lease.token()));
    // It was renewed until the fence, so it lives longer than a TTL after the grant.
    fleet.advance_to(tenure::Timestamp::EPOCH + Duration::from_secs(1_767_225_600) + TTL + SECOND);
    assert_eq!(fleet.holder(LEASE).as_deref(), Some("blue"));
    assert!(matches!(try_acquire(&fleet, &green), Err(AcquireError::Busy { .. })));
}

#[test]
fn a_reply_that_is_lost_is_asked_for_again_and_gives_the_same_token() {
    for name in ["replies-lost", "connection-broken", "replies-late:3s"] {
        let fleet = Fleet::new();
        let blue = fleet.start("blue");
        fleet.inject("blue", fault(name));
        let acquiring = acquiring(&fleet, &blue);
        fleet.advance(2 * SECOND);
        let token = stored(&fleet).expect("the request was carried out");
        assert!(!acquiring.is_finished(), "{name}");
        fleet.heal("blue");
        fleet.advance_until(|| acquiring.is_finished());
        assert_eq!(granted(&acquiring).token(), token, "{name}");
    }
}

#[test]
fn without_hints_a_waiter_goes_by_the_ttl() {
    for (name, waited) in [(None, Duration::ZERO), (Some("hints-lost"), 5 * SECOND)] {
        let fleet = Fleet::new();
        let (blue, green) = (fleet.start("blue"), fleet.start("green"));
        let lease = acquire(&fleet, &blue);
        let next = acquiring(&fleet, &green);
        fleet.advance(SECOND);
        if let Some(name) = name {
            fleet.inject("green", fault(name));
        }
        assert_eq!(fleet.block_on(lease.release()), Ok(ReleaseOutcome::Released));
        let began = fleet.elapsed();
        fleet.advance_until(|| next.is_finished());
        let took = fleet.elapsed() - began;
        assert!(took >= waited && took <= waited * 3, "{name:?}: {took:?}");
    }
    // Once hints come again, one says that some are missing.
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    let next = acquiring(&fleet, &green);
    fleet.inject("green", Fault::HintsLost);
    fleet.advance(SECOND);
    fleet.block_on(lease.release()).unwrap();
    fleet.run_until_stalled();
    assert!(!next.is_finished());
    fleet.heal("green");
    fleet.advance(SECOND);
    assert!(granted(&next).is_valid());
}

#[test]
fn who_is_cut_off_hears_nothing_and_looks_once_it_is_not() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    let next = acquiring(&fleet, &green);
    fleet.advance(SECOND);
    fleet.inject("green", Fault::CutOff);
    let asked = green.stats().operations;
    fleet.block_on(lease.release()).unwrap();
    fleet.advance(SECOND);
    assert_eq!(green.stats().operations, asked);
    fleet.heal("green");
    fleet.advance(SECOND);
    assert!(granted(&next).is_valid());
}

#[test]
fn a_reply_that_is_on_its_way_when_the_instance_is_cut_off_is_lost() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", Fault::RepliesLate(SECOND));
    let acquiring = acquiring(&fleet, &blue);
    fleet.advance(SECOND / 2);
    assert!(stored(&fleet).is_some());
    fleet.inject("blue", Fault::CutOff);
    fleet.advance(SECOND);
    assert!(!acquiring.is_finished());
}

#[test]
fn a_request_that_is_on_its_way_when_nothing_passes_any_more_is_not_carried_out() {
    for name in ["requests-late:3s", "requests-repeated:3s"] {
        for trouble in ["cut-off", "requests-lost", "unavailable", "refused", "down"] {
            let fleet = Fleet::new();
            let blue = fleet.start("blue");
            fleet.inject("blue", fault(name));
            let acquiring = acquiring(&fleet, &blue);
            fleet.run_until_stalled();
            // What came the first time is gone.
            fleet.inject_store(StoreFault::Wiped);
            match trouble.parse() {
                Ok(trouble) => fleet.inject("blue", trouble),
                Err(_) => fleet.inject_store(trouble.parse().unwrap()),
            }
            fleet.advance(4 * SECOND);
            assert_eq!(fleet.leases(), [], "{name}, {trouble}");
            drop(acquiring);
        }
    }
}

#[test]
fn hints_go_on_after_a_store_was_wiped() {
    let fleet = Fleet::new();
    let (blue, green, red) = (fleet.start("blue"), fleet.start("green"), fleet.start("red"));
    let first = acquire(&fleet, &red);
    let next = acquiring(&fleet, &green);
    fleet.advance(SECOND);
    fleet.inject_store(StoreFault::Wiped);
    let lease = try_acquire(&fleet, &blue).unwrap();
    fleet.advance(SECOND);
    fleet.block_on(lease.release()).unwrap();
    fleet.advance(SECOND);
    assert!(granted(&next).token() > first.token());
}

#[test]
fn a_late_request_arrives_though_nobody_waits_for_it_and_its_grant_goes_back() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("requests-late:20s"));
    let error = try_acquire(&fleet, &blue).unwrap_err();
    assert!(matches!(error, AcquireError::Unreachable { .. }), "{error}");
    assert_eq!(stored(&fleet), None);
    fleet.heal("blue");
    fleet.advance(20 * SECOND);
    // The release that followed it was late by as much, or it ends with its TTL.
    fleet.advance(TTL);
    assert_eq!(stored(&fleet), None);
    assert!(try_acquire(&fleet, &blue).is_ok());
}

#[test]
fn a_late_request_is_carried_out_when_it_arrives() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("requests-late:1s"));
    let acquiring = acquiring(&fleet, &blue);
    fleet.advance(SECOND / 2);
    assert_eq!(stored(&fleet), None);
    fleet.advance(SECOND / 2);
    assert_eq!(stored(&fleet), Some(granted(&acquiring).token()));
}

#[test]
fn a_late_reply_comes_after_what_it_tells_of() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("replies-late:1s"));
    let acquiring = acquiring(&fleet, &blue);
    fleet.run_until_stalled();
    let token = stored(&fleet).unwrap();
    assert!(!acquiring.is_finished());
    fleet.advance(SECOND);
    let lease = granted(&acquiring);
    assert_eq!(lease.token(), token);
    // Its validity is counted from the request.
    assert!(lease.deadlines().valid_until <= blue.now().saturating_sub(SECOND) + TTL);
}

#[test]
fn a_release_that_arrives_twice_does_not_end_the_next_grant() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    fleet.inject("blue", fault("requests-repeated:3s"));
    fleet.block_on(lease.release()).unwrap();
    let next = acquire(&fleet, &green);
    fleet.advance(4 * SECOND);
    assert!(next.is_valid());
    assert_eq!(stored(&fleet), Some(next.token()));
}

#[test]
fn an_acquisition_that_arrives_again_after_its_release_leaves_an_orphan_for_a_ttl() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("requests-repeated:3s"));
    let lease = acquire(&fleet, &blue);
    fleet.heal("blue");
    fleet.block_on(lease.release()).unwrap();
    fleet.advance(2 * SECOND);
    assert_eq!(stored(&fleet), None);
    fleet.advance(SECOND);
    assert!(stored(&fleet).is_some());
    fleet.advance(TTL);
    assert_eq!(stored(&fleet), None);
}

#[test]
fn a_store_that_is_unavailable_says_so_at_once_and_nothing_was_done() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("unavailable"));
    let Err(AcquireError::Unreachable { error, .. }) = try_acquire(&fleet, &blue) else { panic!("granted") };
    assert_eq!((error.kind, error.lease().unwrap().as_str()), (StoreErrorKind::Transient, LEASE));
    assert_eq!((fleet.elapsed(), stored(&fleet)), (Duration::ZERO, None));
}

#[test]
fn a_store_that_refuses_is_not_asked_in_vain() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("refused"));
    let error = try_acquire(&fleet, &blue).unwrap_err();
    assert!(matches!(error, AcquireError::Refused { .. }), "{error}");
    assert_eq!(stored(&fleet), None);
}

#[test]
fn a_broken_connection_tells_at_once_that_nothing_is_known() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("connection-broken"));
    let Err(AcquireError::Unreachable { error, .. }) = try_acquire(&fleet, &blue) else { panic!("granted") };
    assert_eq!((error.kind, fleet.elapsed()), (StoreErrorKind::Unknown, Duration::ZERO));
}

#[test]
fn a_frozen_holder_finds_itself_lost_first_of_all_and_never_worked_beside_the_next() {
    for seed in 0..20 {
        let fleet = Fleet::seeded(seed);
        let log = Log::default();
        let blue = lead(&fleet.start("blue"), &log);
        fleet.advance(SECOND);
        let green = lead(&fleet.start("green"), &log);
        fleet.advance(10 * SECOND + Duration::from_millis(seed * 111));
        fleet.inject("blue", fault("frozen"));
        fleet.advance(60 * SECOND);
        let entry = |name: &str, what| (name.to_owned(), what);
        // The frozen one has neither ended nor done anything: it does not run.
        assert_eq!(log.names(), [entry("blue", "starts"), entry("green", "starts")]);
        fleet.heal("blue");
        let thawed = fleet.elapsed();
        fleet.run_until_stalled();
        assert_eq!(log.names()[2..], [entry("blue", "ends")]);
        assert_eq!(log.when(2), thawed);
        fleet.advance(60 * SECOND);
        assert_eq!(log.names().len(), 3);
        assert!(matches!(blue.status(), tenure::WorkerStatus::Waiting));
        drop(green);
    }
}

#[test]
fn what_a_frozen_process_has_sent_arrives() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    fleet.inject("blue", fault("requests-late:1s"));
    let acquiring = acquiring(&fleet, &blue);
    fleet.run_until_stalled();
    fleet.inject("blue", Fault::Frozen);
    fleet.advance(2 * SECOND);
    assert!(stored(&fleet).is_some() && !acquiring.is_finished());
    assert_eq!(fleet.faults("blue"), [Fault::RequestsLate(SECOND), Fault::Frozen]);
}

#[test]
fn who_crashes_gives_nothing_back_and_starts_again_as_a_stranger() {
    let fleet = Fleet::new();
    let log = Log::default();
    let first = fleet.start("blue");
    let worker = lead(&first, &log);
    fleet.advance(SECOND);
    let task = fleet.spawn("blue", std::future::pending::<()>());
    fleet.inject("blue", fault("crashed"));
    assert!(matches!(task.take(), Some(Err(Crashed { .. }))));
    assert_eq!(fleet.faults("blue"), [Fault::Crashed]);
    assert_eq!(fleet.holder(LEASE).as_deref(), Some("blue"));
    fleet.run_until_stalled();
    assert!(fleet.block_on(first.acquire("another").into_future()).is_err());
    assert!(matches!(worker.status(), tenure::WorkerStatus::Ended), "{:?}", worker.status());

    let again = fleet.start("blue");
    assert_ne!(again.identity(), first.identity());
    assert_eq!(fleet.faults("blue"), []);
    let next = lead(&again, &log);
    fleet.advance(TTL - 5 * SECOND);
    assert_eq!(log.names().len(), 2);
    fleet.advance(10 * SECOND);
    assert_eq!(log.names().len(), 3);
    drop(next);
}

#[test]
fn a_store_that_is_down_is_down_for_all_and_comes_back_with_what_it_had() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    fleet.inject_store("down".parse().unwrap());
    assert!(matches!(try_acquire(&fleet, &green), Err(AcquireError::Unreachable { .. })));
    fleet.advance(10 * SECOND);
    fleet.heal_store();
    fleet.advance(60 * SECOND);
    assert!(lease.is_valid());
    assert!(matches!(try_acquire(&fleet, &green), Err(AcquireError::Busy { .. })));
}

#[test]
fn a_store_that_forgets_everything_ends_the_holder_and_its_next_tokens_are_higher() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let lease = acquire(&fleet, &blue);
    let next = acquiring(&fleet, &green);
    fleet.advance(10 * SECOND);
    fleet.inject_store("wiped".parse().unwrap());
    assert_eq!(fleet.leases(), []);
    assert_eq!(fleet.block_on(lease.lost()).why, LostReason::NotYours);
    fleet.advance_until(|| next.is_finished());
    let token = granted(&next).token();
    assert!(token > lease.token());
}

#[test]
fn the_tokens_of_one_process_rise_though_store_and_clock_go_back() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    let token = acquire(&fleet, &blue).token();
    fleet.inject_store("clock-back:48h".parse().unwrap());
    fleet.inject_store(StoreFault::Wiped);
    fleet.advance(SECOND);
    assert!(acquire(&fleet, &blue).token() > token);
    // Nobody could tell a new process.
    let green = fleet.start("green");
    fleet.inject_store(StoreFault::Wiped);
    fleet.advance(SECOND);
    assert!(acquire(&fleet, &green).token() < token);
}

#[test]
fn the_wall_clock_steps_and_leases_stay() {
    let fleet = Fleet::new().starting_at("2026-06-01T12:00:00Z");
    let blue = fleet.start("blue");
    let lease = acquire(&fleet, &blue);
    for name in ["clock-ahead:2h", "clock-back:5h"] {
        fleet.inject_store(name.parse().unwrap());
        fleet.advance(60 * SECOND);
        assert!(lease.is_valid(), "{name}");
    }
    let hours = (fleet.wall_clock().as_nanos() - 1_780_315_200_000_000_000) / 1_000_000_000;
    assert_eq!(hours, -3 * 3600 + 120);
}

#[test]
fn whatever_goes_wrong_once_it_is_over_somebody_holds_the_lease() {
    for seed in 0..5 {
        for fault in Fault::ALL {
            let fleet = Fleet::seeded(seed);
            let log = Log::default();
            let mut workers = vec![lead(&fleet.start("blue"), &log), lead(&fleet.start("green"), &log)];
            fleet.advance(7 * SECOND);
            fleet.inject_all(*fault);
            fleet.advance(40 * SECOND);
            if *fault == Fault::Crashed {
                workers.push(lead(&fleet.start("green"), &log));
            }
            fleet.heal_all();
            assert_eq!(fleet.faults("green"), []);
            fleet.advance(TTL + 70 * SECOND);
            let working =
                |worker: &&tenure::Worker| matches!(worker.status(), tenure::WorkerStatus::Working { .. });
            assert_eq!(workers.iter().filter(working).count(), 1, "seed {seed}, {fault}");
            // No two at a time, ever.
            let mut at_work = None;
            for (name, what, when) in &*log.0.lock().unwrap() {
                match *what {
                    "starts" => {
                        assert_eq!(at_work.replace(name.clone()), None, "seed {seed}, {fault}, {when:?}")
                    }
                    _ => at_work = None,
                }
            }
        }
    }
}
