//! What the server and the client library say, put into the words and classes of the store contract.

use redis::RedisError;
use tenure_store::StoreError;

/// An error of a request that may have reached the server.
pub(crate) fn store_error(error: &RedisError) -> StoreError {
    match error.kind() {
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => StoreError::rejected(error.to_string()),
        _ => StoreError::unknown(error.to_string()),
    }
}

/// An answer that no script of ours gives.
pub(crate) fn strange(answer: &redis::Value) -> StoreError {
    StoreError::unsupported(format!("the server gave an answer that can't be: {answer:?}"))
}
