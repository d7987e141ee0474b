//! Timers and claims of their ticks.

use tenure_core::TimerName;
use tenure_store::{StoreError, TimerAnswer, TimerEntry, TimerRequest};

use crate::client::Client;

impl Client {
    pub(crate) async fn carry_out(&self, _request: &TimerRequest) -> Result<TimerAnswer, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn list_timers(
        &self,
        _after: Option<TimerName>,
        _most: usize,
    ) -> Result<Vec<TimerEntry>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }
}
