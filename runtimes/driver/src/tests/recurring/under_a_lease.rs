//! Runs under a lease, with the claims beside it.

use super::*;

#[test]
fn runs_under_a_lease_are_beside_nothing_else_that_has_it() {
    let world = World::new();
    let book = Book::default();
    let (tenure, other) = (world.tenure(), world.tenure());
    let setup = job(&world, &tenure, &book, "here", SECOND).under("database");
    let job = setup.start().unwrap();
    world.runtime.advance(PERIOD + SECOND / 2);
    let [run] = &book.take()[..] else { panic!() };
    let [record] = &world.records()[..] else { panic!("{:?}", world.records()) };
    assert_eq!(record.name, LeaseName::new("database").unwrap());
    assert_eq!(record.holder.token, Some(run.token), "its token is the lease's");
    world.runtime.advance(SECOND);
    assert!(world.records().is_empty() && claims(&world) == 0);

    // Somebody else has it at the next tick.
    let lease = world.acquire(&other, "database");
    world.runtime.advance(PERIOD);
    assert_eq!((book.ticks(), tenure.stats().skipped_ticks), (vec![], 1));
    drop(lease);
    world.runtime.advance(PERIOD);
    assert_eq!(book.ticks(), [3]);
    assert_eq!(drained(&world, &job), Ok(()));
}

#[test]
fn a_drain_under_a_lease_returns_once_the_claim_is_ended_too() {
    let world = World::new();
    let book = Book::default();
    let plan = Plan::default();
    let tenure = world.tenure_with(&plan);
    let job = job(&world, &tenure, &book, "here", SECOND).under("database").start().unwrap();
    world.runtime.advance(PERIOD + SECOND / 2);
    plan.only("finish", Fault::Late(SECOND));
    assert_eq!(drained(&world, &job), Ok(()));
    assert_eq!((claims(&world), world.records()), (0, Vec::new()), "drained means that nothing is left");
    assert_eq!(tenure.stats().open, 0);
}

#[test]
fn a_drain_under_a_lease_returns_at_the_end_of_the_claims_time_if_it_can_not_be_ended() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let job = job(&world, &tenure, &book, "here", SECOND).under("database").start().unwrap();
    world.runtime.advance(PERIOD + SECOND / 2);
    world.plan.only("finish", Fault::Fail);
    let begun = world.now();
    assert_eq!(drained(&world, &job), Ok(()));
    let waited = world.now().saturating_since(begun);
    assert!(waited > TTL / 2 && waited <= TTL + SECOND, "{waited:?}");
    assert_eq!((claims(&world), tenure.stats().open), (0, 0));
}

#[test]
fn a_shutdown_under_a_lease_gives_the_claim_back_or_names_it() {
    for (fault, given_back) in [(Fault::Late(SECOND), true), (Fault::Hang, false)] {
        let world = World::new();
        let book = Book::default();
        let tenure = world.tenure();
        let _job = job(&world, &tenure, &book, "here", SECOND).under("database").start().unwrap();
        world.runtime.advance(PERIOD + SECOND / 2);
        world.plan.only("finish", fault);
        let told = world.runtime.block_on(tenure.shutdown());
        if given_back {
            assert_eq!((told, claims(&world)), (Ok(()), 0));
        } else {
            let error = told.unwrap_err();
            let [(timer, 1)] = &error.ticks[..] else { panic!("{error:?}") };
            assert_eq!((timer.as_str(), claims(&world)), ("p", 1));
        }
    }
}
