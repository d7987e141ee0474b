//! Many operations at once: renewals travel together, one write behind the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join;
use futures::{FutureExt as _, StreamExt as _, stream};
use tenure_core::LeaseName;
use tenure_store::{Answer, Operation, Outcome, Renew, Replies, Store};

use crate::client::Client;

/// So many renewals are under way at once: more make none faster.
const RENEWED_AT_ONCE: usize = 256;

impl Client {
    /// Carries out a batch: what is not a renewal by itself, and renewals together.
    pub(crate) async fn carry_out_all(&self, batch: Vec<Operation>, replies: Replies) {
        let (renewals, (places, others)) = split(batch);
        if renewals.is_empty() {
            return Store::execute(self, others, replies).await;
        }
        // Whoever drops the future drops it, and then the rest is unknown.
        let replies = Arc::new(Mutex::new(replies));
        let to_others = Arc::clone(&replies);
        let replies_of_others = Replies::new(others.len(), move |index, outcome| {
            deliver(&to_others, places[index], outcome);
        });
        let renewals = renewals.into_iter().map(|(place, renewal)| {
            let replies = Arc::clone(&replies);
            async move {
                let renewed = self.renew_lease(&renewal).await.map_err(|error| error.about(&renewal.name));
                deliver(&replies, place, renewed.map(Answer::Renew));
            }
            .boxed()
        });
        let renewed = stream::iter(renewals).buffer_unordered(RENEWED_AT_ONCE).collect::<()>();
        // What is not a renewal is sent first.
        join(Store::execute(self, others, replies_of_others), renewed).await;
    }
}

fn deliver(replies: &Mutex<Replies>, place: usize, outcome: Outcome) {
    replies.lock().unwrap_or_else(PoisonError::into_inner).deliver(place, outcome);
}

/// What is to be renewed, with its place in the batch.
type Renewals = Vec<(usize, Renew)>;
/// Everything else, with the places.
type Others = (Vec<usize>, Vec<Operation>);

/// Parts the renewals that are the only operation on their lease from all others, which keep their order.
fn split(batch: Vec<Operation>) -> (Renewals, Others) {
    let repeated = repeated(&batch);
    let (mut renewals, mut places, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (place, operation) in batch.into_iter().enumerate() {
        match operation {
            Operation::Renew(renewal) if !repeated.contains(&renewal.name) => renewals.push((place, renewal)),
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
    use tenure_store::Release;

    use super::*;

    fn renew(name: &str) -> Renew {
        let owner = Identity::new("here", Incarnation::new(1)).unwrap().owner(Acquisition(0));
        let ttl = Duration::from_secs(1);
        Renew { name: LeaseName::new(name).unwrap(), owner, token: Token::new(7), ttl, timeout: ttl }
    }

    fn release(name: &str) -> Operation {
        let Renew { name, owner, timeout, .. } = renew(name);
        Release { name, owner, token: None, timeout }.into()
    }

    #[test]
    fn renewals_of_leases_with_another_operation_stay_in_their_place() {
        let batch = vec![
            renew("a").into(),
            renew("b").into(),
            release("c"),
            renew("d").into(),
            release("b"),
            renew("d").into(),
            renew("e").into(),
        ];
        let (renewals, (places, others)) = split(batch.clone());
        assert_eq!(renewals, [(0, renew("a")), (6, renew("e"))]);
        assert_eq!(places, [1, 2, 3, 4, 5]);
        assert_eq!(others, batch[1..6]);
    }
}
