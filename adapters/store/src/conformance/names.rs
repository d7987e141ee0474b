//! Names are any text, and each is a lease of its own.

use std::collections::BTreeSet;

use tenure_core::{JobName, LeaseName, TimerName};

use super::Harness;
use super::candidate::{Candidate, granted, held, lease, long_ttl, run_batch};
use super::claimant::{Claimant, ask, read, request, timer};
use super::jobs::{job, runs, to_report};
use crate::{Renewed, Store, TimerAct, TimerAnswer};

/// Texts that some store, or some way of writing a name into a key, treats in a special way.
#[rustfmt::skip]
const SHORT: &[&str] = &[
    "a", "A", "aa", "b", "k", "ka", "K", "0", "00", "-", "_", "-1", "1e3", "null", "lease", "evicted",
    // Separators, and what looks like a path or a pattern.
    "/", "a/b", "a//b", "/a", "a/", "x/a/b", "a.b", "a..b", ".a", "a.", ".", "..", "../a", "a:b", ":", "a::b",
    "*", ">", "a.*", "a.>", "?", "[a]", "a|b", "a,b", "a;b", "a@b", "a&b", "a=b", "#", "a#b", "~", "^a$",
    // Hash tags, variables, escapes and quotes.
    "{}", "{a}", "{a}b", "{b}a", "{", "}", "{{a}}", "!", "!a", "a!b", "$", "$KV", "$KV.a", "${a}", "=", "=41",
    "=2E", "%", "%61", "%00", "%2F", "%s", "\\", "\\x41", "\\0", "'", "''", "\"", "`", "a' OR '1'='1",
    "'; DROP TABLE lease; --",
    // White space and control characters.
    " ", "  ", " a", "a ", "a b", "a  b", "\t", "\n", "\r", "\r\n", "a\nb", "a\r\nb", "\0", "\0\0", "a\0",
    "a\0b", "\u{1}", "\u{7f}", "\u{1b}[0m", "\u{85}", "\u{a0}", "\u{2028}",
    // Letters that look alike, fold together, or compose.
    "\u{e9}", "e\u{301}", "\u{c9}", "ß", "ss", "SS", "ẞ", "İ", "i", "I", "ı", "ﬁ", "fi", "\u{c5}", "\u{212b}",
    "\u{3a9}", "\u{2126}", "\u{430}", "日本語", "ｱ", "ア", "🦀", "🦀🦀", "👩\u{200d}👩\u{200d}👧", "🇩🇪",
    "\u{202e}a", "\u{feff}", "\u{feff}a", "\u{200b}", "\u{fffd}", "\u{10ffff}",
];

/// All of them, with long ones that differ only at their end.
fn names() -> Vec<LeaseName> {
    let x = |times: usize| "x".repeat(times);
    let mut names: BTreeSet<String> = SHORT.iter().map(|name| (*name).to_owned()).collect();
    names.extend([x(200), x(201), x(254), x(255), x(200) + "a", x(200) + "b", x(254) + "a", x(254) + "b"]);
    names.extend(["/".repeat(255), ".".repeat(255), "\0".repeat(255), "\u{e9}".repeat(127) + "a"]);
    names.extend(["🦀".repeat(63), "🦀".repeat(63) + "abc", "🦀".repeat(63) + "abd"]);
    names.into_iter().map(lease).collect()
}

/// Any text of 1 to 255 bytes names a lease, and no two texts name the same one.
pub fn any_name_works_and_stays_distinct<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let ttl = long_ttl(&store);
        let names = names();
        let holders: Vec<Candidate> =
            names.iter().zip(0..).map(|(name, n)| Candidate::new(name, 1, n, ttl)).collect();
        for batch in holders.chunks(store.limits().batch) {
            let outcomes = run_batch(&store, batch.iter().map(|one| one.acquire().into()).collect()).await;
            for (holder, outcome) in batch.iter().zip(outcomes) {
                assert!(outcome.is_ok(), "{:?} is a name: {outcome:?}", holder.name);
                granted(&outcome);
            }
        }
        for batch in holders.chunks(store.limits().batch) {
            let strangers = batch.iter().map(|one| Candidate::new(&one.name, 2, 0, ttl).acquire().into());
            for (holder, outcome) in batch.iter().zip(run_batch(&store, strangers.collect()).await) {
                assert_eq!(held(outcome).owner, holder.owner.to_string(), "the holder of {:?}", holder.name);
            }
        }
    });
}

/// Whoever lists or inspects leases reads their names as they were given, in the order of their bytes.
pub fn names_come_back_unchanged<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let names = names();
        for (name, n) in names.iter().zip(0..) {
            Candidate::new(name, 1, n, long_ttl(&store)).gets(&store).await;
            let record = store.inspect(name.clone()).await.expect("inspecting works");
            assert_eq!(record.map(|record| record.name).as_ref(), Some(name));
        }
        let listed = store.list(None, names.len() + 1).await.expect("listing works");
        let listed: Vec<LeaseName> = listed.into_iter().map(|record| record.name).collect();
        assert_eq!(listed, names);
    });
}

/// Any text of 1 to 255 bytes names a timer; no two texts name the same one, and they come back unchanged.
pub fn any_name_is_that_of_a_timer<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let names = names();
        for (name, n) in names.iter().zip(0..) {
            let (view, _) = read(&store, &timer(name.as_str()), Some(n)).await;
            assert_eq!((view.base.n, view.last), (n, n), "{name:?} is new");
        }
        let timers = store.timers(None, names.len() + 1).await.expect("listing works");
        let listed: Vec<TimerName> = timers.into_iter().map(|timer| timer.name).collect();
        assert_eq!(listed, names.iter().map(|name| timer(name.as_str())).collect::<Vec<_>>());
    });
}

/// Any text of 1 to 255 bytes names a job; no two texts name the same one, and they come back unchanged.
pub fn any_name_is_that_of_a_job<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let names = names();
        for (name, run) in names.iter().zip(0..) {
            let report = to_report(&job(name.as_str()), run, long_ttl(&store));
            assert_eq!(store.report(report).await, Ok(()), "{name:?} is a name");
        }
        let jobs = store.jobs(None, names.len() + 1).await.expect("listing works");
        assert!(jobs.iter().all(|job| job.kept == 1), "each has its own run");
        let listed: Vec<JobName> = jobs.into_iter().map(|job| job.name).collect();
        assert_eq!(listed, names.iter().map(|name| job(name.as_str())).collect::<Vec<_>>());
    });
}

/// What is done with a lease does nothing to a timer of its name, and the other way round.
pub fn a_lease_and_a_timer_of_one_name_are_distinct<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (lease, timer) = (lease("same"), timer("same"));
        let holder = Candidate::new(&lease, 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        assert_eq!(store.timers(None, 10).await, Ok(Vec::new()));
        read(&store, &timer, None).await;
        let claimant = Claimant::new(&timer, 2, long_ttl(&store));
        let claimed = claimant.gets(&store, 1).await;
        assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
        holder.gives_back(&store, token).await;
        assert_eq!(claimant.renews(&store, 1, claimed).await, TimerAnswer::Renewed);
        let token = holder.gets(&store).await;
        assert_eq!(ask(&store, request(&timer, TimerAct::Forget)).await, TimerAnswer::Removed);
        assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
    });
}

/// What is done with a timer does nothing to a job of its name, and the other way round.
pub fn a_timer_and_a_job_of_one_name_are_distinct<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (timer, job) = (timer("same"), job("same"));
        read(&store, &timer, None).await;
        let claimant = Claimant::new(&timer, 1, long_ttl(&store));
        let claimed = claimant.gets(&store, 1).await;
        assert_eq!(runs(&store, &job).await, []);
        assert_eq!(store.report(to_report(&job, 1, long_ttl(&store))).await, Ok(()));
        assert_eq!(store.forget_job(job.clone()).await, Ok(true));
        assert_eq!(claimant.renews(&store, 1, claimed).await, TimerAnswer::Renewed);
        assert_eq!(store.report(to_report(&job, 1, long_ttl(&store))).await, Ok(()));
        assert_eq!(ask(&store, request(&timer, TimerAct::Forget)).await, TimerAnswer::Removed);
        assert_eq!(runs(&store, &job).await.len(), 1);
    });
}
