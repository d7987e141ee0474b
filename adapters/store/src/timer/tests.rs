//! What becomes of a timer's record, operation by operation.

use tenure_core::{Acquisition, AnySchedule, Every, Identity, Incarnation};

use super::*;

const TTL: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(60);

/// A record, the time of its store, and the tokens that it gave.
struct Store {
    record: Option<TimerRecord>,
    time: StoreTime,
    tokens: u64,
}

impl Store {
    fn new() -> Self {
        let time = StoreTime { wall: Timestamp::from_nanos(1_000_000_000_000), now: Instant::ZERO };
        Self { record: None, time, tokens: 0 }
    }

    /// With a timer of one minute.
    fn with_timer() -> Self {
        let mut store = Self::new();
        store.read(None);
        store
    }

    fn pass(&mut self, time: Duration) {
        self.time.wall = self.time.wall + time;
        self.time.now = self.time.now + time;
    }

    fn apply(&mut self, act: &TimerAct) -> TimerAnswer {
        let tokens = &mut self.tokens;
        let token = |floor: Token| -> Result<Token, ()> {
            *tokens = floor.get().max(*tokens) + 1;
            Ok(Token::new(*tokens))
        };
        TimerRecord::apply(&mut self.record, act, self.time, token).unwrap()
    }

    /// Executes an operation a second time at once: nothing else becomes of the record.
    fn twice(&mut self, act: &TimerAct) -> TimerAnswer {
        let answer = self.apply(act);
        let once = self.record.clone();
        self.apply(act);
        assert_eq!(self.record, once, "{act:?} twice");
        answer
    }

    fn read(&mut self, last: Option<u64>) -> TimerView {
        self.view(&TimerAct::Read { schedule: every(PERIOD).text().into(), last })
    }

    fn change(&mut self, revision: u64, change: TimerChange) -> TimerView {
        self.view(&TimerAct::Change { revision, change })
    }

    fn view(&mut self, act: &TimerAct) -> TimerView {
        match self.twice(act) {
            TimerAnswer::Read { view, at } => {
                assert_eq!(at, self.time.wall);
                view
            }
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, process: u128, tick: u64) -> TimerAnswer {
        self.twice(&TimerAct::Claim(claim(process, tick)))
    }

    fn gets(&mut self, claim: TickClaim) -> Token {
        match self.twice(&TimerAct::Claim(claim)) {
            TimerAnswer::Granted(token) => token,
            other => panic!("{other:?}"),
        }
    }

    fn ends(&mut self, process: u128, tick: u64, end: ClaimEnd) -> TimerAnswer {
        self.twice(&finish(process, tick, end))
    }

    fn claims(&self) -> &[Claim] {
        &self.record.as_ref().unwrap().claims
    }
}

fn every(period: Duration) -> AnySchedule {
    Every::new(period).unwrap().into()
}

fn owner(process: u128) -> Owner {
    Identity::new("here", Incarnation::new(process)).unwrap().owner(Acquisition(0))
}

fn claim(process: u128, tick: u64) -> TickClaim {
    let (overlap, metadata) = (Overlap::Skip, Metadata::new());
    TickClaim { tick, owner: owner(process), ttl: TTL, floor: Token::ZERO, attempts: 1, overlap, metadata }
}

fn repeatable(process: u128, tick: u64) -> TickClaim {
    TickClaim { attempts: 3, ..claim(process, tick) }
}

fn overlapping(process: u128, tick: u64, overlap: Overlap) -> TickClaim {
    TickClaim { overlap, ..claim(process, tick) }
}

fn finish(process: u128, tick: u64, end: ClaimEnd) -> TimerAct {
    TimerAct::Finish { tick, owner: owner(process), token: None, end }
}

fn renew(process: u128, tick: u64, token: Token) -> TimerAct {
    TimerAct::Renew { tick, owner: owner(process), token, ttl: TTL }
}

#[test]
fn the_first_reader_makes_the_record_and_later_ones_only_read_it() {
    let mut store = Store::new();
    let made = store.read(None);
    assert_eq!((made.revision, made.base), (1, Tick { n: 0, at: store.time.wall }));
    assert_eq!((made.last, made.claimed), (0, 0));
    store.pass(PERIOD * 3);
    let act = TimerAct::Read { schedule: "every 7s".into(), last: None };
    assert_eq!(store.view(&act), made, "another schedule changes nothing by being read with");
}

#[test]
fn the_last_tick_is_raised_by_those_who_know_of_a_later_one_and_never_falls() {
    let mut store = Store::with_timer();
    assert_eq!(store.read(Some(4)).last, 4);
    assert_eq!(store.read(Some(2)).last, 4);
    assert_eq!(store.read(None).last, 4);
    assert_eq!(store.read(Some(9)).claimed, 0, "that a tick has come says nothing of its claim");
}

#[test]
fn a_forgotten_timer_goes_on_from_the_number_that_its_reader_knows() {
    let mut store = Store::with_timer();
    store.read(Some(5));
    assert_eq!(store.twice(&TimerAct::Forget), TimerAnswer::Removed);
    assert_eq!(store.apply(&TimerAct::Forget), TimerAnswer::NotYours);
    assert_eq!(store.claim(1, 6), TimerAnswer::Taken, "nobody knows whether it was run");
    let change = TimerChange::Stage { at: Tick { n: 6, at: store.time.wall }, schedule: every(TTL) };
    for change in [change, TimerChange::Rebase { last: 6 }] {
        assert_eq!(store.twice(&TimerAct::Change { revision: 1, change }), TimerAnswer::Gone);
        assert_eq!(store.record, None, "it would begin with a number that is too low");
    }
    let anew = store.read(Some(5));
    assert_eq!((anew.base.n, anew.last, anew.claimed), (5, 5, 5));
    assert_eq!(store.claim(1, 5), TimerAnswer::Taken);
    assert!(matches!(store.claim(1, 6), TimerAnswer::Granted(_)));
}

#[test]
fn a_change_of_a_stale_revision_changes_nothing() {
    let mut store = Store::with_timer();
    let before = store.read(Some(3));
    let at = Tick { n: 4, at: store.time.wall + PERIOD };
    for revision in [0, before.revision + 1] {
        let change = TimerChange::Stage { at, schedule: every(TTL) };
        assert_eq!(store.change(revision, change), before);
        assert_eq!(store.change(revision, TimerChange::Rebase { last: 9 }), before);
    }
}

#[test]
fn a_staged_schedule_counts_from_its_tick_on_whoever_comes_first_then() {
    let mut store = Store::with_timer();
    let at = Tick { n: 1, at: store.time.wall + PERIOD };
    let staged = store.change(1, TimerChange::Stage { at, schedule: every(TTL) });
    let next = NextSchedule { at, schedule: every(TTL).text().into() };
    assert_eq!((staged.revision, staged.next), (2, Some(next)));
    assert_eq!(&*staged.schedule, every(PERIOD).text());
    store.pass(PERIOD - Duration::from_nanos(1));
    assert_eq!(store.read(None).base.n, 0);
    store.pass(Duration::from_nanos(1));
    store.claim(1, 1);
    let view = store.record.as_ref().unwrap().view();
    assert_eq!((view.revision, view.base, view.next), (3, at, None));
    assert_eq!(&*view.schedule, every(TTL).text());
}

#[test]
fn a_schedule_takes_the_place_of_one_that_was_to_follow_or_of_none_if_it_counts_already() {
    let mut store = Store::with_timer();
    let at = Tick { n: 1, at: store.time.wall + PERIOD };
    let revision = store.change(1, TimerChange::Stage { at, schedule: every(TTL) }).revision;
    let view = store.change(revision, TimerChange::Stage { at, schedule: every(TTL * 2) });
    assert_eq!(view.next.unwrap().schedule.as_ref(), every(TTL * 2).text());
    let view = store.change(view.revision, TimerChange::Stage { at, schedule: every(PERIOD) });
    assert_eq!(view.next, None);
    let past = Tick { n: 0, at: store.time.wall };
    let view = store.change(view.revision, TimerChange::Stage { at: past, schedule: every(TTL) });
    assert_eq!((view.base, view.next), (past, None), "a tick that has passed needs no waiting for");
}

#[test]
fn a_new_base_is_now_with_the_highest_number_that_anybody_knows() {
    let mut store = Store::with_timer();
    store.pass(PERIOD * 9);
    store.read(Some(7));
    assert!(matches!(store.claim(1, 8), TimerAnswer::Granted(_)));
    store.time.wall = Timestamp::EPOCH;
    let at = Tick { n: 99, at: store.time.wall + PERIOD };
    let revision = store.change(1, TimerChange::Stage { at, schedule: every(TTL) }).revision;
    let view = store.change(revision, TimerChange::Rebase { last: 6 });
    assert_eq!((view.base, view.last), (Tick { n: 8, at: Timestamp::EPOCH }, 8));
    assert_eq!((view.next, &*view.schedule), (None, every(TTL).text()), "what was to follow counts at once");
    let view = store.change(view.revision, TimerChange::Rebase { last: 20 });
    assert_eq!((view.base.n, view.last, view.claimed), (20, 20, 8));
}

#[test]
fn a_tick_is_granted_once_and_none_below_the_last_one() {
    let mut store = Store::with_timer();
    let token = store.gets(claim(1, 5));
    assert_eq!(store.gets(claim(1, 5)), token, "asked again, the same token");
    assert_eq!(store.claim(2, 5), TimerAnswer::Taken);
    for tick in 0..5 {
        assert_eq!(store.claim(2, tick), TimerAnswer::Taken);
    }
    assert_eq!(store.ends(1, 5, ClaimEnd::Finished), TimerAnswer::Removed);
    assert_eq!(store.claim(1, 5), TimerAnswer::Taken);
    assert_eq!(store.claim(2, 5), TimerAnswer::Taken);
    assert!(store.gets(claim(2, 6)) > token);
    assert_eq!(store.read(None).last, 6, "what was claimed has come");
}

#[test]
fn a_confirmation_and_a_renewal_begin_the_ttl_anew() {
    let mut store = Store::with_timer();
    let token = store.gets(claim(1, 1));
    store.pass(TTL * 2 / 3);
    store.gets(claim(1, 1));
    store.pass(TTL * 2 / 3);
    assert_eq!(store.twice(&renew(1, 1, token)), TimerAnswer::Renewed);
    store.pass(TTL * 2 / 3);
    assert_eq!(store.twice(&renew(1, 1, token)), TimerAnswer::Renewed);
    store.pass(TTL);
    assert_eq!(store.twice(&renew(1, 1, token)), TimerAnswer::NotYours, "it is over");
}

#[test]
fn only_the_owner_with_its_token_renews_or_ends_a_claim() {
    let mut store = Store::with_timer();
    let token = store.gets(claim(1, 1));
    let wrong = Token::new(token.get() + 1);
    let before = store.record.clone();
    for act in [
        renew(2, 1, token),
        renew(1, 2, token),
        renew(1, 1, wrong),
        finish(2, 1, ClaimEnd::Finished),
        finish(1, 2, ClaimEnd::Finished),
        TimerAct::Finish { tick: 1, owner: owner(1), token: Some(wrong), end: ClaimEnd::Finished },
    ] {
        assert_eq!(store.apply(&act), TimerAnswer::NotYours, "{act:?}");
        assert_eq!(store.record, before);
    }
    let right = TimerAct::Finish { tick: 1, owner: owner(1), token: Some(token), end: ClaimEnd::Finished };
    assert_eq!(store.apply(&right), TimerAnswer::Removed);
    assert_eq!(store.apply(&right), TimerAnswer::NotYours);
    assert_eq!(store.claims(), []);
}

#[test]
fn a_tick_of_one_attempt_is_not_run_again_when_its_claim_runs_out() {
    let mut store = Store::with_timer();
    store.gets(claim(1, 1));
    store.pass(TTL);
    assert_eq!(store.claim(2, 1), TimerAnswer::Taken);
    assert_eq!(store.twice(&TimerAct::Claim(repeatable(2, 1))), TimerAnswer::Taken, "it was promised");
    store.gets(claim(2, 2));
    assert_eq!(store.claims().len(), 1, "nothing stays of it");
}

#[test]
fn a_tick_of_several_attempts_is_run_again_as_long_as_some_are_left() {
    let mut store = Store::with_timer();
    let mut highest = store.gets(repeatable(1, 1));
    let answer = store.twice(&TimerAct::Claim(repeatable(2, 1)));
    assert_eq!(answer, TimerAnswer::Held { token: highest, remaining: TTL });
    for process in 2..4 {
        store.pass(TTL);
        let token = store.gets(repeatable(process, 1));
        assert!(token > highest);
        assert_eq!(store.twice(&renew(process - 1, 1, highest)), TimerAnswer::NotYours);
        let late = store.ends(process - 1, 1, ClaimEnd::Finished);
        assert_eq!(late, TimerAnswer::NotYours, "that is another's claim now");
        highest = token;
    }
    store.pass(TTL);
    assert_eq!(store.twice(&TimerAct::Claim(repeatable(4, 1))), TimerAnswer::Taken, "the third was the last");
}

#[test]
fn a_run_that_was_stopped_leaves_the_tick_to_another_attempt_at_once() {
    let mut store = Store::with_timer();
    store.gets(repeatable(1, 1));
    assert_eq!(store.ends(1, 1, ClaimEnd::Interrupted), TimerAnswer::Removed);
    assert!(store.claims()[0].ttl.is_zero(), "it shows that nobody has it");
    assert_eq!(store.record.as_ref().unwrap().view().unfinished, [1]);
    store.gets(repeatable(2, 1));
    store.ends(2, 1, ClaimEnd::Interrupted);
    store.gets(repeatable(3, 1));
    assert_eq!(store.claims()[0].begun, 3);
    store.ends(3, 1, ClaimEnd::Interrupted);
    assert_eq!(store.claims(), [], "no attempt is left");
    assert_eq!(store.twice(&TimerAct::Claim(repeatable(4, 1))), TimerAnswer::Taken);
}

#[test]
fn a_run_that_never_began_was_no_attempt() {
    let mut store = Store::with_timer();
    store.gets(claim(1, 1));
    assert_eq!(store.ends(1, 1, ClaimEnd::NotStarted), TimerAnswer::Removed);
    store.gets(claim(2, 1));
    assert_eq!(store.claims()[0].begun, 1);
    assert_eq!(store.ends(1, 1, ClaimEnd::NotStarted), TimerAnswer::NotYours);
    store.pass(TTL);
    assert_eq!(store.claim(3, 1), TimerAnswer::Taken);
}

#[test]
fn a_claim_that_arrives_after_its_owner_gave_it_back_uses_up_no_attempt() {
    let mut store = Store::with_timer();
    let late = TimerAct::Claim(TickClaim { attempts: 2, ..claim(1, 1) });
    store.apply(&late);
    let other = TimerAct::Claim(TickClaim { attempts: 2, ..claim(2, 1) });
    assert!(matches!(store.apply(&other), TimerAnswer::Held { .. }), "another attempt may follow");
    store.ends(1, 1, ClaimEnd::Interrupted);
    assert_eq!(store.twice(&late), TimerAnswer::Taken);
    store.gets(TickClaim { attempts: 2, ..claim(2, 1) });
}

#[test]
fn an_owner_that_still_asks_after_its_claim_ran_out_has_not_begun() {
    let mut store = Store::with_timer();
    let first = store.gets(claim(1, 1));
    store.pass(TTL);
    let second = store.gets(claim(1, 1));
    assert!(second > first, "others may have seen it as over");
    assert_eq!(store.claims()[0].begun, 1);
}

#[test]
fn while_a_run_goes_on_the_next_tick_is_skipped_for_good_or_waits_or_runs_beside_it() {
    let mut store = Store::with_timer();
    let token = store.gets(claim(1, 1));
    assert_eq!(store.apply(&TimerAct::Claim(claim(2, 2))), TimerAnswer::Overlaps);
    assert_eq!(store.apply(&TimerAct::Claim(claim(3, 2))), TimerAnswer::Taken, "it was decided");
    store.ends(1, 1, ClaimEnd::Finished);
    assert_eq!(store.claim(2, 2), TimerAnswer::Taken, "and does not run late");

    let mut store = Store::with_timer();
    assert_eq!(store.gets(claim(1, 1)), token);
    let queued = TimerAct::Claim(overlapping(2, 2, Overlap::Queue));
    assert_eq!(store.twice(&queued), TimerAnswer::Held { token, remaining: TTL });
    store.ends(1, 1, ClaimEnd::Finished);
    assert!(matches!(store.twice(&queued), TimerAnswer::Granted(_)));

    let mut store = Store::with_timer();
    store.gets(claim(1, 1));
    store.gets(overlapping(2, 2, Overlap::Allow));
    assert_eq!(store.claims().len(), 2);
}

#[test]
fn who_has_to_wait_is_told_of_the_run_that_ends_first() {
    let mut store = Store::with_timer();
    store.gets(TickClaim { ttl: TTL * 3, ..overlapping(1, 1, Overlap::Allow) });
    let first_to_end = store.gets(overlapping(2, 2, Overlap::Allow));
    store.gets(TickClaim { ttl: TTL * 2, ..overlapping(3, 3, Overlap::Allow) });
    let answer = store.twice(&TimerAct::Claim(overlapping(4, 4, Overlap::Queue)));
    assert_eq!(answer, TimerAnswer::Held { token: first_to_end, remaining: TTL });
}

#[test]
fn a_run_that_is_over_keeps_no_other_tick_waiting() {
    let mut store = Store::with_timer();
    store.gets(repeatable(1, 1));
    store.pass(TTL);
    store.gets(repeatable(2, 2));
    let again = TimerAct::Claim(repeatable(3, 1));
    assert!(matches!(store.twice(&again), TimerAnswer::Held { .. }), "the repetition waits its turn");
    store.ends(2, 2, ClaimEnd::Finished);
    assert!(matches!(store.twice(&again), TimerAnswer::Granted(_)));
}

#[test]
fn sixteen_runs_go_on_side_by_side_and_no_more_are_kept() {
    let mut store = Store::with_timer();
    for tick in 1..=16 {
        store.gets(TickClaim { overlap: Overlap::Allow, ..repeatable(1, tick) });
    }
    let one_more = TickClaim { overlap: Overlap::Allow, ..repeatable(1, 17) };
    assert_eq!(store.apply(&TimerAct::Claim(one_more.clone())), TimerAnswer::Overlaps);
    store.pass(TTL);
    store.gets(TickClaim { tick: 18, ..one_more });
    let ticks: Vec<u64> = store.claims().iter().map(|claim| claim.tick).collect();
    let expected: Vec<u64> = (2..=16).chain([18]).collect();
    assert_eq!(ticks, expected, "the oldest that was over made room");
}

#[test]
fn a_token_lies_above_the_floor_and_one_that_can_t_be_had_grants_nothing() {
    let mut store = Store::with_timer();
    assert_eq!(store.gets(TickClaim { floor: Token::new(41), ..claim(1, 1) }).get(), 42);
    let mut record = store.record.clone();
    let act = TimerAct::Claim(overlapping(1, 2, Overlap::Allow));
    let answer = TimerRecord::apply(&mut record, &act, store.time, |_| Err("none is left"));
    assert_eq!(answer, Err("none is left"));
    assert_eq!(record, store.record);
}

#[test]
fn no_attempt_at_all_is_one() {
    let mut store = Store::with_timer();
    store.gets(TickClaim { attempts: 0, ..claim(1, 1) });
    assert_eq!(store.claims()[0].attempts, 1);
}

#[test]
fn no_time_and_no_number_panics() {
    let extremes = [i64::MIN, -1, 0, i64::MAX].map(Timestamp::from_nanos);
    for wall in extremes {
        for now in [Instant::ZERO, Instant::MAX] {
            let mut store = Store::new();
            store.time = StoreTime { wall, now };
            store.read(Some(u64::MAX));
            store.record.as_mut().unwrap().revision = u64::MAX;
            let at = Tick { n: u64::MAX, at: Timestamp::MAX };
            store.apply(&TimerAct::Change {
                revision: u64::MAX,
                change: TimerChange::Stage { at, schedule: every(TTL) },
            });
            store.apply(&TimerAct::Claim(TickClaim { ttl: Duration::MAX, ..claim(1, u64::MAX) }));
            store.time = StoreTime { wall: Timestamp::MAX, now: Instant::MAX };
            store.read(None);
            let change = TimerChange::Rebase { last: u64::MAX };
            store.apply(&TimerAct::Change { revision: u64::MAX, change });
            store.ends(1, u64::MAX, ClaimEnd::NotStarted);
        }
    }
}

/// The same operations in any order, each repeated: what must never happen does not.
#[test]
fn whatever_the_order_no_tick_is_granted_to_two_at_a_time_and_no_number_falls() {
    let mut seed: u64 = 1;
    let mut draw = |below: u64| {
        // Numerical Recipes' generator: any will do.
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
        (seed >> 8) % below
    };
    for _ in 0..200 {
        let mut store = Store::with_timer();
        let (mut highest, mut last, mut claimed) = (Token::ZERO, 0, 0);
        for _ in 0..200 {
            let (process, tick) = (u128::from(draw(4)), draw(24));
            let attempts = 1 + draw(3) as u32;
            let overlap = [Overlap::Skip, Overlap::Queue, Overlap::Allow][draw(3) as usize];
            let live_before: Vec<Claim> =
                store.claims().iter().filter(|claim| claim.ends > store.time.now).cloned().collect();
            let act = match draw(8) {
                0..4 => TimerAct::Claim(TickClaim { attempts, overlap, ..claim(process, tick) }),
                4 => renew(process, tick, Token::new(draw(60))),
                5 => {
                    let end = [ClaimEnd::Finished, ClaimEnd::Interrupted, ClaimEnd::NotStarted];
                    finish(process, tick, end[draw(3) as usize])
                }
                6 => TimerAct::Read { schedule: "every 7s".into(), last: Some(draw(24)) },
                _ => {
                    store.pass(TTL / 3);
                    continue;
                }
            };
            let answer = store.apply(&act);
            if let (TimerAct::Claim(request), TimerAnswer::Granted(token)) = (&act, &answer) {
                let mine = |claim: &&Claim| claim.tick == request.tick;
                match live_before.iter().find(mine) {
                    Some(claim) => {
                        assert_eq!((&claim.owner, claim.token), (&request.owner.to_string(), *token))
                    }
                    None => assert!(*token > highest),
                }
                highest = highest.max(*token);
            }
            let once = store.record.clone();
            store.apply(&act);
            assert_eq!(store.record, once, "{act:?} twice");
            let record = store.record.as_ref().unwrap();
            assert!(record.view().last >= last && record.claimed >= claimed);
            (last, claimed) = (record.view().last, record.claimed);
            assert!(record.claims.len() <= PeriodicOptions::MOST_RUNS);
            assert!(record.claims.is_sorted_by_key(|claim| claim.tick));
            assert!(record.claims.iter().all(|claim| claim.begun <= claim.attempts && claim.tick <= claimed));
        }
    }
}
