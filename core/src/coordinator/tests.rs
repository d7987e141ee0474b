//! Every row of the table at the head of the machine, who counts, and what a change of the workloads says.

use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::assign::{Assigner, Balanced, Primary};
use crate::lease::LeaseOptions;
use crate::name::Incarnation;
use crate::time::Timestamp;
use crate::timing::{LeaseConfig, StoreClock};

const HOLD_DOWN: Duration = CoordinatorOptions::DEFAULT_HOLD_DOWN;

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn name(text: &str) -> LeaseName {
    LeaseName::new(text).expect("a fine name")
}

fn identity(instance: &str) -> Identity {
    Identity::new(instance, Incarnation::new(1)).expect("a fine name")
}

fn options() -> CoordinatorOptions {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default());
    CoordinatorOptions::new(Balanced, WorkerOptions::new(LeaseOptions::new(timing.expect("it fits"))))
}

/// Shares out four workloads, a to d.
fn four() -> Coordinator {
    Coordinator::new(options(), ["a", "b", "c", "d"].map(name))
}

fn digest(coordinator: &Coordinator) -> Digest {
    coordinator.digest().expect("it is not ending")
}

/// A member that is this many milliseconds old, and takes part in the plans of this digest.
fn member(instance: &str, age: u64, digest: Digest) -> Member {
    let joined = Timestamp::from_nanos(1_000_000 - age as i64);
    let mut member = Member::new(identity(instance), joined);
    member.age = Duration::from_millis(age);
    member.digests = Arc::from([digest]);
    member
}

fn plan(coordinator: &mut Coordinator, now: Instant, members: &[Member]) -> Vec<Step> {
    coordinator.timeout(now);
    coordinator.plan(now, &identity("me"), Some((members, ms(0))), false)
}

/// Makes a plan and starts what is to be started; returns what the instance has then.
fn carry_out(coordinator: &mut Coordinator, now: Instant, members: &[Member]) -> Vec<Step> {
    let steps = plan(coordinator, now, members);
    start(coordinator, &steps);
    steps
}

/// Starts a worker for each workload that is to be started; its number is that of the first letter.
fn start(coordinator: &mut Coordinator, steps: &[Step]) {
    for step in steps {
        if let Step::Start(name) = step {
            coordinator.started(name, worker(name.as_str()));
        }
    }
}

fn worker(name: &str) -> WorkerKey {
    WorkerKey(u64::from(name.as_bytes()[0] - b'a'))
}

fn starts(names: &[&str]) -> Vec<Step> {
    names.iter().map(|text| Step::Start(name(text))).collect()
}

fn drops(names: &[&str], why: DropReason) -> Vec<Step> {
    names.iter().map(|name| Step::Drop(worker(name), why)).collect()
}

/// One that has all four, alone in its fleet, and its own entry of the view.
fn alone() -> (Coordinator, Member) {
    let mut coordinator = four();
    let me = member("me", 60_000, digest(&coordinator));
    assert_eq!(carry_out(&mut coordinator, ms(0), core::slice::from_ref(&me)), starts(&["a", "b", "c", "d"]));
    (coordinator, me)
}

#[test]
fn a_plan_is_made_once_for_each_change_and_comes_before_all_that_is_due() {
    let mut coordinator = four();
    assert_eq!(coordinator.deadline(), Some(Instant::ZERO));
    let me = [member("me", 60_000, digest(&coordinator))];
    assert_eq!(plan(&mut coordinator, ms(0), &me).len(), 4);
    assert_eq!(coordinator.deadline(), None);
    assert_eq!(plan(&mut coordinator, ms(0), &me), []);
    coordinator.touch();
    assert_eq!(coordinator.deadline(), Some(Instant::ZERO));
}

#[test]
fn each_instance_has_its_block_and_those_who_come_and_go_move_it() {
    let (mut coordinator, me) = alone();
    let other = member("other", 30_000, digest(&coordinator));
    coordinator.touch();
    let both = [me.clone(), other];
    assert_eq!(carry_out(&mut coordinator, ms(1), &both), drops(&["c", "d"], DropReason::Rebalance));
    coordinator.worker_ended(&name("c"), worker("c"));
    coordinator.worker_ended(&name("d"), worker("d"));
    assert_eq!(carry_out(&mut coordinator, ms(2), &both), []);
    // The other one dies.
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(3), &[me]), starts(&["c", "d"]));
}

#[test]
fn without_a_view_or_a_place_in_it_the_last_plan_stands() {
    let (mut coordinator, _) = alone();
    let other = member("other", 30_000, digest(&coordinator));
    for view in [None, Some((&[][..], ms(0))), Some((core::slice::from_ref(&other), ms(0)))] {
        coordinator.touch();
        assert_eq!(coordinator.plan(ms(1), &identity("me"), view, false), []);
    }
    assert_eq!(coordinator.workers().count(), 4);
    // What was removed ends all the same.
    coordinator.remove(ms(2), &name("b"));
    let steps = coordinator.plan(ms(2), &identity("me"), None, false);
    assert_eq!(steps, drops(&["b"], DropReason::Removed));
}

#[test]
fn nobody_loses_work_because_the_view_has_not_heard_of_what_it_says_of_itself() {
    let (mut coordinator, me) = alone();
    coordinator.add(ms(1), name("e"));
    assert_eq!(carry_out(&mut coordinator, ms(1), core::slice::from_ref(&me)), starts(&["e"]));
    // The store is out of reach for longer than the old digest is said.
    let at = coordinator.deadline().expect("it is forgotten in the end");
    assert_eq!(at, ms(1) + HOLD_DOWN);
    assert_eq!(carry_out(&mut coordinator, at, core::slice::from_ref(&me)), []);
    // Nor because it still lists the drain that was taken back.
    let listed = Member { draining: true, ..me };
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, at, core::slice::from_ref(&listed)), []);
    assert_eq!(coordinator.workers().count(), 5);
    // Nor if it has heard of another one's change first.
    let other = member("other", 30_000, digest(&coordinator));
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, at, &[listed, other]), drops(&["d", "e"], DropReason::Rebalance));
}

#[test]
fn who_joins_later_counts_once_it_is_older_than_the_hold_down() {
    let (mut coordinator, me) = alone();
    let both = [me, member("other", 1_500, digest(&coordinator))];
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(500), &both), [], "2 s old by now");
    let at = coordinator.deadline().expect("it will settle");
    assert_eq!(at, ms(3_500));
    coordinator.timeout(ms(3_499));
    assert_eq!(coordinator.deadline(), Some(at));
    assert_eq!(carry_out(&mut coordinator, at, &both), drops(&["c", "d"], DropReason::Rebalance));
    assert_eq!(coordinator.deadline(), None);
}

#[test]
fn an_instance_that_has_yet_to_settle_takes_nothing() {
    let mut coordinator = four();
    let both = [member("me", 0, digest(&coordinator)), member("other", 60_000, digest(&coordinator))];
    assert_eq!(carry_out(&mut coordinator, ms(0), &both), []);
    assert_eq!(coordinator.deadline(), Some(ms(5_000)));
    assert_eq!(carry_out(&mut coordinator, ms(5_000), &both), starts(&["c", "d"]));
}

#[test]
fn instances_that_come_within_the_hold_down_of_the_eldest_one_share_the_work_at_once() {
    let mut coordinator = four();
    let digest = digest(&coordinator);
    let founders = [member("a", 5_000, digest), member("b", 4_000, digest), member("me", 0, digest)];
    assert_eq!(carry_out(&mut coordinator, ms(0), &founders), starts(&["d"]));
    assert_eq!(coordinator.deadline(), None);
    // They stay among those who count, however old they all are.
    let later = founders.map(|mut member| {
        member.age += HOLD_DOWN * 100;
        member
    });
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(0), &later), []);
    // One more comes just too late.
    let mut coordinator = four();
    let late = [member("a", 5_001, digest), member("me", 0, digest)];
    assert_eq!(carry_out(&mut coordinator, ms(0), &late), []);
}

#[test]
fn nobody_who_counts_ceases_to_by_time_alone() {
    let digest = digest(&four());
    let ages = [0, 1, 2_500, 4_999, 5_000, 5_001, 7_000, 10_000, 10_001, 60_000];
    for eldest in ages {
        for other in ages.into_iter().filter(|other| *other <= eldest) {
            for third in ages.into_iter().filter(|third| *third <= eldest) {
                let members =
                    [member("a", eldest, digest), member("b", other, digest), member("me", third, digest)];
                let mut coordinator = four();
                let mut had = 0;
                for now in (0..12_000).step_by(500) {
                    let before = coordinator.workers().count();
                    coordinator.touch();
                    let steps = carry_out(&mut coordinator, ms(now), &members);
                    let dropped = steps.iter().filter(|step| matches!(step, Step::Drop(..))).count();
                    // Others that settle may take a part of it, and never all.
                    let has = before + steps.len() - 2 * dropped;
                    assert!(had == 0 || has > 0, "{eldest} {other} {third} at {now}");
                    had = has;
                    for step in steps {
                        if let Step::Drop(worker, _) = step {
                            let name = name(["a", "b", "c", "d"][worker.0 as usize]);
                            coordinator.worker_ended(&name, worker);
                        }
                    }
                }
                assert!(had > 0, "{eldest} {other} {third}: it settles in the end");
            }
        }
    }
}

#[test]
fn whoever_drains_or_says_another_digest_does_not_count() {
    let (mut coordinator, me) = alone();
    let drains = Member { draining: true, ..member("other", 60_000, digest(&coordinator)) };
    let stranger = member("stranger", 60_000, Digest::new(1));
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(1), &[me, drains, stranger]), []);
    assert_eq!(coordinator.workers().count(), 4);
}

#[test]
fn neither_does_it_make_others_wait_for_being_older() {
    let mut coordinator = four();
    let digest = digest(&coordinator);
    let me = member("me", 100, digest);
    let drains = Member { draining: true, ..member("other", 60_000, digest) };
    let stranger = member("stranger", 60_000, Digest::new(1));
    assert_eq!(carry_out(&mut coordinator, ms(0), &[me, drains, stranger]).len(), 4);
}

#[test]
fn of_instances_with_the_same_age_and_time_the_identity_says_who_comes_first() {
    let mut coordinator = four();
    let digest = digest(&coordinator);
    let members =
        [member("him", 60_000, digest), member("me", 60_000, digest), member("you", 60_000, digest)];
    assert_eq!(carry_out(&mut coordinator, ms(0), &members), starts(&["c"]));
    let mut reversed = members;
    reversed.reverse();
    let mut coordinator = four();
    assert_eq!(carry_out(&mut coordinator, ms(0), &reversed), starts(&["c"]));
}

#[test]
fn an_instance_that_drains_drops_everything_and_starts_nothing_until_it_goes_on() {
    let (mut coordinator, me) = alone();
    let view = [me];
    coordinator.touch();
    let steps = coordinator.plan(ms(1), &identity("me"), Some((&view, ms(0))), true);
    assert_eq!(steps, drops(&["a", "b", "c", "d"], DropReason::Drain));
    coordinator.worker_ended(&name("a"), worker("a"));
    assert_eq!(coordinator.plan(ms(2), &identity("me"), Some((&view, ms(0))), true), []);
    // Back again: what is still ending follows when it has.
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(3), &view), starts(&["a"]));
    coordinator.worker_ended(&name("b"), worker("b"));
    assert_eq!(carry_out(&mut coordinator, ms(4), &view), starts(&["b"]));
    assert_eq!(carry_out(&mut coordinator, ms(5), &view), []);
}

#[test]
fn a_workload_whose_worker_has_ended_by_its_policy_is_not_started_again_while_it_belongs_here() {
    let (mut coordinator, me) = alone();
    coordinator.worker_ended(&name("d"), worker("d"));
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(1), core::slice::from_ref(&me)), []);
    let other = member("other", 60_000, digest(&coordinator));
    let both = [me.clone(), other];
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(2), &both), drops(&["c"], DropReason::Rebalance));
    coordinator.touch();
    assert_eq!(carry_out(&mut coordinator, ms(3), &[me]), starts(&["d"]), "it was away meanwhile");
}

#[test]
fn the_end_of_a_worker_that_is_not_the_workloads_means_nothing() {
    let (mut coordinator, _) = alone();
    let before = coordinator.clone();
    coordinator.worker_ended(&name("a"), worker("b"));
    coordinator.worker_ended(&name("z"), worker("a"));
    assert_eq!(coordinator, before);
}

#[test]
fn a_workload_is_added_and_removed_once() {
    let (mut coordinator, me) = alone();
    let before = coordinator.clone();
    assert!(!coordinator.add(ms(1), name("a")));
    assert!(!coordinator.remove(ms(1), &name("e")));
    assert_eq!(coordinator, before);
    assert!(coordinator.add(ms(1), name("e")));
    assert_eq!(carry_out(&mut coordinator, ms(1), core::slice::from_ref(&me)), starts(&["e"]));
    assert!(coordinator.remove(ms(2), &name("e")));
    assert!(!coordinator.remove(ms(2), &name("e")));
    assert_eq!(
        carry_out(&mut coordinator, ms(2), core::slice::from_ref(&me)),
        drops(&["e"], DropReason::Removed)
    );
    assert!(coordinator.names().eq(&["a", "b", "c", "d"].map(name)));
    coordinator.worker_ended(&name("e"), worker("e"));
    assert_eq!(coordinator.workloads.len(), 4, "it is forgotten");
}

#[test]
fn a_workload_that_is_added_again_while_it_ends_starts_when_it_has() {
    let (mut coordinator, me) = alone();
    coordinator.remove(ms(1), &name("a"));
    assert_eq!(carry_out(&mut coordinator, ms(1), core::slice::from_ref(&me)).len(), 1);
    assert!(coordinator.add(ms(2), name("a")));
    assert_eq!(carry_out(&mut coordinator, ms(2), core::slice::from_ref(&me)), []);
    coordinator.worker_ended(&name("a"), worker("a"));
    assert_eq!(carry_out(&mut coordinator, ms(3), core::slice::from_ref(&me)), starts(&["a"]));
}

#[test]
fn a_workload_that_is_added_again_before_the_next_plan_never_ends() {
    let (mut coordinator, me) = alone();
    let was = digest(&coordinator);
    coordinator.remove(ms(1), &name("a"));
    coordinator.add(ms(1), name("a"));
    assert_eq!(digest(&coordinator), was);
    assert!(!coordinator.earlier().any(|digest| digest == was));
    assert_eq!(carry_out(&mut coordinator, ms(1), &[me]), []);
}

#[test]
fn a_workload_that_is_removed_before_it_was_started_or_once_it_is_done_is_forgotten_at_once() {
    let (mut coordinator, me) = alone();
    coordinator.worker_ended(&name("a"), worker("a"));
    coordinator.remove(ms(1), &name("a"));
    coordinator.add(ms(1), name("e"));
    coordinator.remove(ms(1), &name("e"));
    assert_eq!(coordinator.workloads.len(), 3);
    assert_eq!(carry_out(&mut coordinator, ms(1), &[me]), []);
}

#[test]
fn after_a_change_the_digest_before_it_is_said_for_the_time_of_a_hold_down() {
    let (mut one, me) = alone();
    let mut other = one.clone();
    let before = digest(&one);
    one.add(ms(1), name("e"));
    let after = digest(&one);
    assert_ne!(before, after);
    assert!(one.earlier().eq([before]));
    // The one who has changed counts whoever has not, and the other way round.
    let (here, there) =
        (Member { digests: Arc::from([before, after]), ..me }, member("other", 60_000, before));
    let steps = carry_out(&mut one, ms(2), &[here.clone(), there.clone()]);
    assert_eq!(steps, drops(&["d"], DropReason::Rebalance));
    other.touch();
    assert_eq!(carry_out(&mut other, ms(2), &[here, there]), drops(&["c", "d"], DropReason::Rebalance));
    assert!(!one.timeout(ms(5_000)));
    assert!(one.timeout(ms(5_001)));
    assert_eq!(one.earlier().count(), 0);
}

#[test]
fn after_many_changes_the_oldest_and_the_latest_digests_are_said() {
    let (mut coordinator, _) = alone();
    let mut digests = vec![digest(&coordinator)];
    for n in 0..1_000 {
        coordinator.add(ms(1), name(&alloc::format!("extra-{n}")));
        digests.push(digest(&coordinator));
    }
    let said: Vec<_> = coordinator.earlier().collect();
    assert_eq!(said.len(), MOST_EARLIER);
    assert_eq!(said[0], digests[0]);
    assert_eq!(said[1..], digests[1_000 - (MOST_EARLIER - 1)..1_000]);
}

#[test]
fn the_digest_tells_apart_rules_hold_downs_and_workloads_and_nothing_else() {
    let of = |options: CoordinatorOptions, names: &[&str]| {
        digest(&Coordinator::new(options, names.iter().map(|text| name(text))))
    };
    let first = of(options(), &["a", "b"]);
    assert_eq!(first, of(options(), &["b", "a", "b"]));
    assert_ne!(first, of(options(), &["a"]));
    assert_ne!(first, of(options(), &["ab"]));
    assert_ne!(first, of(CoordinatorOptions { hold_down: Duration::ZERO, ..options() }, &["a", "b"]));
    assert_ne!(first, of(CoordinatorOptions { assigner: Primary.into(), ..options() }, &["a", "b"]));
    assert_eq!(first, of(CoordinatorOptions { rebalance: Rebalance::Drain, ..options() }, &["a", "b"]));
    // Programs in other languages come to the same number.
    assert_eq!(first, Digest::of(["balanced", "5000000000", "a", "b"]));
}

#[test]
fn one_that_ends_says_nothing_and_drops_everything() {
    let (mut coordinator, me) = alone();
    coordinator.add(ms(1), name("e"));
    coordinator.ending = true;
    assert_eq!((coordinator.digest(), coordinator.earlier().count()), (None, 0));
    let steps = carry_out(&mut coordinator, ms(1), &[me]);
    assert_eq!(steps, drops(&["a", "b", "c", "d"], DropReason::Ended));
}

#[test]
fn a_fleet_without_workloads_has_nothing_to_do() {
    let mut coordinator = Coordinator::new(options(), []);
    let me = [member("me", 60_000, digest(&coordinator))];
    assert_eq!(carry_out(&mut coordinator, ms(0), &me), []);
    assert_eq!(coordinator.deadline(), None);
}

#[test]
fn ages_and_hold_downs_without_an_end_are_not_waited_for() {
    let mut coordinator =
        Coordinator::new(CoordinatorOptions { hold_down: Duration::MAX, ..options() }, ["a", "b"].map(name));
    let digest = digest(&coordinator);
    let mut other = member("other", 0, digest);
    other.age = Duration::MAX;
    let view = [member("me", 10, digest), other];
    assert_eq!(carry_out(&mut coordinator, ms(1), &view), starts(&["a"]));
    coordinator.add(ms(1), name("c"));
    carry_out(&mut coordinator, ms(1), &view);
    assert_eq!(coordinator.deadline(), None);
    // A corrupt age does no harm either.
    let mut coordinator = four();
    coordinator.touch();
    carry_out(&mut coordinator, Instant::MAX, &view);
    assert_eq!(coordinator.deadline(), None);
}

/// Gives the workloads to everybody and to nobody.
#[derive(Debug)]
struct Broken(fn(usize) -> Vec<Option<usize>>);

impl Assigner for Broken {
    fn text(&self) -> &'static str {
        "broken"
    }

    fn assign(&self, workloads: &[LeaseName], _: &[Member]) -> Vec<Option<usize>> {
        (self.0)(workloads.len())
    }
}

#[test]
fn what_a_rule_leaves_out_or_gives_to_a_place_that_there_is_not_is_nobodys() {
    let given = |rule: fn(usize) -> Vec<Option<usize>>| {
        let options = CoordinatorOptions { assigner: Broken(rule).into(), ..options() };
        let mut coordinator = Coordinator::new(options, ["a", "b", "c"].map(name));
        let me = [member("me", 60_000, digest(&coordinator))];
        carry_out(&mut coordinator, ms(0), &me)
    };
    assert_eq!(given(|_| vec![Some(0)]), starts(&["a"]));
    assert_eq!(given(|_| vec![Some(1), None, Some(0)]), starts(&["c"]));
    assert_eq!(given(|n| vec![Some(0); n + 7]).len(), 3);
    assert_eq!(given(|_| Vec::new()), []);
}

#[test]
fn a_rule_is_shown_the_members_in_the_order_in_which_they_joined() {
    let mut coordinator =
        Coordinator::new(CoordinatorOptions { assigner: Primary.into(), ..options() }, ["a", "b"].map(name));
    let digest = digest(&coordinator);
    // Its clock of expiry has forgotten the eldest for a while, its wall clock has not.
    let mut eldest = member("me", 60_000, digest);
    eldest.age = Duration::from_secs(6);
    let other = member("another", 50_000, digest);
    assert_eq!(carry_out(&mut coordinator, ms(0), &[other, eldest]), starts(&["a", "b"]));
}
