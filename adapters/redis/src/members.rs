//! The instances of the fleet.

use tenure_core::{Identity, Presence};
use tenure_store::{DrainMark, Heartbeat, Leave, MemberEntry, StoreError};

use crate::client::Client;

impl Client {
    pub(crate) async fn beat(&self, _beat: &Heartbeat) -> Result<Presence, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn farewell(&self, _leave: &Leave) -> Result<(), StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn list_members(
        &self,
        _after: Option<Identity>,
        _most: usize,
    ) -> Result<Vec<MemberEntry>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn mark_members(&self, _mark: &DrainMark) -> Result<Vec<Identity>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }
}
