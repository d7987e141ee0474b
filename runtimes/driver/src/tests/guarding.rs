//! Runs of periodic jobs whose work is guarded by something outside of the program, which has to know its limits.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use tenure_core::Deadlines;

use super::*;
use crate::{Ctx, LostReason};

/// Starts a job whose first run stays, and gives its context.
fn running(world: &World, tenure: &Tenure) -> Ctx {
    let seen = Arc::new(Mutex::new(None));
    let place = Arc::clone(&seen);
    let setup = tenure.periodic("a", 60 * SECOND, move |ctx: Ctx| {
        *place.lock().unwrap() = Some(ctx);
        std::future::pending::<()>()
    });
    drop(setup.start().unwrap());
    world.runtime.advance(61 * SECOND);
    seen.lock().unwrap().take().expect("the first tick is run")
}

#[test]
fn a_run_tells_its_owner_and_its_deadlines_after_each_renewal() {
    let world = World::new();
    let tenure = world.tenure();
    let ctx = running(&world, &tenure);
    let [timer] = &world.runtime.block_on(tenure.timers()).unwrap()[..] else { panic!("one timer") };
    assert_eq!(timer.record.claims[0].owner, ctx.owner());
    assert_eq!(timer.record.claims[0].token, ctx.token());

    let mut renewals = ctx.renewals();
    let before = ctx.deadlines();
    assert!(is_pending(renewals.next()), "only those to come");
    world.runtime.advance(TTL);
    let renewed: Deadlines = renewals.next().now_or_never().flatten().expect("it was renewed");
    assert_eq!(renewed, ctx.deadlines(), "the newest");
    assert!(renewed.fence_at > before.fence_at && renewed.kill_at > before.kill_at);
    assert!(is_pending(renewals.next()));
}

#[test]
fn a_run_hears_why_its_claim_is_lost_and_its_renewals_end() {
    let world = World::new();
    let tenure = world.tenure();
    let ctx = running(&world, &tenure);
    let mut renewals = ctx.renewals();
    let mut lost = Box::pin(ctx.lost());
    assert!(poll_once(lost.as_mut()).is_pending());
    world.plan.all(Fault::Hang);
    world.runtime.advance(13 * SECOND);
    assert_eq!(poll_once(lost.as_mut()), Poll::Ready(LostReason::Expired), "at the fence, by the clock");
    assert_eq!(renewals.next().now_or_never(), Some(None));

    let world = World::new();
    let tenure = world.tenure();
    let ctx = running(&world, &tenure);
    assert_eq!(world.runtime.block_on(tenure.forget_timer("a")), Ok(true));
    world.runtime.advance(6 * SECOND);
    assert_eq!(ctx.lost().now_or_never(), Some(LostReason::NotYours), "heard of at the next renewal");
}
