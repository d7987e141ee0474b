//! The server, or servers, that keep the store: which of them a request goes to, and what it is answered with.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ServerErrorKind, Value};
use tenure_core::Instant;
use tenure_store::{StoreError, clock};

use crate::cluster::Cluster;
use crate::connect::Way;
use crate::error::{Cause, Failed};
use crate::greeting::Mode;
use crate::keys::{Keys, Layout, Route};
use crate::node::Node;
use crate::options::{RedisOptions, Target};
use crate::script::{Call, Script};
use crate::sentinel::Sentinels;
use crate::sleep::sleep;
use crate::watch::Pushes;

/// All servers of a store.
pub(crate) struct Server {
    single: Arc<Keys>,
    cluster: Arc<Keys>,
    topology: Topology,
}

/// Where requests go.
enum Topology {
    /// One server: the primary that Sentinels name, or the other end of the program's own connection. If it says that it is
    /// a node of a Cluster, keys are laid out for one, and it is asked for all of them.
    Single(Node),
    /// One server, or the nodes of a Cluster.
    Open(Box<Cluster>),
}

impl Server {
    pub(crate) fn new(options: &RedisOptions, pushes: Arc<Pushes>) -> Self {
        let open = |seeds| Box::new(Cluster::new(seeds, options.connect_timeout, Arc::clone(&pushes)));
        let target = options.target();
        let database = match &target {
            Target::Server(server) | Target::Sentinel { server, .. } => server.database(),
            Target::Given(connection) => connection.database(),
            // A Cluster has no other.
            Target::Cluster(_) => 0,
        };
        let topology = match target {
            Target::Server(server) => Topology::Open(open(vec![server])),
            Target::Cluster(nodes) => Topology::Open(open(nodes)),
            Target::Given(connection) => {
                let way = Way::Given(connection);
                Topology::Single(Node::new(way, options.connect_timeout, Arc::clone(&pushes)))
            }
            Target::Sentinel { sentinels, service, server } => {
                let sentinels = Sentinels::new(sentinels, service, server);
                let way = Way::Sentinels(Arc::new(sentinels));
                Topology::Single(Node::new(way, options.connect_timeout, Arc::clone(&pushes)))
            }
        };
        let keys = |layout| Arc::new(Keys::new(Arc::clone(&options.prefix), layout, database));
        Self { single: keys(Layout::Single), cluster: keys(Layout::Cluster), topology }
    }

    /// The names of the keys, which depend on the server's own mode: so it connects, if it has not yet.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn keys(&self, until: Instant) -> Result<Arc<Keys>, StoreError> {
        let mode = match &self.topology {
            Topology::Single(node) => node.connected(until).await?.greeting.mode,
            Topology::Open(cluster) => cluster.mode(until).await?,
        };
        Ok(Arc::clone(match mode {
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
        match &self.topology {
            Topology::Single(node) => node.close(),
            Topology::Open(cluster) => cluster.close(),
        }
    }

    /// Runs a script where the keys of this route are.
    pub(crate) async fn run(
        &self,
        route: Route,
        script: &Script,
        call: &Call,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let mut patience = Patience::until(until);
        loop {
            match self.try_run(route, script, call, until).await {
                Err(failed) if patience.again_after(&failed).await => {}
                result => return Ok(result?),
            }
        }
    }

    /// The same, for those who know what to do if the slot is being moved: `TRYAGAIN` says that the node that was asked
    /// has some of the keys and another node the rest.
    pub(crate) async fn try_run(
        &self,
        route: Route,
        script: &Script,
        call: &Call,
        until: Instant,
    ) -> Result<Value, Failed> {
        let outcome = match self.send(route, &script.call(call), until).await {
            // It was not executed.
            Err(Failed { cause: Cause::Refused(answer), .. })
                if answer.kind() == Some(ServerErrorKind::NoScript) =>
            {
                self.send(route, &script.call_with_source(call), until).await
            }
            other => other,
        };
        outcome.map_err(|failed| failed.about(call.first_key().as_deref()))
    }

    /// Has a command carried out where the keys of this route are.
    pub(crate) async fn command(
        &self,
        route: Route,
        command: &Cmd,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let mut patience = Patience::until(until);
        loop {
            match self.send(route, command, until).await {
                Err(failed) if patience.again_after(&failed).await => {}
                result => return Ok(result?),
            }
        }
    }

    /// All servers that have keys of ours: for what is not about one of them. Nothing of it is redirected.
    pub(crate) async fn nodes(&self, until: Instant) -> Result<Vec<Node>, StoreError> {
        match &self.topology {
            Topology::Single(node) => Ok(vec![node.clone()]),
            Topology::Open(cluster) => cluster.nodes(until).await,
        }
    }

    async fn send(&self, route: Route, command: &Cmd, until: Instant) -> Result<Value, Failed> {
        match &self.topology {
            Topology::Single(node) => node.request(command, until).await,
            Topology::Open(cluster) => cluster.request(route, command, until).await,
        }
    }
}

/// Waits for a change in the Cluster to be over, which commonly takes a moment only.
struct Patience {
    until: Instant,
    pause: Duration,
}

/// How long a request waits, at most, for a slot that is being moved or has no node.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

impl Patience {
    fn until(until: Instant) -> Self {
        Self { until: until.min(clock::now() + LONGEST_WAIT), pause: PAUSE.0 }
    }

    /// Whether to send again what failed, after a pause: it was not executed, and the next time it may be.
    async fn again_after(&mut self, failed: &Failed) -> bool {
        if !matches!(failed.code(), Some("TRYAGAIN" | "CLUSTERDOWN"))
            || clock::now() + self.pause >= self.until
        {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        true
    }
}
