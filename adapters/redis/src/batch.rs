//! Many operations at once: renewals travel together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{join, join_all};
use tenure_core::LeaseName;
use tenure_store::{Answer, Operation, Outcome, Renew, Replies, Store, StoreError, clock};

use crate::client::Client;
use crate::keys::Route;

/// So many leases are renewed in one call of a script. Fewer cost more calls, more keep other commands waiting.
const RENEWED_AT_ONCE: usize = 250;

/// Renewals that travel together, with their places in the batch.
#[derive(Default)]
struct Group {
    places: Vec<usize>,
    renewals: Vec<Renew>,
}

impl Client {
    /// Carries out a batch: what is not a renewal by itself, and renewals together.
    pub(crate) async fn carry_out_all(&self, batch: Vec<Operation>, replies: Replies) {
        let (renewals, (places, others)) = split(batch);
        if renewals.renewals.is_empty() {
            return Store::execute(self, others, replies).await;
        }
        // Whoever drops the future drops it, and then the rest is unknown.
        let replies = Arc::new(Mutex::new(replies));
        let deliver = {
            let replies = Arc::clone(&replies);
            move |place, outcome| {
                replies.lock().unwrap_or_else(PoisonError::into_inner).deliver(place, outcome);
            }
        };
        let to_others = deliver.clone();
        let replies_of_others =
            Replies::new(others.len(), move |index, outcome| to_others(places[index], outcome));
        // What is not a renewal is sent first.
        join(Store::execute(self, others, replies_of_others), self.renew_all(renewals, &deliver)).await;
    }

    async fn renew_all(&self, renewals: Group, deliver: &impl Fn(usize, Outcome)) {
        let timeout = renewals.renewals.iter().map(|renew| renew.timeout).max().unwrap_or_default();
        let keys = match self.server.keys(clock::now() + timeout).await {
            Ok(keys) => keys,
            Err(error) => return fail(&renewals, &error, deliver),
        };
        let mut by_route: BTreeMap<Route, Vec<Group>> = BTreeMap::new();
        let mut key = Vec::new();
        for (place, renewal) in renewals.places.into_iter().zip(renewals.renewals) {
            let groups = by_route.entry(keys.write_lease(&renewal.name, &mut key)).or_default();
            if groups.last().is_none_or(|group| group.places.len() == RENEWED_AT_ONCE) {
                groups.push(Group::default());
            }
            if let Some(group) = groups.last_mut() {
                group.places.push(place);
                group.renewals.push(renewal);
            }
        }
        let calls = by_route.into_values().flatten().map(async |group| {
            let results = self.renew_leases(&group.renewals).await;
            for (place, result) in group.places.into_iter().zip(results) {
                deliver(place, result.map(Answer::Renew));
            }
        });
        join_all(calls).await;
    }
}

fn fail(renewals: &Group, error: &StoreError, deliver: &impl Fn(usize, Outcome)) {
    for (place, renewal) in renewals.places.iter().zip(&renewals.renewals) {
        deliver(*place, Err(error.clone().about(&renewal.name)));
    }
}

/// Parts the renewals that are the only operation on their lease from all others, which keep their order.
fn split(batch: Vec<Operation>) -> (Group, (Vec<usize>, Vec<Operation>)) {
    let repeated = repeated(&batch);
    let (mut renewals, mut places, mut others) = (Group::default(), Vec::new(), Vec::new());
    for (place, operation) in batch.into_iter().enumerate() {
        match operation {
            Operation::Renew(renewal) if !repeated.contains(&renewal.name) => {
                renewals.places.push(place);
                renewals.renewals.push(renewal);
            }
            other => {
                places.push(place);
                others.push(other);
            }
        }
    }
    (renewals, (places, others))
}

/// The leases on which there is more than one operation: those of one lease keep their order.
fn repeated(batch: &[Operation]) -> BTreeSet<LeaseName> {
    let mut names: Vec<&LeaseName> = batch
        .iter()
        .filter_map(|operation| match operation {
            Operation::Acquire(acquire) => Some(&acquire.name),
            Operation::Renew(renew) => Some(&renew.name),
            Operation::Release(release) => Some(&release.name),
            Operation::Timer(_) | Operation::Heartbeat(_) | Operation::Leave(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect()
}
