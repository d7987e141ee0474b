//! The server, or servers, that keep the store: which of them a request goes to, and what it is answered with.

use std::sync::Arc;

use redis::{Cmd, ProtocolVersion, Value};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::keys::{Keys, Layout};
use crate::node::Node;
use crate::options::{RedisOptions, Target};
use crate::script::{Call, Script};
use crate::tags::Route;
use crate::watch::Pushes;

/// All servers of a store.
pub(crate) struct Server {
    keys: Arc<Keys>,
    node: Node,
}

impl Server {
    pub(crate) fn new(options: &RedisOptions, pushes: Arc<Pushes>) -> Self {
        let info = match &options.target {
            Target::Server(info) => info.clone(),
            Target::Sentinel { server, .. } => server.clone(),
            Target::Cluster(nodes) => nodes[0].clone(),
        };
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let node = Node::new(info.set_redis_settings(settings), options.connect_timeout, pushes);
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
