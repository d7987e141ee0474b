//! Hints: what the server pushes over the connection, and what becomes of it.

use redis::PushInfo;
use tenure_core::LeaseName;
use tenure_store::{Hints, StoreError};

use crate::client::Client;

/// What comes in without having been asked for.
#[derive(Debug, Default)]
pub(crate) struct Pushes {}

impl Pushes {
    /// Takes what the server, or the library, pushes. It must not wait.
    pub(crate) fn push(&self, _push: PushInfo) {}

    /// Ends the hints.
    pub(crate) fn close(&self) {}
}

impl Client {
    pub(crate) fn hear(&self) -> Option<Hints> {
        None
    }

    pub(crate) async fn watch_lease(&self, _name: &LeaseName) -> Result<(), StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn unwatch_lease(&self, _name: &LeaseName) {}
}
