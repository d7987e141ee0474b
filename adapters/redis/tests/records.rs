//! Timers, claims and the records of jobs on real servers: what is kept for how long, and what is made of what others left.

#[macro_use]
mod common;

on_both! {
    a_timer_is_kept_for_more_than_a_year_after_it_was_last_of_interest
    a_timer_that_was_lost_goes_on_from_the_number_of_its_reader
    a_timer_that_can_not_be_read_names_itself_and_can_be_forgotten
    what_another_program_keeps_in_the_place_of_a_timer_is_not_touched
    a_claim_that_can_not_be_read_is_held_and_stays
    tokens_of_claims_and_leases_rise_together_also_when_the_high_water_was_lost
    without_a_high_water_that_makes_sense_no_tick_is_granted
    fifty_claimants_from_ten_handles_are_answered_in_time
    many_who_change_one_timer_at_once_all_succeed
    the_runs_of_a_job_are_kept_for_more_than_a_year_and_in_their_order
    an_outcome_is_not_lost_among_reports_of_the_same_run
    a_run_that_can_not_be_read_is_left_out_and_left_alone
    what_another_program_keeps_in_the_place_of_a_job_is_not_touched
    a_script_that_the_server_forgot_is_sent_again
    a_full_server_keeps_no_claim_alive_and_changes_nothing
}

use std::sync::Arc;
use std::time::Duration;

use common::{At, Candidate, Runtime, TIMEOUT, prefix, run};
use futures::future::join_all;
use tenure_redis::RedisStore;
use tenure_servers::{Flavour, Redis};
use tenure_store::core::{
    Acquisition, ClaimEnd, Identity, Incarnation, JobName, Overlap, TimerName, TimerView, Token,
};
use tenure_store::{
    Answer, Metadata, RunOutcome, RunReport, RunState, Store, StoreError, StoreErrorKind, TickClaim,
    TimerAct, TimerAnswer, TimerRequest,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const TTL: Duration = Duration::from_secs(60);

fn named(name: &str) -> TimerName {
    TimerName::new(name).unwrap()
}

fn claim(tick: u64, process: u128) -> TickClaim {
    let identity = Identity::new("host", Incarnation::new(process)).unwrap();
    TickClaim {
        tick,
        owner: identity.owner(Acquisition(1)),
        ttl: TTL,
        floor: Token::ZERO,
        attempts: 1,
        overlap: Overlap::Allow,
        metadata: Metadata::new(),
    }
}

async fn ask(store: &RedisStore, name: &str, act: TimerAct) -> Result<TimerAnswer, StoreError> {
    match run(store, TimerRequest { name: named(name), act, timeout: TIMEOUT }.into()).await? {
        Answer::Timer(answer) => Ok(answer),
        other => panic!("an answer to something else: {other:?}"),
    }
}

async fn try_read(store: &RedisStore, name: &str, last: Option<u64>) -> Result<TimerView, StoreError> {
    match ask(store, name, TimerAct::Read { schedule: "every 10s".into(), last }).await? {
        TimerAnswer::Read { view, .. } => Ok(view),
        other => panic!("reading was answered with {other:?}"),
    }
}

async fn read(store: &RedisStore, name: &str, last: Option<u64>) -> TimerView {
    try_read(store, name, last).await.expect("the timer can be read")
}

async fn granted(store: &RedisStore, name: &str, tick: u64, process: u128) -> Token {
    match ask(store, name, TimerAct::Claim(claim(tick, process))).await {
        Ok(TimerAnswer::Granted(token)) => token,
        other => panic!("tick {tick} should be granted, but the answer is {other:?}"),
    }
}

fn text(server: &Redis, key: &str) -> String {
    server.command(&["GET", key]).text()
}

fn ttl(server: &Redis, key: &str) -> Duration {
    let ms = server.command(&["PTTL", key]).integer();
    Duration::from_millis(u64::try_from(ms).unwrap_or_else(|_| panic!("{key} has a TTL, not {ms}")))
}

/// A store on the shared server, and its prefix.
fn on(flavour: Flavour) -> (At<Arc<Redis>>, String, RedisStore) {
    let at = At::shared(Runtime::tokio(), flavour);
    let prefix = prefix();
    let store = at.open(&prefix);
    (at, prefix, store)
}

fn a_timer_is_kept_for_more_than_a_year_after_it_was_last_of_interest(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!timer:yearly");
    at.runtime.block_on(async {
        read(&store, "yearly", None).await;
        assert!(ttl(&at.server, &key) > DAY * 399);
        // A year later, and moved to another server by a tool that loses TTLs.
        for command in [vec!["PEXPIRE", &key, "60000"], vec!["PERSIST", &key]] {
            assert_eq!(at.server.command(&command).integer(), 1);
            let before = text(&at.server, &key);
            read(&store, "yearly", None).await;
            assert!(ttl(&at.server, &key) > DAY * 399, "{command:?}");
            assert_eq!(text(&at.server, &key), before, "a reader changes nothing");
        }
        granted(&store, "yearly", 1, 1).await;
        assert!(ttl(&at.server, &key) > DAY * 399);
        assert_eq!(ask(&store, "yearly", TimerAct::Forget).await, Ok(TimerAnswer::Removed));
        assert_eq!(at.server.command(&["EXISTS", &key]).integer(), 0);
        assert_eq!(ask(&store, "yearly", TimerAct::Forget).await, Ok(TimerAnswer::NotYours));
    });
}

fn a_timer_that_was_lost_goes_on_from_the_number_of_its_reader(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let store = at.open("t");
    at.runtime.block_on(async {
        read(&store, "lost", None).await;
        let before = granted(&store, "lost", 41, 1).await;
        at.server.restart();
        // What was under way may be lost with the connection; what comes then is not.
        let answer = common::until("an answer", async || {
            ask(&store, "lost", TimerAct::Claim(claim(42, 1))).await.ok()
        });
        assert_eq!(answer.await, TimerAnswer::Taken, "only a reader makes it anew");
        let view = read(&store, "lost", Some(41)).await;
        assert_eq!((view.last, view.base.n, view.claimed), (41, 41, 41));
        let repeated = ask(&store, "lost", TimerAct::Claim(claim(41, 2))).await;
        assert_eq!(repeated, Ok(TimerAnswer::Taken), "no tick is given twice");
        assert!(granted(&store, "lost", 42, 2).await > before);
    });
}

fn a_timer_that_can_not_be_read_names_itself_and_can_be_forgotten(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        read(&store, "readable", None).await;
        for (name, record, says) in [
            ("newer", r#"{"v":2}"#, "format 2"),
            ("damaged", r#"{"v":1,"revision":"x"}"#, "damaged"),
            ("foreign", "another program's", "another program"),
            ("empty", "", "another program"),
        ] {
            let key = format!("{prefix}!timer:{name}");
            at.server.command(&["SET", &key, record]).ok();
            for act in [
                TimerAct::Read { schedule: "every 1s".into(), last: None },
                TimerAct::Claim(claim(1, 1)),
                TimerAct::Finish { tick: 1, owner: claim(1, 1).owner, token: None, end: ClaimEnd::Finished },
            ] {
                let error = ask(&store, name, act).await.unwrap_err();
                assert!(
                    matches!(error.kind, StoreErrorKind::Rejected | StoreErrorKind::Unsupported),
                    "{error}"
                );
                let said = error.to_string();
                assert!(said.contains(&format!("timer {name:?}")), "{said}");
                assert!(said.contains(&key) && said.contains(says), "{said}");
            }
            assert_eq!(text(&at.server, &key), record, "it is as it was");
        }
        let foreign = format!("{prefix}!timer:foreign");
        assert_eq!(at.server.command(&["PTTL", &foreign]).integer(), -1, "nor was it given an end");
        let listed = store.timers(None, 10).await.unwrap();
        let seen: Vec<_> =
            listed.iter().map(|entry| (entry.name.as_str(), entry.problem.is_some())).collect();
        let expected =
            [("damaged", true), ("empty", true), ("foreign", true), ("newer", true), ("readable", false)];
        assert_eq!(seen, expected);
        for name in ["newer", "damaged", "foreign", "empty"] {
            assert_eq!(ask(&store, name, TimerAct::Forget).await, Ok(TimerAnswer::Removed));
        }
        assert_eq!(store.timers(None, 10).await.unwrap().len(), 1);
    });
}

fn what_another_program_keeps_in_the_place_of_a_timer_is_not_touched(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!timer:list");
    at.runtime.block_on(async {
        assert_eq!(at.server.command(&["RPUSH", &key, "a"]).integer(), 1);
        read(&store, "other", None).await;
        for act in [TimerAct::Read { schedule: "every 1s".into(), last: None }, TimerAct::Forget] {
            let error = ask(&store, "list", act).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(error.message.contains(&key), "{error}");
        }
        assert_eq!(at.server.command(&["LLEN", &key]).integer(), 1);
        let listed = store.timers(None, 10).await.unwrap();
        assert_eq!(listed.len(), 2, "it hides no other");
        assert!(listed[0].problem.as_ref().unwrap().contains(&key), "{listed:?}");
        assert!(listed[0].time.now > tenure_store::core::Instant::ZERO);
    });
}

fn a_claim_that_can_not_be_read_is_held_and_stays(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!timer:t");
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        granted(&store, "t", 1, 1).await;
        let damaged = text(&at.server, &key).replace("\"owner\":", "\"begetter\":");
        at.server.command(&["SET", &key, &damaged]).ok();
        let again = TickClaim { attempts: 5, ..claim(1, 2) };
        let answer = ask(&store, "t", TimerAct::Claim(again)).await;
        assert!(matches!(answer, Ok(TimerAnswer::Held { .. })), "{answer:?}");
        granted(&store, "t", 2, 2).await;
        let kept = text(&at.server, &key);
        assert!(kept.contains("\"begetter\":"), "it stays as it stands: {kept}");
        assert_eq!(read(&store, "t", None).await.unfinished, [1, 2]);
    });
}

fn tokens_of_claims_and_leases_rise_together_also_when_the_high_water_was_lost(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let high_water = format!("{prefix}!token");
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        let lease = Candidate::new("l", 1);
        let mut last = Token::ZERO;
        for tick in 1..5 {
            let token = granted(&store, "t", tick, 1).await;
            assert!(token > last);
            last = token;
            assert_eq!(text(&at.server, &high_water), token.to_string());
            let token = lease.gets(&store).await;
            assert!(token > last);
            last = token;
            lease.releases(&store, token).await;
        }
        // As by a clock that stood in the future, and then the key is lost.
        at.server.command(&["SET", &high_water, "4000000000000000"]).ok();
        let high = granted(&store, "t", 5, 1).await;
        assert_eq!(high, Token::new(4_000_000_000_000_001));
        assert_eq!(at.server.command(&["DEL", &high_water]).integer(), 1);
        assert!(granted(&store, "t", 6, 1).await > high, "the claim that is still there had this one");
        let floor = TickClaim { floor: Token::new(5_000_000_000_000_000), ..claim(7, 1) };
        let answer = ask(&store, "t", TimerAct::Claim(floor)).await;
        assert_eq!(answer, Ok(TimerAnswer::Granted(Token::new(5_000_000_000_000_001))));
        let confirmed = ask(&store, "t", TimerAct::Claim(claim(5, 1))).await;
        assert_eq!(confirmed, Ok(TimerAnswer::Granted(high)), "a confirmation keeps it");
    });
}

fn without_a_high_water_that_makes_sense_no_tick_is_granted(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let (high_water, key) = (format!("{prefix}!token"), format!("{prefix}!timer:t"));
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        let before = text(&at.server, &key);
        let wrongs = [["SET", &high_water, "x"], ["SET", &high_water, "9007199254740991"]];
        for wrong in wrongs {
            at.server.command(&wrong).ok();
            let error = ask(&store, "t", TimerAct::Claim(claim(1, 1))).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(error.message.contains(&high_water), "{error}");
        }
        at.server.command(&["DEL", &high_water]);
        at.server.command(&["RPUSH", &high_water, "x"]);
        let error = ask(&store, "t", TimerAct::Claim(claim(1, 1))).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Rejected && error.message.contains(&high_water), "{error}");
        assert_eq!(text(&at.server, &key), before, "nothing was written");
    });
}

fn fifty_claimants_from_ten_handles_are_answered_in_time(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        let handles: Vec<RedisStore> = (0..10).map(|_| at.open(&prefix)).collect();
        for tick in 1..=10 {
            let claims = (0..50).map(|process| {
                let handle = &handles[process as usize % 10];
                async move { ask(handle, "t", TimerAct::Claim(claim(tick, process))).await }
            });
            let answers = join_all(claims).await;
            let count = |wanted: fn(&TimerAnswer) -> bool| {
                answers.iter().filter(|answer| answer.as_ref().is_ok_and(wanted)).count()
            };
            assert_eq!(count(|answer| matches!(answer, TimerAnswer::Granted(_))), 1, "{answers:?}");
            assert_eq!(count(|answer| *answer == TimerAnswer::Taken), 49, "{answers:?}");
        }
    });
}

fn many_who_change_one_timer_at_once_all_succeed(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        let handles: Vec<RedisStore> = (0..5).map(|_| at.open(&prefix)).collect();
        let mut claims = Vec::new();
        // The lower ones may come too late, but each of these claims that is granted is there in the end.
        for tick in 1..=16_u64 {
            let handle = &handles[tick as usize % 5];
            claims.push(async move {
                (tick, ask(handle, "t", TimerAct::Claim(claim(tick, tick.into()))).await.unwrap())
            });
        }
        let mut granted: Vec<(u64, Token)> = Vec::new();
        for (tick, answer) in join_all(claims).await {
            match answer {
                TimerAnswer::Granted(token) => granted.push((tick, token)),
                TimerAnswer::Taken => {}
                other => panic!("tick {tick} was answered with {other:?}"),
            }
        }
        let view = read(&store, "t", None).await;
        assert_eq!(view.unfinished, granted.iter().map(|(tick, _)| *tick).collect::<Vec<_>>());
        assert!(granted.is_sorted_by(|one, other| one.1 < other.1), "tokens rise with ticks: {granted:?}");
        // Now all of them end theirs at once.
        join_all(granted.iter().map(|(tick, token)| {
            let (handle, tick, token) = (&handles[*tick as usize % 5], *tick, Some(*token));
            let owner = claim(tick, tick.into()).owner;
            async move {
                let act = TimerAct::Finish { tick, owner, token, end: ClaimEnd::Finished };
                assert_eq!(ask(handle, "t", act).await, Ok(TimerAnswer::Removed), "tick {tick}");
            }
        }))
        .await;
        assert_eq!(read(&store, "t", None).await.unfinished, Vec::<u64>::new());
    });
}

fn report(job: &str, owner: &str, outcome: Option<RunOutcome>) -> RunReport {
    let mut report = RunReport::new(JobName::new(job).unwrap(), owner, TTL, TIMEOUT);
    report.outcome = outcome;
    report
}

async fn owners(store: &RedisStore, job: &str) -> Vec<String> {
    let runs = store.runs(JobName::new(job).unwrap()).await.unwrap();
    runs.into_iter().map(|run| run.owner).collect()
}

fn the_runs_of_a_job_are_kept_for_more_than_a_year_and_in_their_order(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!runs:j");
    at.runtime.block_on(async {
        for owner in ["b", "", "a"] {
            store.report(report("j", owner, None)).await.unwrap();
        }
        assert!(ttl(&at.server, &key) > DAY * 399);
        assert_eq!(at.server.command(&["PEXPIRE", &key, "60000"]).integer(), 1);
        store.report(report("j", "b", Some(RunOutcome::Failed))).await.unwrap();
        assert!(ttl(&at.server, &key) > DAY * 399);
        assert_eq!(owners(&store, "j").await, ["a", "", "b"], "a report changes no place");
        // Of those that say something for the first time at once each has a place of its own.
        let handles: Vec<RedisStore> = (0..5).map(|_| at.open(&prefix)).collect();
        let reports = (0..50).map(|n| handles[n % 5].report(report("j", &format!("n{n}"), None)));
        for reported in join_all(reports).await {
            reported.unwrap();
        }
        let mut kept = owners(&store, "j").await;
        assert_eq!((kept.len(), &kept[50..]), (53, &["a", "", "b"].map(str::to_owned)[..]));
        kept.dedup();
        assert_eq!(kept.len(), 53);
        let numbers = at.server.command(&["HVALS", &key]).texts();
        let mut numbers: Vec<u64> =
            numbers.iter().map(|run| run.split_once(' ').unwrap().0.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=53).collect::<Vec<_>>());
    });
}

fn an_outcome_is_not_lost_among_reports_of_the_same_run(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    at.runtime.block_on(async {
        let handles: Vec<RedisStore> = (0..5).map(|_| at.open(&prefix)).collect();
        for run in 0..20 {
            let reports = (0..10).map(|n| {
                let outcome = (n == run % 10).then_some(RunOutcome::Failed);
                handles[n % 5].report(report("j", &format!("n{run}"), outcome))
            });
            for reported in join_all(reports).await {
                reported.unwrap();
            }
        }
        let runs = store.runs(JobName::new("j").unwrap()).await.unwrap();
        let states: Vec<RunState> = runs.into_iter().map(|run| run.state).collect();
        assert_eq!(states, [RunState::Ended(RunOutcome::Failed); 20]);
    });
}

fn a_run_that_can_not_be_read_is_left_out_and_left_alone(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!runs:j");
    at.runtime.block_on(async {
        store.report(report("j", "fine", None)).await.unwrap();
        let others = [("newer", "7 {\"v\":2}"), ("damaged", "8 {\"v\":1}"), ("foreign", "x")];
        for (owner, run) in others {
            assert_eq!(at.server.command(&["HSET", &key, owner, run]).integer(), 1);
        }
        for (owner, run) in others {
            store.report(report("j", owner, Some(RunOutcome::Failed))).await.unwrap();
            assert_eq!(at.server.command(&["HGET", &key, owner]).text(), run, "it is as it was");
        }
        assert_eq!(owners(&store, "j").await, ["fine"]);
        store.report(report("j", "next", None)).await.unwrap();
        assert_eq!(owners(&store, "j").await, ["next", "fine"], "the newer ones count on");
        let jobs = store.jobs(None, 10).await.unwrap();
        assert_eq!((jobs[0].kept, jobs[0].latest.state), (2, RunState::Running));
        // What can't be read is the first to go.
        for n in 0..RunReport::MOST_RUNS {
            store.report(report("j", &format!("n{n}"), None)).await.unwrap();
        }
        assert_eq!(at.server.command(&["HLEN", &key]).integer(), 100);
    });
}

fn what_another_program_keeps_in_the_place_of_a_job_is_not_touched(flavour: Flavour) {
    let (at, prefix, store) = on(flavour);
    let key = format!("{prefix}!runs:foreign");
    at.runtime.block_on(async {
        at.server.command(&["SET", &key, "x"]).ok();
        store.report(report("ours", "a", None)).await.unwrap();
        let job = || JobName::new("foreign").unwrap();
        for error in [
            store.report(report("foreign", "a", None)).await.unwrap_err(),
            store.runs(job()).await.unwrap_err(),
            store.forget_job(job()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(error.message.contains(&key), "{error}");
        }
        let jobs = store.jobs(None, 10).await.unwrap();
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["ours"]);
        assert_eq!(text(&at.server, &key), "x");
        assert_eq!(at.server.command(&["PTTL", &key]).integer(), -1);
    });
}

fn a_script_that_the_server_forgot_is_sent_again(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let store = at.open("t");
    at.runtime.block_on(async {
        let forget = || at.server.command(&["SCRIPT", "FLUSH"]).ok();
        read(&store, "t", None).await;
        for tick in 1..=3 {
            forget();
            let token = granted(&store, "t", tick, 1).await;
            forget();
            let owner = claim(tick, 1).owner;
            let renewed = ask(&store, "t", TimerAct::Renew { tick, owner, token, ttl: TTL }).await;
            assert_eq!(renewed, Ok(TimerAnswer::Renewed));
        }
        forget();
        store.report(report("j", "a", None)).await.unwrap();
        forget();
        assert_eq!(owners(&store, "j").await, ["a"]);
        forget();
        assert_eq!(store.timers(None, 10).await.unwrap().len(), 1);
        forget();
        assert_eq!(ask(&store, "t", TimerAct::Forget).await, Ok(TimerAnswer::Removed));
    });
}

fn a_full_server_keeps_no_claim_alive_and_changes_nothing(flavour: Flavour) {
    let server = Redis::of(flavour);
    let at = At { runtime: Runtime::tokio(), url: server.url(), server };
    let store = at.open("t");
    at.runtime.block_on(async {
        read(&store, "t", None).await;
        let token = granted(&store, "t", 1, 1).await;
        let before = (text(&at.server, "t!timer:t"), text(&at.server, "t!token"));
        at.server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
        let owner = || claim(1, 1).owner;
        let renew = || TimerAct::Renew { tick: 1, owner: owner(), token, ttl: TTL };
        for act in [
            renew(),
            TimerAct::Finish { tick: 1, owner: owner(), token: Some(token), end: ClaimEnd::Finished },
            TimerAct::Claim(claim(2, 2)),
        ] {
            let error = ask(&store, "t", act).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
            assert!(error.message.contains("out of memory"), "{error}");
        }
        let error = store.report(report("j", "a", None)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
        assert_eq!((text(&at.server, "t!timer:t"), text(&at.server, "t!token")), before);
        assert_eq!(read(&store, "t", None).await.unfinished, [1], "what only reads goes on");
        at.server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
        assert_eq!(ask(&store, "t", renew()).await, Ok(TimerAnswer::Renewed));
    });
}
