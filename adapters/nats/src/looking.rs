//! Looking at what is there, for people.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tenure_core::LeaseName;
use tenure_store::{LeaseRecord, StoreError, StoreTime, clock};

use crate::client::Client;
use crate::link::{PATIENCE, Stored};
use crate::names::Kind;
use crate::record;

/// So many records are read side by side for a list.
const READ_AT_ONCE: usize = 32;

impl Client {
    pub(crate) async fn inspect_lease(&self, name: &LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let found = self.link.get(&self.link.names.lease(name), until).await?;
        let Some(stored) = found.filter(|stored| !stored.gone) else { return Ok(None) };
        let now = self.link.time(until).await?.wall;
        let is_over = record::is_overdue(&stored, now, self.limits.clock.step);
        Ok((!is_over).then(|| record::lease(name.clone(), &stored, now)))
    }

    pub(crate) async fn list_leases(
        &self,
        after: Option<LeaseName>,
        most: usize,
    ) -> Result<Vec<LeaseRecord>, StoreError> {
        let mut after = after;
        loop {
            let (time, found) =
                self.page(Kind::Lease, after.as_ref(), most, |name| LeaseName::new(name).ok()).await?;
            after = found.last().map(|(name, _)| name.clone());
            let is_held = |stored: &Stored| !record::is_overdue(stored, time.wall, self.limits.clock.step);
            let held = found.into_iter().filter(|(_, stored)| is_held(stored));
            let held: Vec<_> = held.map(|(name, stored)| record::lease(name, &stored, time.wall)).collect();
            // That all of a page are over does not mean that nothing follows.
            if !held.is_empty() || after.is_none() {
                return Ok(held);
            }
        }
    }

    /// The first `most` records of a kind in the order of their names' bytes, beginning after `after`, and the server's time.
    ///
    /// The server has no order of names, so each page looks at all of them.
    pub(crate) async fn page<N: Ord + Clone>(
        &self,
        kind: Kind,
        after: Option<&N>,
        most: usize,
        name_of: impl Fn(String) -> Option<N>,
    ) -> Result<(StoreTime, Vec<(N, Stored)>), StoreError> {
        let until = clock::now() + PATIENCE;
        let names = &self.link.names;
        let (time, subjects) = self.link.subjects(&names.all_of(kind), until).await?;
        let named = |subject: String| Some((name_of(names.name_in(kind, &subject)?)?, subject));
        let mut named: BTreeSet<(N, String)> = subjects.into_iter().filter_map(named).collect();
        if let Some(after) = after {
            named.retain(|(name, _)| name > after);
        }
        let mut found = Vec::new();
        let mut records = stream::iter(named)
            .map(|(name, subject)| async move {
                let stored = self.link.get(&subject, until).await?;
                Ok::<_, StoreError>(stored.filter(|stored| !stored.gone).map(|stored| (name, stored)))
            })
            .buffered(READ_AT_ONCE);
        while found.len() < most {
            match records.try_next().await? {
                Some(record) => found.extend(record),
                None => break,
            }
        }
        Ok((time, found))
    }
}
