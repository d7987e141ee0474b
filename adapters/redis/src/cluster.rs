//! A Cluster: which of its nodes a request goes to.
//!
//! All keys have one of 64 tags, so a table of as many entries says where they are. It is read from any node (CLUSTER
//! SLOTS), and again
//!
//! - before the next request, after a node could not be reached, did not answer, or said that it takes no writes;
//! - beside the next request, after a node said that a slot is elsewhere, which by itself mends the entry;
//! - beside a request, every half minute: those who only listen hear of nothing of that.
//!
//! A request goes to another node only if the last one did not execute it: it said so, or there was no connection.

mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, Shared, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use redis::{Cmd, Pipeline, Value};
use tenure_core::Instant;
use tenure_store::{StoreError, StoreErrorKind, clock};

use self::slots::{Address, Places, redirect};
use crate::connect::Way;
use crate::error::{Cause, Failed, strange};
use crate::greeting::Mode;
use crate::node::{Node, closed};
use crate::options::Endpoint;
use crate::sleep::before;
use crate::tags::Route;
use crate::watch::Pushes;

/// So many nodes a request is sent to one after the other before it is given back.
const MOST_HOPS: usize = 5;
/// How long the table counts unless something says that it is wrong.
const READ_EVERY: Duration = Duration::from_secs(30);
/// So long there is between two readings at least: what a node says just after a change may be as old as what is known.
const READ_AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// How long reading it may take, all nodes together.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one node may take before the next is asked as well.
const STAGGER: Duration = Duration::from_millis(200);

/// One server, or the nodes of a Cluster: which of the two, the server itself says.
pub(crate) struct Cluster {
    /// How to get at the first nodes, of which there is at least one. At the others it is as at the first.
    seeds: Vec<(Address, Endpoint)>,
    connect_timeout: Duration,
    pushes: Arc<Pushes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// It said so.
    is_cluster: bool,
    closed: bool,
    nodes: BTreeMap<Address, Node>,
    places: Option<Places>,
    /// When the table is to be read again.
    due: Instant,
    /// It is probably wrong.
    suspect: bool,
    /// When it was read, or could not be.
    tried: Option<Instant>,
    /// Why it could not be.
    trouble: Option<StoreError>,
    readings: u64,
    reading: Option<Reading>,
}

/// One reading of the table, which all who need it wait for.
#[derive(Clone)]
struct Reading {
    number: u64,
    begun: Instant,
    found: Shared<BoxFuture<'static, Result<Places, StoreError>>>,
}

impl Cluster {
    /// The Cluster of these nodes, or the one server that this is.
    pub(crate) fn new(seeds: Vec<Endpoint>, connect_timeout: Duration, pushes: Arc<Pushes>) -> Self {
        let seeds = seeds.into_iter().map(|endpoint| (Address::of(&endpoint), endpoint)).collect();
        Self { seeds, connect_timeout, pushes, state: Mutex::default() }
    }

    /// Whether it is a Cluster, by what the first server that answers says.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn mode(&self, until: Instant) -> Result<Mode, StoreError> {
        let alone = match self.alone() {
            Alone::Server(node) => node,
            Alone::No => return Ok(Mode::Cluster),
            Alone::Several => return self.first(until).await,
        };
        let mode = alone.connected(until).await?.greeting.mode;
        if mode == Mode::Cluster {
            self.lock().is_cluster = true;
        }
        Ok(mode)
    }

    /// What the first of several servers that answers is.
    async fn first(&self, until: Instant) -> Result<Mode, StoreError> {
        let mut tries = FuturesUnordered::new();
        {
            let mut state = self.lock();
            for (address, _) in &self.seeds {
                let node = self.node(&mut state, address);
                tries.push(async move { (address, node.connected(until).await) });
            }
        }
        let mut failed = StoreError::transient("there is no server");
        while let Some((address, tried)) = tries.next().await {
            match tried {
                Ok(link) if link.greeting.mode == Mode::Cluster => {
                    self.lock().is_cluster = true;
                    return Ok(Mode::Cluster);
                }
                // Which of them would have the leases?
                Ok(_) => {
                    return Err(StoreError::rejected(format!(
                        "{address} is not a node of a Cluster: name one server alone, or nodes of one Cluster"
                    )));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The server, if it is not known to be one of several.
    fn alone(&self) -> Alone {
        let mut state = self.lock();
        match &self.seeds[..] {
            _ if state.is_cluster => Alone::No,
            [(address, _)] => Alone::Server(self.node(&mut state, address)),
            _ => Alone::Several,
        }
    }

    /// Has a command carried out where the keys of this route are.
    pub(crate) async fn request(&self, route: Route, command: &Cmd, until: Instant) -> Result<Value, Failed> {
        if let Alone::Server(node) = self.alone() {
            return node.request(command, until).await;
        }
        let mut address = self.place(route, until).await.map_err(Failed::not_connected)?;
        let mut asking = false;
        let mut hops = 1;
        loop {
            let failed = match self.send(&address, asking, command, until).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let next = self.learn(route, &address, &failed);
            hops += 1;
            if hops > MOST_HOPS || clock::now() >= until {
                return Err(failed);
            }
            (address, asking) = match next {
                Next::At(next) => (next, false),
                Next::Asking(next) => (next, true),
                Next::Elsewhere => match self.place(route, until).await {
                    Ok(next) if next != address => (next, false),
                    _ => return Err(failed),
                },
                Next::Nowhere => return Err(failed),
            };
        }
    }

    /// All nodes that have keys of ours.
    pub(crate) async fn nodes(&self, until: Instant) -> Result<Vec<Node>, StoreError> {
        if let Alone::Server(node) = self.alone() {
            return Ok(vec![node]);
        }
        // Of what nodes are asked that is about no key, they answer just for themselves.
        self.lock().suspect = true;
        self.place(Route::FIRST, until).await?;
        let mut state = self.lock();
        if let Some(trouble) = &state.trouble {
            return Err(trouble.clone());
        }
        let Some(places) = state.places.clone() else { return Err(state.no_node(Route::FIRST)) };
        if let Some(route) = places.unknown() {
            return Err(state.no_node(route));
        }
        let addresses: BTreeSet<&Address> = places.nodes().collect();
        Ok(addresses.into_iter().map(|address| self.node(&mut state, address)).collect())
    }

    /// Closes all connections. What is asked afterwards is refused.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        // New ones are made closed.
        state.closed = true;
        state.nodes.values().for_each(Node::close);
    }

    /// Sends a command to one node. If the table is to be read again, that goes on beside it.
    async fn send(
        &self,
        address: &Address,
        asking: bool,
        command: &Cmd,
        until: Instant,
    ) -> Result<Value, Failed> {
        let (node, reading) = {
            let mut state = self.lock();
            let node = self.node(&mut state, address);
            let reading = self.reading_if_due(&mut state);
            (node, reading)
        };
        let request = pin!(async {
            if !asking {
                return node.request(command, until).await;
            }
            let mut commands = Pipeline::with_capacity(2);
            commands.cmd("ASKING").add_command(command.clone());
            node.request_all(&commands, until).await
        });
        let Some(Reading { number, found, .. }) = reading else { return request.await };
        match select(request, found).await {
            Either::Left((answer, _)) => answer,
            Either::Right((found, request)) => {
                self.end(number, found);
                request.await
            }
        }
    }

    /// Where the keys of this route are, by the table, which is read first if there is none or it may be wrong.
    async fn place(&self, route: Route, until: Instant) -> Result<Address, StoreError> {
        let reading = {
            let mut state = self.lock();
            if state.closed {
                return Err(closed());
            }
            let known = state.places.as_ref().and_then(|places| places.of(route)).cloned();
            match known {
                Some(known) if !state.suspect => return Ok(known),
                _ => self.reading(&mut state),
            }
        };
        if let Some(Reading { number, found, .. }) = reading {
            match before(until, found).await {
                Some(found) => self.end(number, found),
                None => {
                    return Err(StoreError::transient(
                        "which node of the Cluster has the key is not known yet",
                    ));
                }
            }
        }
        let state = self.lock();
        let known = state.places.as_ref().and_then(|places| places.of(route)).cloned();
        known.ok_or_else(|| state.no_node(route))
    }

    /// What follows from a failure.
    fn learn(&self, route: Route, asked: &Address, failed: &Failed) -> Next {
        let mut state = self.lock();
        match (&failed.cause, failed.code()) {
            (Cause::Refused(answer), Some("MOVED")) => match redirect(answer, asked) {
                Some(to) => {
                    state.due = clock::now();
                    // Unless it is known better meanwhile.
                    if let Some(places) = &mut state.places
                        && places.of(route) == Some(asked)
                    {
                        places.put(route, to.clone());
                        self.subscriptions_moved(state, &[(route, asked.clone())]);
                    }
                    Next::At(to)
                }
                None => {
                    state.suspect = true;
                    Next::Elsewhere
                }
            },
            (Cause::Refused(answer), Some("ASK")) => {
                redirect(answer, asked).map_or(Next::Nowhere, Next::Asking)
            }
            (Cause::Refused(_), Some("READONLY")) | (Cause::NotConnected, _) => {
                state.suspect = true;
                Next::Elsewhere
            }
            (Cause::Refused(_), Some("CLUSTERDOWN" | "MASTERDOWN")) | (Cause::NoAnswer, _) => {
                state.suspect = true;
                Next::Nowhere
            }
            (Cause::Refused(_), _) => Next::Nowhere,
        }
    }

    /// The reading that is under way, or a new one, if the time for it has come.
    fn reading_if_due(&self, state: &mut State) -> Option<Reading> {
        if state.reading.is_some() || clock::now() >= state.due { self.reading(state) } else { None }
    }

    /// The reading that is under way, or a new one; `None` just after the last one.
    fn reading(&self, state: &mut State) -> Option<Reading> {
        // It goes on only beside requests: what one found out that began long ago may have changed since.
        if let Some(reading) = &state.reading
            && clock::now() < reading.begun + PATIENCE
        {
            return Some(reading.clone());
        }
        if state.tried.is_some_and(|tried| clock::now() < tried + READ_AT_MOST_EVERY) {
            return None;
        }
        // Those of the table, too, with which there was nothing to do yet: they may be the only ones that are left.
        let of_the_table = state.places.iter().flat_map(Places::nodes);
        let known: BTreeSet<Address> = of_the_table.chain(state.nodes.keys()).cloned().collect();
        let mut addresses: Vec<&Address> = known.iter().collect();
        // Another one first each time: one that is cut off from the rest does not know that it is wrong.
        if !addresses.is_empty() {
            let first = usize::try_from(state.readings).unwrap_or(0) % addresses.len();
            addresses.rotate_left(first);
        }
        let seeds = self.seeds.iter().map(|(address, _)| address);
        addresses.extend(seeds.filter(|address| !known.contains(address)));
        let nodes =
            addresses.into_iter().map(|address| (address.clone(), self.node(state, address))).collect();
        state.readings += 1;
        let (number, begun) = (state.readings, clock::now());
        let reading = Reading { number, begun, found: read(nodes).boxed().shared() };
        state.reading = Some(reading.clone());
        Some(reading)
    }

    /// A reading has ended; whoever sees it first says so to the others.
    fn end(&self, number: u64, found: Result<Places, StoreError>) {
        let mut state = self.lock();
        if state.reading.as_ref().is_none_or(|reading| reading.number != number) {
            return;
        }
        state.reading = None;
        let now = clock::now();
        state.tried = Some(now);
        state.due = now + READ_EVERY;
        match found {
            Ok(places) => {
                state.suspect = false;
                state.trouble = None;
                let used: BTreeSet<&Address> = places.nodes().collect();
                state.nodes.retain(|address, _| used.contains(address));
                let nodes = used.len();
                let before = state.places.replace(places.clone());
                match before {
                    None => tracing::info!(
                        event = "redis.cluster",
                        nodes,
                        "the store is a Cluster, so many of whose nodes have keys of it"
                    ),
                    Some(before) if before != places => {
                        tracing::info!(
                            event = "redis.cluster",
                            nodes,
                            "keys of the store are at other nodes of the Cluster now"
                        );
                        let moved: Vec<_> = before.not_in(&places).collect();
                        self.subscriptions_moved(state, &moved);
                    }
                    Some(_) => {}
                }
            }
            Err(error) => {
                tracing::debug!(event = "redis.cluster_unknown", %error, "which node has which keys can't be told");
                state.trouble = Some(error);
            }
        }
    }

    /// What is listened to is listened to at the node that has the keys, which is looked after. Where these routes were
    /// until now it would be heard as well, and for good: so that connection is replaced, if there was anything.
    fn subscriptions_moved(&self, state: MutexGuard<'_, State>, from: &[(Route, Address)]) {
        let left = from.iter().filter(|(route, _)| self.pushes.listens_at(*route));
        left.filter_map(|(_, address)| state.nodes.get(address)).for_each(Node::replace);
        drop(state);
        self.pushes.lost();
    }

    /// The node with this address.
    fn node(&self, state: &mut State, address: &Address) -> Node {
        if let Some(node) = state.nodes.get(address) {
            return node.clone();
        }
        let seed = self.seeds.iter().find(|(seed, _)| seed == address);
        let endpoint = match seed {
            Some((_, endpoint)) => endpoint.clone(),
            None => self.seeds[0].1.at(&address.host, address.port),
        };
        let node = Node::new(Way::To(endpoint), self.connect_timeout, Arc::clone(&self.pushes));
        if state.closed {
            node.close();
        }
        state.nodes.insert(address.clone(), node.clone());
        node
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is one server.
enum Alone {
    /// There is, as far as is known.
    Server(Node),
    /// There are the nodes of a Cluster.
    No,
    /// There are several, and none has said yet that it is a node of a Cluster.
    Several,
}

/// Where a request that failed goes next.
enum Next {
    /// To this node.
    At(Address),
    /// To this node, which does not have the slot yet and is to make an exception.
    Asking(Address),
    /// To whichever node has the slot, if that is another one.
    Elsewhere,
    /// Back to whoever made it.
    Nowhere,
}

impl State {
    /// Why a request can't be sent.
    fn no_node(&self, route: Route) -> StoreError {
        self.trouble.clone().unwrap_or_else(|| {
            StoreError::transient(format!(
                "no node of the Cluster has slot {}: see `CLUSTER INFO` if it lasts",
                route.slot()
            ))
        })
    }
}

/// Asks these nodes, one after the other as long as there is no answer, which of them has which slots.
async fn read(nodes: Vec<(Address, Node)>) -> Result<Places, StoreError> {
    let limit = clock::now() + PATIENCE;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let command = &command;
    let ask = async |(address, node): (Address, Node)| {
        let answer = node.request(command, limit).await.map_err(needed_in_a_cluster)?;
        Places::read(&answer, &address).ok_or_else(|| strange(&answer))
    };
    let mut rest = nodes.into_iter();
    let mut tries = FuturesUnordered::new();
    tries.extend(rest.next().map(&ask));
    // Of nodes that know of some slots only, the one that knows most.
    let mut best: Option<Places> = None;
    let mut failed = StoreError::transient("no node of the Cluster answers");
    loop {
        let next = (clock::now() + STAGGER).min(limit);
        match before(next, tries.next()).await {
            Some(Some(Ok(places))) if places.unknown().is_none() => return Ok(places),
            Some(Some(Ok(places))) if best.as_ref().is_none_or(|best| best.known() < places.known()) => {
                best = Some(places);
            }
            // What time mends is told only if nothing else is wrong.
            Some(Some(Err(error))) if failed.kind == StoreErrorKind::Transient => failed = error,
            Some(Some(_)) => {}
            Some(None) => return best.ok_or(failed),
            None if next >= limit => return best.ok_or(failed),
            None => {}
        }
        tries.extend(rest.next().map(&ask));
    }
}

/// What a node says that does not tell its slots.
fn needed_in_a_cluster(failed: Failed) -> StoreError {
    let mut error = failed.error;
    if error.kind == StoreErrorKind::Rejected {
        error.message += "; in a Cluster the user needs the permission +cluster|slots";
    }
    error
}
