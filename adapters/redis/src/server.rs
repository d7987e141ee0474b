//! The server, or servers, that keep the store: which of them a request goes to, and what it is answered with.

use std::sync::Arc;

use redis::{Cmd, Value};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::keys::{Keys, Layout, Route};
use crate::node::Node;
use crate::options::{RedisOptions, Target};
use crate::script::{Call, Script};
use crate::watch::Pushes;

/// All servers of a store.
pub(crate) struct Server {
    keys: Arc<Keys>,
    node: Node,
}

impl Server {
    pub(crate) fn new(options: &RedisOptions, pushes: Arc<Pushes>) -> Self {
        let endpoint = match options.target() {
            Target::Server(endpoint) | Target::Sentinel { server: endpoint, .. } => endpoint,
            Target::Cluster(mut nodes) => nodes.swap_remove(0),
        };
        let node = Node::new(endpoint, options.connect_timeout, pushes);
        Self { keys: Arc::new(Keys::new(Arc::clone(&options.prefix), Layout::Single)), node }
    }

    /// The names of the keys, which depend on the server's mode: so it connects, if it has not yet.
    pub(crate) async fn keys(&self, _until: Instant) -> Result<Arc<Keys>, StoreError> {
        Ok(Arc::clone(&self.keys))
    }

    /// Closes the connections. What is asked afterwards is refused.
    pub(crate) async fn close(&self) {
        self.node.close().await;
    }

    /// Runs a script where the keys of this route are.
    pub(crate) async fn run(
        &self,
        route: Route,
        script: &Script,
        call: &Call,
        until: Instant,
    ) -> Result<Value, StoreError> {
        match self.command(route, &script.call(call), until).await {
            // It was not executed.
            Err(error) if error.message.contains("NOSCRIPT") || error.message.contains("NoScript") => {
                self.command(route, &script.call_with_source(call), until).await
            }
            other => other,
        }
    }

    /// Has a command carried out where the keys of this route are.
    pub(crate) async fn command(
        &self,
        _route: Route,
        command: &Cmd,
        until: Instant,
    ) -> Result<Value, StoreError> {
        self.node.request(command, until).await
    }
}
