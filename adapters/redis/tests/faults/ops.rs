//! Operations on leases, one at a time, as these tests need them.

use std::time::Duration;

use futures::channel::oneshot;
use tenure_redis::RedisStore;
use tenure_store::core::{Acquisition, Identity, Incarnation, LeaseName, Owner, Token};
use tenure_store::{
    Acquire, Acquired, Answer, Metadata, Operation, Release, Released, Renew, Renewed, Replies, Store,
    StoreError, StoreErrorKind,
};

/// Long enough for a machine under load; nothing waits this long when all is well.
pub const LONG: Duration = Duration::from_secs(30);
/// For requests that are not to be answered.
pub const SHORT: Duration = Duration::from_millis(200);
/// Longer than any test.
pub const TTL: Duration = Duration::from_secs(300);

pub fn store(url: &str) -> RedisStore {
    RedisStore::from_url(url).unwrap()
}

pub fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

/// The owner of acquisition `n` of one process.
pub fn owner(n: u64) -> Owner {
    Identity::new("test", Incarnation::new(1)).unwrap().owner(Acquisition(n))
}

pub async fn run(store: &RedisStore, operation: impl Into<Operation>) -> Result<Answer, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let replies = Replies::new(1, move |_, outcome| {
        let sender = sender.take().expect("one outcome");
        let _ = sender.send(outcome);
    });
    store.execute(vec![operation.into()], replies).await;
    receiver.await.expect("an outcome")
}

pub fn request(lease: &str, owner: Owner, timeout: Duration) -> Acquire {
    Acquire {
        name: name(lease),
        owner,
        ttl: TTL,
        floor: Token::ZERO,
        wait: false,
        metadata: Metadata::new(),
        timeout,
    }
}

pub async fn acquire(
    store: &RedisStore,
    lease: &str,
    n: u64,
    timeout: Duration,
) -> Result<Acquired, StoreError> {
    match run(store, Operation::Acquire(request(lease, owner(n), timeout))).await? {
        Answer::Acquire(acquired) => Ok(acquired),
        other => panic!("{other:?}"),
    }
}

pub async fn granted(store: &RedisStore, lease: &str, n: u64) -> Token {
    match acquire(store, lease, n, LONG).await {
        Ok(Acquired::Granted(token)) => token,
        other => panic!("{lease}: {other:?}"),
    }
}

pub async fn renew(
    store: &RedisStore,
    lease: &str,
    n: u64,
    token: Token,
    timeout: Duration,
) -> Result<Renewed, StoreError> {
    let renew = Renew { name: name(lease), owner: owner(n), token, ttl: TTL, timeout };
    match run(store, Operation::Renew(renew)).await? {
        Answer::Renew(renewed) => Ok(renewed),
        other => panic!("{other:?}"),
    }
}

pub async fn release(
    store: &RedisStore,
    lease: &str,
    n: u64,
    token: Option<Token>,
    timeout: Duration,
) -> Result<Released, StoreError> {
    let release = Release { name: name(lease), owner: owner(n), token, timeout };
    match run(store, Operation::Release(release)).await? {
        Answer::Release(released) => Ok(released),
        other => panic!("{other:?}"),
    }
}

/// Asks until it is so, and says how often it was not.
pub async fn until_renewed(store: &RedisStore, lease: &str, n: u64, token: Token) -> u32 {
    let start = tenure_store::clock::now();
    let mut failures = 0;
    loop {
        match renew(store, lease, n, token, LONG).await {
            Ok(Renewed::Renewed) => return failures,
            Ok(Renewed::NotYours) => panic!("{lease} is lost"),
            Err(error) => {
                let passed = tenure_store::clock::now().saturating_since(start);
                assert!(passed < LONG, "after {passed:?} still: {error}");
                assert!(matches!(error.kind, StoreErrorKind::Transient | StoreErrorKind::Unknown), "{error}");
                failures += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// The error, which is of this kind and says this.
pub fn fails<T: std::fmt::Debug>(result: Result<T, StoreError>, kind: StoreErrorKind, says: &str) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(says), "{says:?} is not in: {error}");
    error.message
}
