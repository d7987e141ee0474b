use super::*;

fn refused(url: &str) -> String {
    store(url).expect_err(url).to_string()
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    for url in ["radish://host", "postgres:x", "http://host", ":", "Ünknown:x"] {
        let error = refused(url);
        assert!(
            error.contains("known are memory:, sqlite:/path/to/file.db, embedded:app, redis://host"),
            "{error}"
        );
    }
    assert!(refused("leases.db").contains("no scheme"));
    assert!(refused("").contains("no scheme"));
    assert!(refused("radish://host").contains("\"radish\""));
}

#[test]
fn no_error_shows_a_password() {
    for url in [
        "redis://user:s3cret@",
        "redis+other://user:s3cret@host",
        "nats://s3cret@host",
        "tls://user:s3cret@",
        "radish://user:s3cret@host",
        "s3cret",
        "s3cret@host:1234",
        "user=s3cret:x",
        "memory:s3cret",
    ] {
        assert!(!refused(url).contains("s3cret"), "{}", refused(url));
    }
}

#[cfg(feature = "memory")]
#[test]
fn memory_has_nothing_after_its_colon() {
    assert!(store("memory:").is_ok());
    assert!(store("MEMORY:").is_ok());
    assert!(refused("memory:a").contains("must be just memory:"));
}

#[cfg(all(feature = "sqlite", unix))]
#[test]
fn what_the_embedded_store_refuses_is_said() {
    assert!(refused("sqlite:/").contains("name a file"));
    assert!(refused("sqlite:/a.db?earyl=off").contains("earyl"));
    assert!(refused("embedded:../a").contains("../a"));
    assert!(store("sqlite:/nowhere/yet.db").is_ok(), "nothing is opened yet");
}

#[test]
fn redis_is_there_with_its_feature_and_a_runtime() {
    let urls = [
        "redis://localhost",
        "REDIS://localhost",
        "rediss://user:p%40ss@localhost:6380/2?prefix=billing",
        "valkey://[::1]",
        "redis+unix:///run/redis.sock",
        "valkey+sentinel://one,two/service",
        "rediss+cluster://one,two:7001",
    ];
    for url in urls {
        if cfg!(all(feature = "redis", any(feature = "tokio", feature = "smol"))) {
            assert!(store(url).is_ok(), "{url}: {}", refused(url));
        } else if cfg!(feature = "redis") {
            assert!(refused(url).contains("needs the feature `tokio` or `smol`"), "{}", refused(url));
        } else {
            assert!(refused(url).contains("needs the feature `redis`"), "{}", refused(url));
        }
    }
}

#[test]
fn nats_is_there_with_its_feature() {
    for url in
        ["nats://localhost", "NATS://one,two?bucket=billing&replicas=3", "tls://user:p%40ss@[::1]:4223"]
    {
        if cfg!(feature = "nats") {
            assert!(store(url).is_ok(), "{url}: {}", refused(url));
        } else {
            assert!(refused(url).contains("needs the feature `nats`"), "{}", refused(url));
        }
    }
}

#[cfg(feature = "nats")]
#[test]
fn what_is_wrong_with_a_url_of_nats_is_said() {
    assert!(refused("nats://host?bukcet=a").contains("\"bukcet\""));
    assert!(refused("nats://host/bucket").contains("?bucket="));
}

#[cfg(all(feature = "redis", any(feature = "tokio", feature = "smol")))]
#[test]
fn what_is_wrong_with_a_url_of_redis_is_said() {
    assert!(refused("redis+sentinal://host/service").contains("+sentinel:"));
    assert!(refused("redis://host?perfix=a").contains("\"perfix\""));
    assert!(refused("redis+sentinel://host").contains("name the service"));
}

#[cfg(all(feature = "sqlite", feature = "tokio", unix))]
#[tokio::test]
async fn two_processes_share_the_leases_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases.db").display());
    let (one, other) = (crate::connect(&url).await.unwrap(), crate::connect(&url).await.unwrap());
    let lease = one.acquire("backup").await.unwrap();
    let busy = other.try_acquire("backup").await.unwrap_err();
    assert!(matches!(busy, crate::AcquireError::Busy { .. }), "{busy}");
    assert_eq!(other.leases().await.unwrap().len(), 1);

    let token = lease.token();
    let next = tokio::spawn(other.acquire("backup").into_future());
    lease.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert!(next.token() > token);
    drop(next);
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

#[cfg(all(feature = "sqlite", feature = "tokio", unix))]
#[tokio::test]
async fn a_file_that_cannot_be_opened_shows_when_a_lease_is_acquired() {
    let tenure = crate::connect("sqlite:/nowhere/at/all.db").await.unwrap();
    let error = tenure.try_acquire("backup").await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/nowhere/at") && text.contains("\"backup\""), "{text}");
    tenure.shutdown().await.unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn outside_of_tokio_the_start_is_refused() {
    let error = futures::executor::block_on(crate::connect("memory:")).unwrap_err();
    assert!(matches!(error, ConnectError::Start(_)), "{error}");
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}
