//! Leases that are held.

use std::time::Duration;

use tenure_servers::Cluster;
use tenure_store::core::{LeaseName, Token};
use tenure_store::{Acquired, Answer, Hint, Operation, Outcome, Renew, Renewed, Store, StoreErrorKind};

use crate::common::{Candidate, freed, run_batch};

/// A lease and its token.
pub(super) struct Held(pub(super) Candidate, pub(super) Token);

/// Takes leases of these names.
pub(super) async fn hold(store: &impl Store, names: impl IntoIterator<Item = String>) -> Vec<Held> {
    let candidates: Vec<_> = names.into_iter().map(|name| Candidate::new(&name, 1)).collect();
    let acquired = run_batch(store, candidates.iter().map(|one| one.acquire().into()).collect()).await;
    let held = candidates.into_iter().zip(acquired).map(|(candidate, acquired)| match acquired {
        Ok(Answer::Acquire(Acquired::Granted(token))) => Held(candidate, token),
        other => panic!("{:?} should be granted, but the answer is {other:?}", candidate.name),
    });
    held.collect()
}

/// Renews them all in one batch, waiting so long.
pub(super) async fn renew(store: &impl Store, held: &[Held], timeout: Duration) -> Vec<Outcome> {
    let renewals = held
        .iter()
        .map(|Held(candidate, token)| Operation::from(Renew { timeout, ..candidate.renew(*token) }));
    run_batch(store, renewals.collect()).await
}

pub(super) fn is_renewed(outcome: &Outcome) -> bool {
    *outcome == Ok(Answer::Renew(Renewed::Renewed))
}

pub(super) fn all_renewed(outcomes: &[Outcome]) {
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !is_renewed(outcome)).collect();
    assert!(failed.is_empty(), "{} of {} are not renewed: {failed:?}", failed.len(), outcomes.len());
}

/// Whether it was not done and will be if it is tried again.
pub(super) fn is_transient(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Transient)
}

/// So many names whose keys have the tag of this name, which is one of them; and its slot.
pub(super) fn alike(cluster: &Cluster, name: &str, count: usize) -> Vec<String> {
    let span = cluster.slot(name) / 256;
    let more = (0..).map(|number| format!("{name}-{number}")).filter(|name| cluster.slot(name) / 256 == span);
    std::iter::once(name.to_owned()).chain(more.take(count - 1)).collect()
}

/// The slot of the key of a lease that is held.
pub(super) fn slot(cluster: &Cluster, name: &str) -> u16 {
    let keys = cluster.keys();
    let key = keys.iter().find(|key| key.ends_with(&format!("}}:{name}")) && !key.contains('!'));
    cluster.slot(key.expect("the lease is held"))
}

/// Whether a hint has a waiter for this lease try again, as one that was chosen does: a resync stands for all hints.
pub(super) fn woken(name: &LeaseName) -> impl Fn(&Hint) -> Option<()> + '_ {
    move |hint| (*hint == Hint::Resync || freed(name)(hint) == Some(true)).then_some(())
}
