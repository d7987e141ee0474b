//! What must hold of every fleet, one file per property.

use super::Violation;
use super::world::{Fact, World};

mod a2_one_owner;
mod a3_balanced;
mod a4_nothing_moves;
mod a5_drains;
mod a6_newcomers_wait;
mod c1_claims_are_owned;
mod c2_one_run_at_a_time;
mod c3_claims_of_their_owner;
mod calm;
mod fresh_jitter;
mod l1_takeover;
mod l2_no_needless_loss;
mod l3_recovery;
mod l4_jobs_go_on;
mod limits_are_kept;
mod m1_listed_is_alive;
mod m2_views_are_right;
mod m3_never_returns;
mod m4_never_back;
mod orderly_end;
mod r1_not_yours_is_lost;
mod r2_late_grant_goes_back;
mod r3_looks_after_watch;
mod s1_one_record;
mod s2_belief;
mod s3_in_time;
mod s4_no_overlap;
mod s5_resource;
mod s6_tokens_rise;
mod s7_lost_is_lost;
mod s8_twice_is_once;
mod s9_own_release;
mod t1_never_early;
mod t2_once_in_order;
mod t3_no_drift;
mod t4_never_back;
mod t5_all_are_told;
mod w1_one_run;
mod w2_starts_while_valid;
mod w3_released_after_exit;
mod w4_campaigns_again;
mod w5_rests_between;
mod w6_stuck_is_told;

pub(super) use l3_recovery::Recovery;
pub(super) use orderly_end::OrderlyEnd;

/// A property, and what it remembers of a fleet.
pub(super) trait Invariant {
    /// Its name and statement, in a few words.
    const NAME: &'static str;

    /// Something has happened; the world is as it was just before what follows from it.
    fn observe(&mut self, _fact: &Fact<'_>, _world: &World) -> Result<(), String> {
        Ok(())
    }

    /// What must hold at every moment.
    fn check(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

macro_rules! invariants {
    ($($field:ident: $kind:path),+ $(,)?) => {
        /// All of them.
        #[derive(Default)]
        pub(super) struct Invariants { $($field: $kind),+ }

        impl Invariants {
            pub(super) fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), Violation> {
                $(self.$field.observe(fact, world).map_err(|what| Violation::new(<$kind>::NAME, what))?;)+
                Ok(())
            }

            pub(super) fn check(&mut self, world: &World) -> Result<(), Violation> {
                $(self.$field.check(world).map_err(|what| Violation::new(<$kind>::NAME, what))?;)+
                Ok(())
            }
        }
    };
}

invariants! {
    s1: s1_one_record::OneRecord,
    s2: s2_belief::Belief,
    s3: s3_in_time::InTime,
    s4: s4_no_overlap::NoOverlap,
    s5: s5_resource::Accepted,
    s6: s6_tokens_rise::TokensRise,
    s7: s7_lost_is_lost::LostIsLost,
    s8: s8_twice_is_once::TwiceIsOnce,
    s9: s9_own_release::OwnRelease,
    l1: l1_takeover::Takeover,
    l2: l2_no_needless_loss::NoNeedlessLoss,
    l3: Recovery,
    w1: w1_one_run::OneRun,
    w2: w2_starts_while_valid::StartsWhileValid,
    w3: w3_released_after_exit::ReleasedAfterExit,
    w4: w4_campaigns_again::CampaignsAgain,
    w5: w5_rests_between::RestsBetween,
    w6: w6_stuck_is_told::StuckIsTold,
    r1: r1_not_yours_is_lost::NotYoursIsLost,
    r2: r2_late_grant_goes_back::LateGrantGoesBack,
    r3: r3_looks_after_watch::LooksAfterWatch,
    t1: t1_never_early::NeverEarly,
    t2: t2_once_in_order::OnceInOrder,
    t3: t3_no_drift::NoDrift,
    t4: t4_never_back::NeverBack,
    t5: t5_all_are_told::AllAreTold,
    c1: c1_claims_are_owned::ClaimsAreOwned,
    c2: c2_one_run_at_a_time::OneRunAtATime,
    c3: c3_claims_of_their_owner::OfTheirOwner,
    l4: l4_jobs_go_on::JobsGoOn,
    m1: m1_listed_is_alive::ListedIsAlive,
    m2: m2_views_are_right::ViewsAreRight,
    m3: m3_never_returns::NeverReturns,
    m4: m4_never_back::NeverBack,
    a2: a2_one_owner::OneOwner,
    a3: a3_balanced::IsBalanced,
    a4: a4_nothing_moves::NothingMoves,
    a5: a5_drains::Drains,
    a6: a6_newcomers_wait::NewcomersWait,
    limits: limits_are_kept::Limits,
    jitter: fresh_jitter::FreshJitter,
    calm: calm::Calm,
    end: OrderlyEnd,
}

/// `Err(what)` unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
