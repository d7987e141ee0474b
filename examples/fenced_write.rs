//! A write that comes too late is refused: by the database, with the fencing token of the lease.
//!
//! Blue has the lease, looks at it, and is paused before it writes, as a loaded machine or a debugger may pause it. Its
//! lease runs out meanwhile; green takes over and writes. Then blue wakes up in the middle of its own write. Nothing in a
//! process could prevent that; the table of tokens in the database can. Run it with `cargo run --example fenced_write`.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};
use tenure::{Fence, FenceError, LeaseConfig, MemoryStore, StartError, Tenure, Token};

type Failed = Box<dyn Error + Send + Sync>;

/// Writes with the token of whoever has the lease "reports", or not at all.
fn write(database: &mut Connection, token: Token, text: &str) -> Result<(), Failed> {
    let fence = Fence::new("reports", token)?;
    // From here on nobody else writes: nothing comes between the look at the token and the write.
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows = transaction.execute(Fence::ADMIT, params![fence.resource(), fence.token()])?;
    fence.admit(u64::try_from(rows)?)?; // If it is stale, dropping the transaction rolls it back.
    transaction.execute("INSERT INTO reports (text) VALUES ($1)", [text])?;
    Ok(transaction.commit()?)
}

fn tenure(instance: &str, store: MemoryStore) -> Result<Tenure, StartError> {
    let timing = LeaseConfig::new(Duration::from_millis(500));
    tenure::builder().store(store).instance(instance).lease(timing).start()
}

#[tokio::main(flavor = "current_thread")]
async fn blue(store: MemoryStore, file: &Path, asleep: Sender<()>, wake: Receiver<()>) -> Result<(), Failed> {
    let (tenure, mut database) = (tenure("blue", store)?, Connection::open(file)?);
    let lease = tenure.acquire("reports").await?;
    write(&mut database, lease.token(), "blue's first")?;
    println!("blue has token {}, writes, and looks again: valid {}", lease.token(), lease.is_valid());

    // This blocks the only thread: no renewal, and no look at the clock. Green needs no less than the TTL to get the lease.
    asleep.send(())?;
    let _awake = wake.recv();
    let late = write(&mut database, lease.token(), "blue's second");
    drop(lease); // Lost long ago.
    tenure.shutdown().await?;
    late
}

#[tokio::main(flavor = "current_thread")]
async fn green(store: MemoryStore, file: &Path) -> Result<(), Failed> {
    let (tenure, mut database) = (tenure("green", store)?, Connection::open(file)?);
    let lease = tenure.acquire("reports").await?;
    println!("green has token {}, and writes", lease.token());
    write(&mut database, lease.token(), "green's")?;
    lease.release().await?;
    Ok(tenure.shutdown().await?)
}

/// The reports that there are in the end, and what became of blue's late one.
fn story(file: &Path) -> Result<(Vec<String>, Result<(), Failed>), Failed> {
    let database = Connection::open(file)?;
    database.execute_batch(Fence::TABLE)?;
    database.execute_batch("CREATE TABLE reports (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")?;
    let (store, (asleep, sleeps), (wake, woken)) = (MemoryStore::new(), mpsc::channel(), mpsc::channel());
    let late = thread::scope(|threads| {
        let sleeper = threads.spawn(|| blue(store.handle(), file, asleep, woken));
        sleeps.recv()?;
        green(store.handle(), file)?;
        wake.send(())?;
        Ok::<_, Failed>(sleeper.join().expect("blue does not panic"))
    })?;
    let mut reports = database.prepare("SELECT text FROM reports ORDER BY id")?;
    let reports = reports.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok((reports, late))
}

fn main() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let (reports, late) = story(&directory.path().join("reports.db"))?;
    let refused: FenceError = *late.expect_err("a late write was admitted").downcast()?;
    println!("blue wakes up, and writes: {refused}\nthe reports are {reports:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn stale(result: Result<(), Failed>) -> Option<u64> {
        match *result.err()?.downcast().unwrap() {
            FenceError::Stale { resource, token } if *resource == *"reports" => Some(token.get()),
            other => panic!("{other}"),
        }
    }

    /// A database with an empty table of reports.
    fn database() -> (tempfile::TempDir, impl Fn() -> Connection) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("reports.db");
        let open = move || {
            let database = Connection::open(&file).unwrap();
            database.execute_batch(Fence::TABLE).unwrap();
            let table =
                "CREATE TABLE IF NOT EXISTS reports (id INTEGER PRIMARY KEY, text TEXT, token BIGINT)";
            database.execute_batch(table).unwrap();
            database
        };
        (directory, open)
    }

    #[test]
    fn the_late_write_of_a_paused_holder_is_refused_and_nothing_else_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (reports, late) = story(&directory.path().join("reports.db")).unwrap();
        assert_eq!(reports, ["blue's first", "green's"]);
        assert!(stale(late).is_some());
    }

    #[test]
    fn a_holder_writes_as_often_as_it_wants_and_none_before_it_any_more() {
        let (_directory, open) = database();
        let mut database = open();
        let mut write = |token| stale(write(&mut database, Token::new(token), "text"));
        let highest = u64::try_from(i64::MAX).unwrap();
        let tokens = [5, 5, 4, 7, 5, 7, 1_800_000_000_000_000, 7, highest, 8];
        let refused = [None, None, Some(4), None, Some(5), None, None, Some(7), None, Some(8)];
        assert_eq!(tokens.map(&mut write), refused);
    }

    #[test]
    fn the_guide_shows_the_sql_that_there_is() {
        let words = |text: &str| {
            text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")")
        };
        let guide = words(include_str!("../src/guide/fencing.md"));
        assert!(guide.contains(&words(Fence::TABLE)) && guide.contains(&words(Fence::ADMIT)));
    }

    #[test]
    fn resources_have_tokens_of_their_own() {
        let (_directory, open) = database();
        let database = open();
        let admit = |resource, token| database.execute(Fence::ADMIT, params![resource, token]);
        assert_eq!(admit("reports", 8), Ok(1));
        assert_eq!(admit("invoices", 7), Ok(1));
        assert_eq!(admit("reports", 7), Ok(0));
    }

    #[test]
    fn a_write_that_waited_for_that_of_a_later_holder_is_refused() {
        let (_directory, open) = database();
        let mut later = open();
        let transaction = later.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        assert_eq!(transaction.execute(Fence::ADMIT, params!["reports", 8]), Ok(1));

        static WAITS: AtomicBool = AtomicBool::new(false);
        let mut earlier = open();
        let writer = thread::spawn(move || {
            let busy = |_| {
                WAITS.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
                true
            };
            earlier.busy_handler(Some(busy)).unwrap();
            stale(write(&mut earlier, Token::new(7), "late"))
        });
        while !WAITS.load(Ordering::Relaxed) {
            assert!(!writer.is_finished(), "it has not waited for the other transaction");
            thread::yield_now();
        }
        transaction.execute("INSERT INTO reports (text) VALUES ('first')", []).unwrap();
        transaction.commit().unwrap();
        assert_eq!(writer.join().unwrap(), Some(7));
        let reports = open().query_row("SELECT group_concat(text) FROM reports", [], |row| row.get(0));
        assert_eq!(reports, Ok("first".to_owned()));
    }

    #[test]
    fn a_token_in_the_row_that_is_written_does_the_same_for_this_row() {
        let (_directory, open) = database();
        let database = open();
        database.execute_batch("INSERT INTO reports (id, text, token) VALUES (1, 'none', 0)").unwrap();
        let update = "UPDATE reports SET text = $1, token = $2 WHERE id = 1 AND token <= $2";
        let mut write = |token| {
            let fence = Fence::new("reports", Token::new(token)).unwrap();
            let rows = database.execute(update, params![format!("by {token}"), fence.token()]).unwrap();
            fence.admit(u64::try_from(rows).unwrap()).is_ok()
        };
        assert_eq!([7, 8, 7, 8].map(&mut write), [true, true, false, true]);
    }
}
