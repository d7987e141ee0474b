//! This instance among the members: joining, being seen, leaving.

use super::*;
use crate::{DrainReason, RequestError};

fn listed(world: &World, tenure: &Tenure) -> Vec<String> {
    let members = world.runtime.block_on(tenure.members()).unwrap();
    members.iter().map(|entry| entry.member.identity.instance().to_owned()).collect()
}

fn named(world: &World, name: &str) -> Tenure {
    world.builder().instance(name).store(world.faulty()).start().unwrap()
}

#[test]
fn a_member_is_listed_with_its_labels_until_it_leaves_and_whoever_looks_need_not_join() {
    let world = World::new();
    let observer = named(&world, "observer");
    let builder = world.builder().instance("blue").label("zone", "a").member_ttl(9 * SECOND);
    let tenure = builder.store(world.faulty()).start().unwrap();
    assert!(listed(&world, &observer).is_empty() && tenure.view().is_none());
    world.runtime.block_on(tenure.join()).unwrap();
    world.runtime.block_on(tenure.join()).unwrap();
    let [entry] = &world.runtime.block_on(observer.members()).unwrap()[..] else { panic!("not listed") };
    assert_eq!(entry.member.labels.get("zone"), Some("a"));
    assert_eq!((entry.ttl, entry.marked, entry.member.draining), (9 * SECOND, false, false));
    assert_eq!(entry.metadata.pid, Some(std::process::id()));
    assert_eq!((tenure.view().unwrap().len(), tenure.stats().members), (1, 1));
    world.runtime.advance(10 * TTL);
    assert_eq!(listed(&world, &observer), ["blue"]);
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert!(listed(&world, &observer).is_empty(), "it has not to expire first");
    assert_eq!(world.plan.count("leave"), 1);
}

#[test]
fn who_dies_is_listed_until_its_own_ttl_is_over_whatever_the_ttl_of_leases() {
    let world = World::new();
    let observer = named(&world, "observer");
    let plan = Plan::default();
    let store = Faulty::new(world.store.handle(), plan.clone(), world.runtime.clone());
    let dead = world.builder().instance("dead").member_ttl(4 * SECOND).store(store).start().unwrap();
    world.runtime.block_on(dead.join()).unwrap();
    world.runtime.advance(TTL);
    plan.all(Fault::Hang);
    world.runtime.advance(2 * SECOND);
    assert_eq!(listed(&world, &observer), ["dead"]);
    world.runtime.advance(2 * SECOND);
    assert!(listed(&world, &observer).is_empty());
}

#[test]
fn settings_of_the_membership_that_do_not_fit_are_refused_by_name() {
    let world = World::new();
    let late = world.builder().member_ttl(10 * SECOND).heartbeat(6 * SECOND).store(world.faulty()).start();
    assert!(late.unwrap_err().to_string().contains("heartbeat"));
    let long = world.builder().label("zone", "a".repeat(256)).store(world.faulty()).start();
    assert!(long.unwrap_err().to_string().contains("label"));
}

#[test]
fn joining_waits_for_a_store_that_is_down_and_hears_of_one_that_refuses() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Fail);
    let joined = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.join().await }
    });
    world.runtime.advance(4 * TTL);
    assert!(joined.lock().unwrap().is_none());
    world.plan.all(Fault::Refuse);
    world.runtime.advance(TTL);
    let refused = joined.lock().unwrap().take();
    assert!(matches!(refused, Some(Err(RequestError::Store(_)))), "{refused:?}");
    world.plan.heal();
    assert_eq!(world.runtime.block_on(tenure.join()), Ok(()));
}

/// The end of the membership is what is sent last, whatever the order in which work ends.
#[test]
fn the_heartbeat_ends_last() {
    let world = World::new();
    let tenure = world.tenure();
    let runtime = world.runtime.clone();
    let coordinator = tenure.coordinate(["a", "b", "c"], move |ctx: crate::Ctx| {
        let (runtime, longer) = (runtime.clone(), ctx.name() == "b");
        async move {
            ctx.draining().await;
            if longer {
                runtime.sleep_until(Runtime::now(&runtime) + 25 * SECOND).await;
            }
        }
    });
    let _coordinator = coordinator.start().unwrap();
    let guard = world.acquire(&tenure, "guard");
    world.settle();
    world.plan.forget();
    tenure.begin_shutdown();
    world.runtime.advance(10 * SECOND);
    drop(guard);
    world.runtime.advance(20 * SECOND);
    let kinds: Vec<_> = world.plan.log().into_iter().map(|(kind, ..)| kind).collect();
    let last = |kind| kinds.iter().rposition(|logged| *logged == kind).unwrap();
    assert_eq!(kinds.last(), Some(&"leave"), "{kinds:?}");
    assert!(kinds[..last("release")].iter().filter(|kind| **kind == "heartbeat").count() >= 5);
}

#[test]
fn an_instance_leaves_though_whoever_shut_it_down_is_gone_or_had_no_time() {
    for budget in [Duration::ZERO, 2 * SECOND] {
        let world = World::new();
        let observer = named(&world, "observer");
        let builder = world.builder().instance("blue").shutdown_budget(budget);
        let tenure = builder.store(world.faulty()).start().unwrap();
        world.runtime.block_on(tenure.join()).unwrap();
        // A store that takes its time, but answers.
        world.plan.only("leave", Fault::Late(Duration::from_millis(300)));
        assert!(poll_once(Box::pin(tenure.shutdown()).as_mut()).is_pending(), "and dropped");
        world.runtime.advance(SECOND);
        assert!(listed(&world, &observer).is_empty(), "with {budget:?}");
    }
}

#[test]
fn an_instance_that_gives_its_last_lease_back_late_still_has_time_to_leave() {
    let world = World::new();
    let observer = named(&world, "observer");
    let tenure = named(&world, "blue");
    world.runtime.block_on(tenure.join()).unwrap();
    let guard = world.acquire(&tenure, "a");
    world.plan.only("leave", Fault::Late(Duration::from_millis(300)));
    let begun = world.now();
    let done = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.shutdown().await }
    });
    world.runtime.advance(Duration::from_millis(1_900));
    drop(guard);
    world.runtime.advance(Duration::from_millis(400));
    assert_eq!(*done.lock().unwrap(), Some(Ok(())));
    assert!(listed(&world, &observer).is_empty());
    assert!(world.now().saturating_since(begun) < 3 * SECOND);
}

#[test]
fn a_store_that_never_answers_the_farewell_delays_the_end_by_half_a_second() {
    let world = World::new();
    let tenure = world.tenure();
    world.runtime.block_on(tenure.join()).unwrap();
    world.plan.all(Fault::Hang);
    let begun = world.now();
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    let took = world.now().saturating_since(begun);
    assert!(took <= Duration::from_millis(500), "{took:?}");
}

#[test]
fn what_waits_for_the_fleet_ends_with_the_driver() {
    let world = World::new();
    let tenure = world.tenure();
    let draining = spawn(&world.runtime.clone(), tenure.draining());
    world.settle();
    assert!(draining.lock().unwrap().is_none() && !tenure.is_draining());
    world.runtime.shut_down();
    assert!(tenure.is_draining());
    assert_eq!(world.runtime.block_on(tenure.draining()), DrainReason::Shutdown);
    world.runtime.block_on(tenure.drained());
    assert!(matches!(world.runtime.block_on(tenure.join()), Err(RequestError::Closed(_))));
    assert!(world.runtime.block_on(tenure.members()).is_err());
    assert_eq!(world.runtime.block_on(tenure.drain()), Ok(()));
}
