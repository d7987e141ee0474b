//! The server, or servers, that keep the store: which of them a request goes to, and what it is answered with.

use std::sync::Arc;

use redis::{Cmd, ServerErrorKind, Value};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::error::{Cause, Failed};
use crate::keys::{Keys, Layout, Route};
use crate::link::Mode;
use crate::node::{Node, Way};
use crate::options::{RedisOptions, Target};
use crate::script::{Call, Script};
use crate::watch::Pushes;

/// All servers of a store.
pub(crate) struct Server {
    single: Arc<Keys>,
    cluster: Arc<Keys>,
    topology: Topology,
}

/// Where requests go.
pub(crate) enum Topology {
    /// One server, named by the URL. If it says that it is a node of a Cluster, keys are laid out for one.
    Single(Node),
    /// The primary, as Sentinels name it.
    Sentinel(Node),
    /// The nodes of a Cluster, by slot.
    Cluster(Node),
}

impl Server {
    pub(crate) fn new(options: &RedisOptions, pushes: Arc<Pushes>) -> Self {
        let node = |info| Node::new(Way::To(info), options.connect_timeout, pushes);
        let topology = match &options.target {
            Target::Server(info) => Topology::Single(node(info.clone())),
            Target::Sentinel { server, .. } => Topology::Sentinel(node(server.clone())),
            Target::Cluster(nodes) => Topology::Cluster(node(nodes[0].clone())),
        };
        let keys = |layout| Arc::new(Keys::new(Arc::clone(&options.prefix), layout));
        Self { single: keys(Layout::Single), cluster: keys(Layout::Cluster), topology }
    }

    /// The names of the keys, which depend on the server's own mode: so it connects, if it has not yet.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn keys(&self, until: Instant) -> Result<Arc<Keys>, StoreError> {
        let link = self.any().connected(until).await?;
        Ok(Arc::clone(match link.greeting.mode {
            Mode::Cluster => &self.cluster,
            Mode::Standalone | Mode::Sentinel => &self.single,
        }))
    }

    /// Closes the connections. What is asked afterwards is refused.
    pub(crate) async fn close(&self) {
        self.any().close();
    }

    /// Runs a script where the keys of this route are.
    pub(crate) async fn run(
        &self,
        route: Route,
        script: &Script,
        call: &Call,
        until: Instant,
    ) -> Result<Value, StoreError> {
        match self.send(route, &script.call(call), until).await {
            // It was not executed.
            Err(Failed { cause: Cause::Refused(answer), .. })
                if answer.kind() == Some(ServerErrorKind::NoScript) =>
            {
                Ok(self.send(route, &script.call_with_source(call), until).await?)
            }
            other => Ok(other?),
        }
    }

    /// Has a command carried out where the keys of this route are.
    pub(crate) async fn command(
        &self,
        route: Route,
        command: &Cmd,
        until: Instant,
    ) -> Result<Value, StoreError> {
        Ok(self.send(route, command, until).await?)
    }

    /// Subscribes to channels; all are confirmed when it returns. What comes, and that the connection was lost, goes to
    /// [`Pushes::push`].
    pub(crate) async fn subscribe(&self, channels: &[Vec<u8>], until: Instant) -> Result<(), StoreError> {
        self.any().subscribe(channels, until).await?;
        Ok(())
    }

    /// Ends subscriptions.
    pub(crate) async fn unsubscribe(&self, channels: &[Vec<u8>], until: Instant) -> Result<(), StoreError> {
        Ok(self.any().unsubscribe(channels, until).await?)
    }

    /// Sees to it that the connection that hears is there and answers: for those who only listen. Ask again at once if
    /// no answer comes: the second silence replaces the connection.
    pub(crate) async fn ping(&self, until: Instant) -> Result<(), StoreError> {
        Ok(self.any().ping(until).await?)
    }

    async fn send(&self, _route: Route, command: &Cmd, until: Instant) -> Result<Value, Failed> {
        self.any().request(command, until).await
    }

    /// Any of the servers.
    fn any(&self) -> &Node {
        match &self.topology {
            Topology::Single(node) | Topology::Sentinel(node) | Topology::Cluster(node) => node,
        }
    }
}
