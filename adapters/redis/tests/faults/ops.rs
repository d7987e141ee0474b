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
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// For requests that are not to be answered.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
/// Longer than any test.
pub(crate) const TTL: Duration = Duration::from_secs(300);

pub(crate) fn store(url: &str) -> RedisStore {
    RedisStore::from_url(url).unwrap()
}

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

/// The owner of acquisition `n` of one process.
pub(crate) fn owner(n: u64) -> Owner {
    Identity::new("test", Incarnation::new(1)).unwrap().owner(Acquisition(n))
}

pub(crate) async fn run(store: &RedisStore, operation: impl Into<Operation>) -> Result<Answer, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let replies = Replies::new(1, move |_, outcome| {
        let sender = sender.take().expect("one outcome");
        let _ = sender.send(outcome);
    });
    store.execute(vec![operation.into()], replies).await;
    receiver.await.expect("an outcome")
}

pub(crate) fn request(lease: &str, owner: Owner, timeout: Duration) -> Acquire {
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

pub(crate) async fn acquire(
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

pub(crate) async fn granted(store: &RedisStore, lease: &str, n: u64) -> Token {
    match acquire(store, lease, n, LONG).await {
        Ok(Acquired::Granted(token)) => token,
        other => panic!("{lease}: {other:?}"),
    }
}

pub(crate) async fn renew(
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

pub(crate) async fn release(
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
pub(crate) async fn until_renewed(store: &RedisStore, lease: &str, n: u64, token: Token) -> u32 {
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
                // In whichever runtime this is, connections go on meanwhile or afterwards.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The error, which is of this kind and says this.
pub(crate) fn fails<T: std::fmt::Debug>(
    result: Result<T, StoreError>,
    kind: StoreErrorKind,
    says: &str,
) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(says), "{says:?} is not in: {error}");
    error.message
}

/// How many connections of this process lead to a port of this machine.
pub(crate) fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Established; what we have closed and the other side has not is in another state.
    fields.filter(|fields| fields[2].ends_with(&remote) && fields[3] == "01").count()
}
