//! The embedded store has every property that a store must have.

use std::future::Future;
use std::time::Duration;

use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_store::conformance::Harness;

struct Embedded {
    folder: tempfile::TempDir,
    early: bool,
}

impl Embedded {
    fn new(early: bool) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), early }
    }

    fn open(&self, path: &std::path::Path) -> SqliteStore {
        SqliteStore::new(SqliteOptions::new(path).unwrap().early(self.early))
    }
}

impl Harness for Embedded {
    type Store = SqliteStore;

    const TTL: Duration = Duration::from_millis(300);

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        futures::executor::block_on(property)
    }

    async fn fresh(&self) -> SqliteStore {
        let number = std::fs::read_dir(self.folder.path()).unwrap().count();
        let folder = self.folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        self.open(&folder.join("leases.db"))
    }

    async fn handle(&self, store: &SqliteStore) -> SqliteStore {
        self.open(store.path())
    }

    async fn reopen(&self, store: SqliteStore) -> SqliteStore {
        self.open(store.path())
    }
}

tenure_store::conformance!(Embedded::new(true), ignore: {
    a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the machine's clock can't be set",
});

/// The same when nobody can tell whether another process lives.
mod without_early_takeover {
    use super::*;

    tenure_store::conformance!(Embedded::new(false), ignore: {
        a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the machine's clock can't be set",
    });
}
