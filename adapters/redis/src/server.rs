//! The server, or servers, that keep the store: which of them a request goes to, and what it is answered with.

use std::sync::Arc;

use redis::{Cmd, ServerErrorKind, Value};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::connect::Way;
use crate::error::{Cause, Failed};
use crate::greeting::Mode;
use crate::keys::{Keys, Layout, Route};
use crate::node::Node;
use crate::options::{RedisOptions, Target};
use crate::script::{Call, Script};
use crate::sentinel::Sentinels;
use crate::watch::Pushes;

/// All servers of a store.
pub(crate) struct Server {
    single: Arc<Keys>,
    cluster: Arc<Keys>,
    topology: Topology,
}

/// Where requests go.
pub(crate) enum Topology {
    /// One server: that of the URL, or the primary that Sentinels name, or the other end of the program's own connection.
    /// If it says that it is a node of a Cluster, keys are laid out for one.
    Single(Node),
    /// The nodes of a Cluster, by slot.
    Cluster(Node),
}

impl Server {
    pub(crate) fn new(options: &RedisOptions, pushes: Arc<Pushes>) -> Self {
        let node = |way| Node::new(way, options.connect_timeout, pushes);
        let topology = match options.target() {
            Target::Server(server) => Topology::Single(node(Way::To(server))),
            Target::Given(connection) => Topology::Single(node(Way::Given(connection))),
            Target::Sentinel { sentinels, service, server } => {
                let sentinels = Sentinels::new(sentinels, service, server);
                Topology::Single(node(Way::Sentinels(Arc::new(sentinels))))
            }
            Target::Cluster(mut nodes) => Topology::Cluster(node(Way::To(nodes.swap_remove(0)))),
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

    /// Whether its connections take what is pushed: not that of the program.
    pub(crate) fn pushes(&self) -> bool {
        !matches!(&self.topology, Topology::Single(node) if node.is_given())
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

    async fn send(&self, _route: Route, command: &Cmd, until: Instant) -> Result<Value, Failed> {
        self.any().request(command, until).await
    }

    /// Any of the servers.
    fn any(&self) -> &Node {
        match &self.topology {
            Topology::Single(node) | Topology::Cluster(node) => node,
        }
    }
}
