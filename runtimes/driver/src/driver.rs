//! The task that drives everything.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::channel::mpsc;
use tenure_core::{Identity, SplitMix};
use tenure_store::Metadata;

use crate::request::Request;
use crate::runtime::Runtime;
use crate::stats::Stats;
use crate::store::AnyStore;

/// Being written.
pub(crate) struct Driver<R> {
    _runtime: R,
}

impl<R: Runtime> Driver<R> {
    pub(crate) fn new(
        runtime: R,
        store: AnyStore,
        identity: Identity,
        jitter: SplitMix,
        metadata: Metadata,
        inbox: mpsc::UnboundedReceiver<Request>,
        stats: Arc<Mutex<Stats>>,
    ) -> Self {
        drop((store, identity, jitter, metadata, inbox, stats));
        Self { _runtime: runtime }
    }
}

impl<R: Runtime> Future for Driver<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
