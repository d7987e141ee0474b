//! Looking at what is there, for people.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;
use tenure_core::LeaseName;
use tenure_store::{Holder, LeaseRecord, StoreError, StoreErrorKind, clock};

use crate::client::Client;
use crate::error::strange;
use crate::keys::Route;
use crate::node::Node;
use crate::record;
use crate::script::{self, Call};

/// How long one request may take of those that say nothing about it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// So many keys the server looks at before it lets others go first.
const SCANNED_AT_ONCE: u32 = 1000;

/// So many leases are looked at in one call.
const LOOKED_AT_ONCE: usize = 100;

impl Client {
    pub(crate) async fn inspect_lease(&self, name: &LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.look_at([name]).await?.pop())
    }

    pub(crate) async fn list_leases(
        &self,
        after: Option<LeaseName>,
        most: usize,
    ) -> Result<Vec<LeaseRecord>, StoreError> {
        let mut after = after;
        loop {
            let names = self.page(":", after.as_ref(), most, |name| LeaseName::new(name).ok()).await?;
            let found = self.look_at(&names).await?;
            let Some(last) = names.last() else { return Ok(found) };
            // That all of a page is over meanwhile does not mean that nothing follows.
            if !found.is_empty() {
                return Ok(found);
            }
            after = Some(last.clone());
        }
    }

    /// Those of these leases that are held, in the same order.
    async fn look_at<'a>(
        &self,
        names: impl IntoIterator<Item = &'a LeaseName>,
    ) -> Result<Vec<LeaseRecord>, StoreError> {
        let keys = self.server.keys(clock::now() + PATIENCE).await?;
        let mut by_route: Vec<(Route, Vec<&LeaseName>, Call)> = Vec::new();
        for name in names {
            let (route, key) = keys.lease_alone(name);
            let place =
                by_route.iter().position(|(of, names, _)| *of == route && names.len() < LOOKED_AT_ONCE);
            let place = place.unwrap_or_else(|| {
                by_route.push((route, Vec::new(), Call::new()));
                by_route.len() - 1
            });
            let (_, names, call) = &mut by_route[place];
            names.push(name);
            call.push_key(&key);
        }
        let mut found = Vec::new();
        for (route, names, call) in by_route {
            for (name, answer) in names.into_iter().zip(self.look(route, &call).await?) {
                found.extend(answer.map(|holder| LeaseRecord::new(name.clone(), holder)));
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Who holds what stands under these keys of one route; `None` for each that nobody has.
    async fn look(&self, route: Route, call: &Call) -> Result<Vec<Option<Holder>>, StoreError> {
        let answer = self.server.run(route, &script::LOOK, call, clock::now() + PATIENCE).await?;
        let Value::Array(parts) = answer else { return Err(strange(&answer)) };
        let read = |part: Value| match &part {
            Value::Array(found) => match &found[..] {
                [] => Ok(None),
                [Value::Int(ms)] => Ok(Some(record::of_another_type(record::remaining(*ms)))),
                [Value::BulkString(value), Value::Int(ms)] => {
                    Ok(Some(record::holder(value, record::remaining(*ms))))
                }
                _ => Err(strange(&part)),
            },
            _ => Err(strange(&part)),
        };
        parts.into_iter().map(read).collect()
    }

    /// The first `most` names, in the order of their bytes, of which there is a key of this kind, beginning after `after`.
    ///
    /// The server has no order of keys, so each page looks at all of them.
    pub(crate) async fn page<N: Ord>(
        &self,
        kind: &str,
        after: Option<&N>,
        most: usize,
        name_of: impl Fn(&str) -> Option<N>,
    ) -> Result<BTreeSet<N>, StoreError> {
        let mut page = BTreeSet::new();
        if most == 0 {
            return Ok(page);
        }
        let keys = self.server.keys(clock::now() + PATIENCE).await?;
        self.scan(&keys.pattern(kind), |key| {
            let Some(name) = keys.name_in(kind, key).and_then(&name_of) else { return };
            if after.is_none_or(|after| name > *after) {
                page.insert(name);
                if page.len() > most {
                    page.pop_last();
                }
            }
        })
        .await?;
        if page.is_empty() && after.is_none() {
            // Every user may scan: nothing is found where the user may use no key of this prefix.
            self.inspect_lease(
                &LeaseName::new("any").map_err(|error| StoreError::rejected(error.to_string()))?,
            )
            .await?;
        }
        Ok(page)
    }

    /// All keys that match a pattern; the same one may come twice.
    pub(crate) async fn scan(&self, pattern: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), StoreError> {
        for node in self.server.nodes(clock::now() + PATIENCE).await? {
            scan_one(&node, pattern, &mut found).await?;
        }
        Ok(())
    }
}

/// All keys of one server that match a pattern.
async fn scan_one(node: &Node, pattern: &[u8], found: &mut impl FnMut(&[u8])) -> Result<(), StoreError> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCANNED_AT_ONCE);
        let answer = node
            .request(&command, clock::now() + PATIENCE)
            .await
            .map_err(|failed| needed_for_lists(failed.error))?;
        let Value::Array(parts) = &answer else { return Err(strange(&answer)) };
        let [Value::BulkString(next), Value::Array(keys)] = &parts[..] else {
            return Err(strange(&answer));
        };
        for key in keys {
            let Value::BulkString(key) = key else { return Err(strange(&answer)) };
            found(key);
        }
        if next == b"0" {
            return Ok(());
        }
        cursor.clone_from(next);
    }
}

/// Who may not list may do all else.
fn needed_for_lists(mut error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Rejected {
        error.message += "; lists need the permission to SCAN (+scan), which nothing else does";
    }
    error
}
