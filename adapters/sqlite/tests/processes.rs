//! Several processes with one store: death, freezing, waking.

mod common;
mod other;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use other::*;
use rustix::process::{Pid, Signal, kill_process};
use tenure_sqlite::SqliteStore;
use tenure_store::core::{Token, Wake};
use tenure_store::{Acquired, Hint, Operation, Released, Renewed, Store, StoreErrorKind};

#[test]
fn a_lease_passes_on_at_once_when_its_holders_process_is_killed() {
    let mut delays = Vec::new();
    for _ in 0..10 {
        let folder = Folder::new();
        let store = folder.store();
        let mut holder = Other::start(&folder, "", 1);
        let first = holder.acquire("x", TTL);
        let mut hints = store.hints().unwrap();
        block_on(store.watch(name("x"))).unwrap();
        assert_eq!(held(&store, "x", owner(2, 0), TTL).token, Some(first));

        let killed = now();
        holder.signal(Signal::KILL);
        let told = within(hints.next());
        assert_eq!(told, Some(Hint::Lease { name: name("x"), wake: Wake::Free { chosen: true } }));
        let second = granted(&store, "x", owner(2, 0), TTL);
        delays.push(now() - killed);
        assert!(second > first);
        holder.kill();
    }
    delays.sort_unstable();
    println!("from the holder's death to the next grant: {delays:?}");
    assert!(delays[delays.len() / 2] < TTL / 12, "{delays:?}");
}

#[test]
fn a_lease_passes_on_by_its_ttl_alone_when_early_takeover_is_off_on_either_side() {
    for (theirs, ours) in [("?early=off", ""), ("", "?early=off"), ("?early=off", "?early=off")] {
        let folder = Folder::new();
        let store = SqliteStore::from_url(&format!("sqlite:{}{ours}", folder.database().display())).unwrap();
        let mut holder = Other::start(&folder, theirs, 1);
        let begun = now();
        holder.acquire("x", Duration::from_secs(1));
        holder.kill();
        until("the lease passes on", || {
            matches!(try_acquire(&store, acquire("x", owner(2, 0), TTL)), Ok(Acquired::Granted(_)))
        });
        assert!(now() - begun >= Duration::from_secs(1), "{theirs} {ours}: too early");
        let lock = block_on(store.liveness()).unwrap();
        assert_eq!(lock.is_none(), ours == "?early=off");
    }
}

#[test]
fn a_lease_stays_while_anybody_has_a_copy_of_the_lock_of_its_dead_holder() {
    let folder = Folder::new();
    let store = folder.store();
    let mut holder = Other::start(&folder, "", 1);
    let first = holder.acquire("x", TTL);
    let guard = Pid::from_raw(holder.ask("guard")[0].parse().unwrap()).unwrap();
    holder.kill();
    assert_eq!(held(&store, "x", owner(2, 0), TTL).token, Some(first), "its guard still lives");
    kill_process(guard, Signal::KILL).unwrap();
    until("the lease passes on with the death of the guard", || {
        matches!(try_acquire(&store, acquire("x", owner(2, 0), TTL)), Ok(Acquired::Granted(_)))
    });
}

#[test]
fn a_frozen_holder_keeps_its_lease_until_the_ttl_and_finds_it_lost_when_it_wakes_up() {
    let folder = Folder::new();
    let store = folder.store();
    let mut holder = Other::start(&folder, "", 1);
    let begun = now();
    let first = holder.acquire("x", Duration::from_secs(1));
    holder.signal(Signal::STOP);
    let mut second = Token::ZERO;
    until("the lease runs out", || match try_acquire(&store, acquire("x", owner(2, 0), TTL)).unwrap() {
        Acquired::Granted(token) => {
            second = token;
            true
        }
        Acquired::Held(_) => false,
    });
    assert!(now() - begun >= Duration::from_secs(1), "frozen is not dead");
    holder.signal(Signal::CONT);
    assert_eq!(holder.ask(&format!("renew x {first} 1000")), ["NotYours"]);
    assert!(second > first);
}

#[test]
fn a_process_that_is_frozen_in_a_transaction_makes_others_wait_no_longer_than_they_said() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("block"), ["blocked"]);
    other.signal(Signal::STOP);

    let mut short = acquire("y", owner(1, 1), TTL);
    short.timeout = Duration::from_millis(100);
    let begun = now();
    let error = try_acquire(&store, short.clone()).unwrap_err();
    assert!(now() - begun >= Duration::from_millis(100), "it waited as long as it might");
    assert_eq!(error.kind, StoreErrorKind::Transient, "nothing was done: {error}");
    assert!(error.to_string().contains("stopped in the middle of a transaction"), "{error}");
    assert_eq!(error.lease(), Some(&name("y")));
    assert_eq!(
        block_on(store.inspect(name("x"))).unwrap().unwrap().holder.token,
        Some(token),
        "reading is not held up"
    );

    assert_eq!(block_on(folder.store().list(None, 10)).unwrap().len(), 1, "not even that of a new handle");

    // In one batch each operation waits as long as it may, and no longer.
    let mut long = acquire("z", owner(1, 2), TTL);
    long.timeout = LIMIT;
    let waiting = {
        let store = store.clone();
        std::thread::spawn(move || execute(&store, vec![Operation::Acquire(short), Operation::Acquire(long)]))
    };
    let fresh = folder.store();
    let mut opening = acquire("w", owner(1, 3), TTL);
    opening.timeout = Duration::from_millis(200);
    let error = try_acquire(&fresh, opening).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Transient, "opening is bounded as well: {error}");
    other.signal(Signal::CONT);
    assert_eq!(other.ask("unblock"), ["unblocked"]);
    let outcomes = waiting.join().unwrap();
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind, StoreErrorKind::Transient);
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
}

#[test]
fn a_full_queue_refuses_at_once_and_what_was_accepted_is_done_though_nobody_waits_for_it() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("block"), ["blocked"]);
    let (sender, outcomes) = mpsc::channel();
    let mut accepted: u64 = 0;
    let refused = loop {
        let sender = sender.clone();
        let n = accepted + 1;
        let replies = tenure_store::Replies::new(1, move |_, outcome| sender.send((n, outcome)).unwrap());
        let batch = vec![Operation::Acquire(acquire(&format!("lease {n}"), owner(1, n), TTL))];
        let mut future = Box::pin(store.execute(batch, replies));
        // Polled once, then dropped.
        let _ = futures::FutureExt::now_or_never(&mut future);
        drop(future);
        match outcomes.try_recv() {
            Ok(refused) => break refused,
            Err(_) => accepted = n,
        }
        assert!(accepted < 10_000, "the queue is bounded");
    };
    let (n, Err(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(n, accepted + 1, "the last one, at once");
    assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
    assert!(error.to_string().contains("waiting already"), "{error}");
    assert_eq!(other.ask("unblock"), ["unblocked"]);
    for _ in 0..accepted {
        let (n, outcome) = outcomes.recv_timeout(LIMIT).unwrap();
        assert!(outcome.is_ok(), "{n}: {outcome:?}");
    }
    let listed = block_on(store.list(None, 100_000)).unwrap().len();
    assert_eq!(listed as u64, accepted + 1);
}

#[test]
fn a_release_reaches_a_waiter_in_another_process_in_milliseconds() {
    let folder = Folder::new();
    let store = folder.store();
    let mut waiter = Other::start(&folder, "", 2);
    let mut delays = Vec::new();
    for n in 0..50 {
        let token = granted(&store, "x", owner(1, n), TTL);
        if n == 0 {
            assert_eq!(waiter.ask("watch x"), ["watching"]);
        } else {
            assert_eq!(waiter.answer(), ["held", &token.to_string()]);
            assert_eq!(waiter.ask("wait x"), ["waiting"]);
        }
        let begun = now();
        assert_eq!(
            release(&store, "x", owner(1, n), Some(token)),
            Ok(Released::Released { others_chosen: true })
        );
        let answer = waiter.answer();
        assert_eq!(answer[..2], ["free", "true"]);
        delays.push(Duration::from_nanos(answer[2].parse().unwrap()).saturating_sub(begun));
    }
    delays.sort_unstable();
    let median = delays[delays.len() / 2];
    println!(
        "from the call of release to the waiter: median {median:?}, worst {:?}",
        delays[delays.len() - 1]
    );
    assert!(median < Duration::from_millis(50), "{delays:?}");
}

#[test]
fn processes_that_compete_for_a_lease_never_hold_it_together_and_tokens_rise() {
    const PROCESSES: u64 = 4;
    const TIMES: u64 = 100;
    let folder = Folder::new();
    let witness = folder.path().join("witness");
    fs::write(&witness, "").unwrap();
    let mut others: Vec<Other> = (0..PROCESSES).map(|number| Other::start(&folder, "", number)).collect();
    for other in &mut others {
        other.send(&format!("compete {TIMES} {}", witness.display()));
    }
    for other in &mut others {
        assert_eq!(other.answer(), ["done"]);
    }
    let tokens: Vec<u64> =
        fs::read_to_string(&witness).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len() as u64, PROCESSES * TIMES);
    assert!(tokens.is_sorted_by(|a, b| a < b), "each above all before it");
}

#[test]
fn nothing_acknowledged_is_lost_and_no_token_goes_down_over_sixty_kills_in_the_middle_of_writing() {
    let folder = Folder::new();
    let opened = folder.store();
    granted(&opened, "opens it", owner(1000, 1000), TTL);
    let mut opened = Some(opened);
    let mut highest = Token::ZERO;
    for round in 0..60 {
        // With somebody who has the file open when it happens, and with nobody: then the next who opens it has
        // to recover it.
        if round % 2 == 1
            && let Some(store) = opened.take()
        {
            block_on(store.close());
        }
        let mut other = Other::start(&folder, "", round);
        other.send(&format!("spin {round}"));
        let mut kept: Vec<(String, Token, String)> = Vec::new();
        let mut released: Vec<String> = Vec::new();
        let mut take = |answer: Vec<String>| {
            let token = Token::new(answer[2].parse().unwrap());
            assert!(token > highest || answer[0] == "released", "{answer:?} after {highest}");
            highest = highest.max(token);
            match answer[0].as_str() {
                "granted" => kept.push((answer[1].clone(), token, answer[3].clone())),
                _ => released.push(answer[1].clone()),
            }
        };
        // At another point of its work each time.
        for _ in 0..1 + round % 23 {
            take(other.answer());
        }
        // What it had said before it died counts too.
        other.kill_and_take_the_rest().into_iter().for_each(take);
        kept.retain(|(lease, ..)| !released.contains(lease));
        let store = opened.insert(folder.store());
        // The one before last may have been released, and only the word about it lost.
        let last = kept.pop();
        for (lease, token, owner) in kept {
            let holder = block_on(store.inspect(name(&lease))).unwrap().expect(&lease).holder;
            assert_eq!((holder.token, holder.owner), (Some(token), owner), "{lease}");
        }
        if let Some((lease, token, _)) = last
            && let Some(record) = block_on(store.inspect(name(&lease))).unwrap()
        {
            assert_eq!(record.holder.token, Some(token));
        }
        let token = granted(store, &format!("check {round}"), owner(1000, round), TTL);
        assert!(token > highest);
        highest = token;
    }
    drop(opened);
    let database = rusqlite::Connection::open(folder.database()).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn a_log_that_was_cut_after_a_kill_gives_no_lower_token() {
    for cut in [1, 24, 4096, 4096 + 24, 3 * 4096] {
        let folder = Folder::new();
        let mut other = Other::start(&folder, "", 1);
        other.send("spin cut");
        let mut highest = Token::ZERO;
        for _ in 0..20 {
            let answer = other.answer();
            highest = highest.max(Token::new(answer[2].parse().unwrap()));
        }
        other.kill();
        let log = format!("{}-wal", folder.database().display());
        let log = fs::OpenOptions::new().write(true).open(log).expect("the log of the killed process");
        let size = log.metadata().unwrap().len();
        assert!(size > 5 * 4096);
        log.set_len(size - cut).unwrap();
        drop(log);
        match try_acquire(&folder.store(), acquire("new", owner(2, 0), TTL)) {
            Ok(Acquired::Granted(token)) => assert!(token > highest, "{cut}"),
            Ok(Acquired::Held(holder)) => panic!("{cut}: {holder:?}"),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unsupported, "{cut}: {error}"),
        }
    }
}

#[test]
fn a_process_that_is_killed_while_it_moves_the_log_into_the_file_does_no_harm() {
    const PAGE: usize = 4096;
    let folder = Folder::new();
    let mut other = Other::start(&folder, "", 1);
    // Few enough for all of it to be in the log still.
    let granted: Vec<(String, Token)> = (0..100)
        .map(|n| format!("lease-{n}"))
        .map(|lease| {
            let token = other.acquire(&lease, TTL);
            (lease, token)
        })
        .collect();
    other.kill();
    // As SQLite does it, page by page beginning with the first; then it is killed.
    let log = fs::read(format!("{}-wal", folder.database().display())).unwrap();
    let first_page = log[32..]
        .chunks_exact(24 + PAGE)
        .rfind(|frame| frame[..4] == 1_u32.to_be_bytes())
        .expect("the first page was changed");
    let file = fs::OpenOptions::new().write(true).open(folder.database()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &first_page[24..], 0).unwrap();
    let pages = u32::from_be_bytes(first_page[24 + 28..24 + 32].try_into().unwrap());
    assert!(u64::from(pages) * PAGE as u64 > file.metadata().unwrap().len(), "its header promises more");
    drop(file);

    let store = folder.store();
    for (lease, token) in &granted {
        let record = block_on(store.inspect(name(lease))).unwrap().expect(lease);
        assert_eq!(record.holder.token, Some(*token), "{lease}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_two_grants_overlap_while_holders_are_killed_and_frozen() {
    const KILLS: u64 = 30;
    let folder = Folder::new();
    let history = |number: u64| folder.path().join(format!("history-{number}"));
    let begin = |number: u64| {
        let mut other = Other::start(&folder, "", number);
        other.send(&format!("history {}", history(number).display()));
        other
    };
    // Pairs of "from" and "until"; a line that is torn by the kill has no end.
    let lines = |number: u64| {
        let history = fs::read_to_string(history(number)).unwrap_or_default();
        history
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // From when to when each token was held, at least.
    let mut holds: BTreeMap<u64, (u128, u128)> = BTreeMap::new();
    let mut kill = |number: u64, other: Other| {
        let end = now().as_nanos();
        other.kill();
        for line in lines(number) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (token, at) = (words[1].parse().unwrap(), words[2].parse().unwrap());
            if words[0] == "from" {
                // Until it says otherwise, until the process was killed.
                assert_eq!(holds.insert(token, (at, end.max(at))), None, "given twice: {token}");
            } else {
                holds.get_mut(&token).expect("it began before").1 = at;
            }
        }
    };
    let mut others: VecDeque<(u64, Other)> = (0..3).map(|number| (number, begin(number))).collect();
    for number in 0..KILLS {
        let (victim, other) = others.pop_front().unwrap();
        // It has had the lease, and others have; it is killed wherever it is.
        let wanted = 2 + usize::try_from(number).unwrap() % 5;
        until("it has had the lease a few times", || lines(victim).len() >= wanted);
        if number % 3 == 0 {
            // Frozen first: nobody may take that for death.
            other.signal(Signal::STOP);
            until("it is frozen", || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", other.child.id())).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            });
        }
        kill(victim, other);
        others.push_back((3 + number, begin(3 + number)));
    }
    others.into_iter().for_each(|(number, other)| kill(number, other));
    assert!(holds.len() > 30, "only {} grants", holds.len());
    let holds: Vec<_> = holds.into_iter().collect();
    for pair in holds.windows(2) {
        let ((a, (_, until)), (b, (from, _))) = (pair[0], pair[1]);
        assert!(from >= until, "{b} was given at {from}, while {a} was held until {until}");
    }
}
