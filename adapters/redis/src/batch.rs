//! Many operations at once: renewals travel together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{join, join_all};
use tenure_core::{Instant, LeaseName};
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

impl Group {
    fn push(&mut self, place: usize, renewal: Renew) {
        self.places.push(place);
        self.renewals.push(renewal);
    }
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

    async fn renew_all(&self, asked: Group, deliver: &impl Fn(usize, Outcome)) {
        let now = clock::now();
        // Those that travel together end together, by the first of their ends. So one that has hardly any time left takes
        // none along that have more than twice as much.
        let mut by_timeout: BTreeMap<Option<u32>, Group> = BTreeMap::new();
        for (place, renewal) in asked.places.into_iter().zip(asked.renewals) {
            match self.limits.check_renew(&renewal) {
                Ok(()) => {
                    let doublings = renewal.timeout.as_millis().checked_ilog2();
                    by_timeout.entry(doublings).or_default().push(place, renewal);
                }
                Err(error) => deliver(place, Err(error)),
            }
        }
        join_all(by_timeout.into_values().map(|group| self.renew_alike(group, now, deliver))).await;
    }

    /// Renewals of similar time-outs, which began at `now`.
    async fn renew_alike(&self, renewals: Group, now: Instant, deliver: &impl Fn(usize, Outcome)) {
        let timeout = renewals.renewals.iter().map(|renew| renew.timeout).min().unwrap_or_default();
        let keys = match self.server.keys(now + timeout).await {
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
                group.push(place, renewal);
            }
        }
        let calls = by_route.into_values().flatten().map(async |group| {
            let results = self.renew_leases(&group.renewals, now).await;
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
                renewals.push(place, renewal);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Acquisition, Identity, Incarnation, Token};
    use tenure_store::{Release, StoreErrorKind};

    use super::*;
    use crate::options::RedisOptions;
    use crate::sleep::block_on;

    fn renew(name: &str, ttl: Duration) -> Renew {
        let owner = Identity::new("here", Incarnation::new(1)).unwrap().owner(Acquisition(0));
        let name = LeaseName::new(name).unwrap();
        Renew { name, owner, token: Token::new(7), ttl, timeout: Duration::from_millis(200) }
    }

    fn release(name: &str) -> Operation {
        let Renew { name, owner, timeout, .. } = renew(name, Duration::ZERO);
        Release { name, owner, token: None, timeout }.into()
    }

    #[test]
    fn renewals_of_leases_with_another_operation_stay_in_their_place() {
        let ttl = Duration::from_secs(1);
        let batch = vec![
            renew("a", ttl).into(),
            renew("b", ttl).into(),
            release("c"),
            renew("d", ttl).into(),
            release("b"),
            renew("d", ttl).into(),
            renew("e", ttl).into(),
        ];
        let (renewals, (places, others)) = split(batch.clone());
        assert_eq!(renewals.places, [0, 6]);
        assert_eq!(renewals.renewals, [renew("a", ttl), renew("e", ttl)]);
        assert_eq!(places, [1, 2, 3, 4, 5]);
        assert_eq!(others, batch[1..6]);
    }

    #[test]
    fn without_a_server_each_renewal_fails_by_itself_and_names_its_lease() {
        // Nothing listens there.
        let client = Client::new(&RedisOptions::from_url("redis://127.0.0.1:1").unwrap());
        let batch = vec![
            renew("a", Duration::from_secs(1)).into(),
            renew("b", Duration::ZERO).into(),
            renew("c", Duration::from_secs(1)).into(),
        ];
        let outcomes = Arc::new(Mutex::new(vec![None; 3]));
        let sink = Arc::clone(&outcomes);
        let replies = Replies::new(3, move |place, outcome: Outcome| {
            let error = outcome.unwrap_err();
            sink.lock().unwrap()[place] = Some((error.kind, error.lease().unwrap().as_str().to_owned()));
        });
        block_on(client.carry_out_all(batch, replies));
        let expected = [
            (StoreErrorKind::Transient, "a"),
            (StoreErrorKind::Rejected, "b"),
            (StoreErrorKind::Transient, "c"),
        ];
        let outcomes = outcomes.lock().unwrap().clone();
        assert_eq!(outcomes, expected.map(|(kind, name)| Some((kind, name.to_owned()))));
    }
}
