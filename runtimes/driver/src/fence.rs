//! What makes a database, or a service, refuse the writes of a holder of the past.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::Token;

/// A fencing token for a table of SQL: with it a database refuses the writes of a holder whose lease is over.
///
/// The database keeps the highest token of each resource in a table of its own, [`Fence::TABLE`]. A transaction that writes
/// begins with one statement, [`Fence::ADMIT`], in whatever client the program has, sync or async: it raises the highest
/// token to this one, unless that is higher already, and locks its row until the transaction has ended. How many rows it
/// has affected says whether the transaction may go on, which [`Fence::admit`] judges. With no row it is rolled back.
///
/// ```
/// use tenure::{Fence, FenceError};
/// # use tenure::Token;
/// # use rusqlite::{Connection, TransactionBehavior, params};
///
/// # let mut database = Connection::open_in_memory()?;
/// # database.execute_batch("CREATE TABLE reports (id INTEGER PRIMARY KEY, text TEXT)")?;
/// # let (earlier, later) = (Token::new(7), Token::new(8));
/// database.execute_batch(Fence::TABLE)?;
///
/// let mut write = |token, text| {
///     let fence = Fence::new("reports", token)?;
///     let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
///     let rows = transaction.execute(Fence::ADMIT, params![fence.resource(), fence.token()])?;
///     fence.admit(rows as u64)?;
///     transaction.execute("INSERT INTO reports (text) VALUES ($1)", [text])?;
///     Ok::<(), Box<dyn std::error::Error>>(transaction.commit()?)
/// };
/// write(earlier, "one")?;
/// write(later, "two")?;
/// let refused = write(earlier, "late").expect_err("its lease has passed on");
/// assert!(matches!(refused.downcast_ref(), Some(FenceError::Stale { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A resource has the tokens of one lease: those of different leases are not comparable. All that the lease protects, and
/// that is written in one transaction, may be one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    resource: Arc<str>,
    token: i64,
}

impl Fence {
    /// Makes the table, for PostgreSQL and SQLite. It belongs to what sets the database up: PostgreSQL can fail if two
    /// sessions make a table at the same time.
    pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS tenure_fence (\
        resource TEXT NOT NULL PRIMARY KEY, \
        token BIGINT NOT NULL\
        )";

    /// Enters the token unless a higher one is there, for PostgreSQL and SQLite; `$1` is [`Fence::resource`], `$2` is
    /// [`Fence::token`]. To be executed first in each transaction that writes; in SQLite one that begins with
    /// `BEGIN IMMEDIATE`.
    ///
    /// To SQLite such a parameter is a name, and it counts them as they first come: here that is the same order.
    pub const ADMIT: &str = "INSERT INTO tenure_fence (resource, token) VALUES ($1, $2) \
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token \
        WHERE excluded.token >= tenure_fence.token";

    /// The fence of a resource, for the holder with this token.
    ///
    /// # Errors
    /// [`FenceError::TooHigh`]: SQL has no numbers above `i64::MAX`. No store that comes with Tenure gives such a token,
    /// unless its clock stands 290,000 years from now.
    pub fn new(resource: impl Into<Arc<str>>, token: Token) -> Result<Self, FenceError> {
        let resource = resource.into();
        match i64::try_from(token.get()) {
            Ok(token) => Ok(Self { resource, token }),
            Err(_) => Err(FenceError::TooHigh { resource, token }),
        }
    }

    /// What is protected.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The token, as SQL has it.
    #[must_use]
    pub const fn token(&self) -> i64 {
        self.token
    }

    /// Judges by the number of rows that [`Fence::ADMIT`] has affected, or any other statement that affects one row if it
    /// may and none if a higher token was there.
    ///
    /// # Errors
    /// [`FenceError::Stale`] if it was none, [`FenceError::NotOneRow`] if they were many: roll back.
    pub fn admit(&self, rows: u64) -> Result<(), FenceError> {
        let resource = self.resource.clone();
        match rows {
            1 => Ok(()),
            0 => Err(FenceError::Stale { resource, token: Token::new(self.token.unsigned_abs()) }),
            rows => Err(FenceError::NotOneRow { resource, rows }),
        }
    }
}

/// A value that takes writes of the latest holder only: for a service that keeps the highest token that it has seen by
/// itself.
///
/// ```
/// use tenure::{FenceError, Gate};
/// # use tenure::Token;
/// # let (earlier, later) = (Token::new(7), Token::new(8));
/// let reports = Gate::new("reports", Vec::new());
/// reports.write(earlier, |reports| reports.push("one"))?;
/// reports.write(later, |reports| reports.push("two"))?;
/// let refused = reports.write(earlier, |reports| reports.push("late"));
/// assert!(matches!(refused, Err(FenceError::Stale { .. })));
/// # Ok::<(), FenceError>(())
/// ```
///
/// It remembers for as long as it lives. A service that is started again has to know the [highest](Gate::highest) token
/// from before, else the late write of an old holder may be its first: it keeps that with its data, and goes on
/// [from there](Gate::above).
pub struct Gate<T> {
    resource: Arc<str>,
    state: Mutex<GateState<T>>,
}

struct GateState<T> {
    highest: Token,
    value: T,
}

impl<T> Gate<T> {
    /// A gate that has seen no token yet.
    #[must_use]
    pub fn new(resource: impl Into<Arc<str>>, value: T) -> Self {
        Self::above(resource, Token::ZERO, value)
    }

    /// A gate that refuses tokens below this one.
    #[must_use]
    pub fn above(resource: impl Into<Arc<str>>, highest: Token, value: T) -> Self {
        Self { resource: resource.into(), state: Mutex::new(GateState { highest, value }) }
    }

    /// Lets the holder with this token at the value, alone; from now on lower ones are refused, whatever `act` does.
    /// It blocks while another `act` runs, so that one should be short, and use the gate for nothing else: it would wait
    /// for itself.
    ///
    /// # Errors
    /// [`FenceError::Stale`] if a higher token was seen: nothing was done.
    pub fn write<R>(&self, token: Token, act: impl FnOnce(&mut T) -> R) -> Result<R, FenceError> {
        let mut state = self.state();
        if token < state.highest {
            return Err(FenceError::Stale { resource: self.resource.clone(), token });
        }
        state.highest = token;
        Ok(act(&mut state.value))
    }

    /// The highest token that was seen; zero if there was none.
    #[must_use]
    pub fn highest(&self) -> Token {
        self.state().highest
    }

    /// After a panic of somebody's `act` the token is what it should be; the value is the user's affair.
    fn state(&self) -> MutexGuard<'_, GateState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Gate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Why a write was refused. Nothing of it may stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has written.
    #[error(
        "token {token} of {resource:?} is stale: a later holder has written; stop, and acquire the lease anew"
    )]
    Stale {
        /// What is protected.
        resource: Arc<str>,
        /// The token of the refused write.
        token: Token,
    },
    /// The token does not fit into SQL's numbers.
    #[error("token {token} of {resource:?} is above {}, the highest that SQL can keep", i64::MAX)]
    TooHigh {
        /// What is protected.
        resource: Arc<str>,
        /// The token.
        token: Token,
    },
    /// The statement has affected several rows, so it was not one that admits.
    #[error(
        "admitting a write to {resource:?} affected {rows} rows instead of one or none: is it `Fence::ADMIT`?"
    )]
    NotOneRow {
        /// What is protected.
        resource: Arc<str>,
        /// How many.
        rows: u64,
    },
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_row_is_admitted_none_is_stale_and_more_are_a_mistake() {
        let fence = Fence::new("reports", Token::new(7)).unwrap();
        assert_eq!((fence.resource(), fence.token()), ("reports", 7));
        assert_eq!(fence.admit(1), Ok(()));
        let stale = fence.admit(0).unwrap_err();
        assert_eq!(stale, FenceError::Stale { resource: "reports".into(), token: Token::new(7) });
        let said =
            "token 7 of \"reports\" is stale: a later holder has written; stop, and acquire the lease anew";
        assert_eq!(stale.to_string(), said);
        assert_eq!(fence.admit(2), Err(FenceError::NotOneRow { resource: "reports".into(), rows: 2 }));
    }

    #[test]
    fn a_token_that_sql_cannot_keep_is_refused_rather_than_cut() {
        let highest = u64::try_from(i64::MAX).unwrap();
        assert_eq!(Fence::new("reports", Token::new(highest)).map(|fence| fence.token()), Ok(i64::MAX));
        let token = Token::new(highest + 1);
        assert_eq!(
            Fence::new("reports", token),
            Err(FenceError::TooHigh { resource: "reports".into(), token })
        );
    }

    #[test]
    fn a_gate_admits_the_same_token_again_and_none_below_it() {
        let gate = Gate::above("reports", Token::new(5), Vec::new());
        let write = |token| gate.write(Token::new(token), |written| written.push(token)).is_ok();
        assert_eq!([4, 5, 5, 8, 5, 7, 8, 9].map(write), [false, true, true, true, false, false, true, true]);
        assert_eq!(gate.write(Token::new(9), |written| written.clone()), Ok(vec![5, 5, 8, 8, 9]));
        assert_eq!(gate.highest(), Token::new(9));
    }

    #[test]
    fn a_gate_refuses_what_is_stale_also_after_a_panic() {
        let gate = Gate::new("reports", 0);
        let panicked = catch_unwind(AssertUnwindSafe(|| gate.write(Token::new(8), |_| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert!(gate.write(Token::new(7), |value| *value = 7).is_err());
        assert_eq!(gate.write(Token::new(8), |value| *value), Ok(0));
    }
}
