//! Tells of leases that become free or are taken (being written).
use crate::database::Database;
use crate::hints::HintQueue;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use tenure_core::{Instant, LeaseName};
use tenure_store::StoreError;

#[derive(Debug)]
pub(crate) struct Watcher {
    hints: Arc<HintQueue>,
}
impl Watcher {
    pub(crate) fn new(hints: Arc<HintQueue>) -> Self {
        Self { hints }
    }
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    pub(crate) fn turn(&mut self, _database: Option<&mut Database>) -> Option<Instant> {
        None
    }
    pub(crate) fn look_again(&mut self) {}
    pub(crate) fn watch(
        &mut self,
        _: Option<&mut Database>,
        _: &LeaseName,
        _: Instant,
    ) -> Result<(), StoreError> {
        Ok(())
    }
    pub(crate) fn unwatch(&mut self, _: Option<&mut Database>, _: &LeaseName, _: Instant) {}
    pub(crate) fn reopened(&mut self, _: Option<&mut Database>, _: Instant) {}
    pub(crate) fn end(&mut self, _: Option<&mut Database>) {
        self.hints.close();
    }
}
