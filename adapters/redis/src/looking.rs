//! Looking at what is there, for people.

use tenure_core::LeaseName;
use tenure_store::{LeaseRecord, StoreError};

use crate::client::Client;

impl Client {
    pub(crate) async fn inspect_lease(&self, name: &LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        Err(StoreError::unsupported(format!("not yet: {name}")))
    }

    pub(crate) async fn list_leases(
        &self,
        _after: Option<LeaseName>,
        _most: usize,
    ) -> Result<Vec<LeaseRecord>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }
}
