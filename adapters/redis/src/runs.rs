//! Records of what jobs did.

use tenure_core::JobName;
use tenure_store::{JobRecord, RunRecord, RunReport, StoreError};

use crate::client::Client;

impl Client {
    pub(crate) async fn keep_report(&self, _report: &RunReport) -> Result<(), StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn list_jobs(
        &self,
        _after: Option<JobName>,
        _most: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn runs_of(&self, _job: &JobName) -> Result<Vec<RunRecord>, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }

    pub(crate) async fn forget_runs(&self, _job: &JobName) -> Result<bool, StoreError> {
        Err(StoreError::unsupported("not yet"))
    }
}
