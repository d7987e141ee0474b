//! A cluster.

use crate::client::Reply;
use crate::port::Port;
use crate::redis::{Config, Redis};
use crate::time::eventually;

/// How many slots there are.
const SLOTS: usize = 16_384;
/// In milliseconds: after this long without an answer others take a node for dead.
const NODE_TIMEOUT: &str = "1000";

/// A cluster of some primaries, each with an equal share of the slots, and their replicas.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries of the beginning, then the replicas.
    nodes: Vec<Redis>,
    primaries: usize,
    _ports: Vec<Port>,
}

impl Cluster {
    /// So many primaries without replicas.
    #[must_use]
    pub fn start(primaries: usize) -> Self {
        Self::with(&Config::new(), primaries, 0)
    }

    /// So many primaries, each with so many replicas, each a server like this, which has no password.
    ///
    /// # Panics
    ///
    /// If they don't find together.
    #[must_use]
    pub fn with(config: &Config, primaries: usize, replicas: usize) -> Self {
        let count = primaries * (1 + replicas);
        let ports: Vec<_> = (0..count).map(|_| Port::take()).collect();
        let config = config.clone().set("cluster-enabled", "yes").set("cluster-node-timeout", NODE_TIMEOUT);
        let config = config.set("repl-diskless-sync-delay", "0");
        let node = |port: &Port| Redis::with(config.clone().set("cluster-port", &port.number.to_string()));
        let this = Self { nodes: ports.iter().map(node).collect(), primaries, _ports: ports };

        for (index, node) in this.nodes.iter().enumerate() {
            // Each its own: else they would have to agree on that first.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).ok();
            if index < primaries {
                let (first, last) = (SLOTS * index / primaries, SLOTS * (index + 1) / primaries - 1);
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).ok();
            }
            // Each to each: rumours would take some seconds.
            for (other, port) in this.nodes.iter().zip(&this._ports).take(index) {
                let (port, bus) = (other.port().to_string(), port.number.to_string());
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).ok();
            }
        }
        for node in &this.nodes {
            eventually("nodes that know each other", || {
                let text = node.command(&["CLUSTER", "NODES"]).text();
                (text.lines().count() == count && !text.contains("handshake")).then_some(())
            });
        }
        for index in primaries..count {
            let primary = this.id(index % primaries);
            this.nodes[index].command(&["CLUSTER", "REPLICATE", &primary]).ok();
        }
        this.settled();
        this
    }

    /// All nodes: the primaries of the beginning, then their replicas, `primaries` further on for each.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The ports of all nodes.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Redis::port).collect()
    }

    /// The first replica that this primary had in the beginning.
    #[must_use]
    pub fn replica(&self, primary: usize) -> usize {
        primary + self.primaries
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.up().command(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("a slot")
    }

    /// Which node has a slot, as the nodes that are up say.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        self.owner_by(self.up(), slot).unwrap_or_else(|| panic!("nobody has slot {slot}"))
    }

    /// All keys of all primaries that are up, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let up = self.nodes.iter().filter(|node| node.pid().is_some() && node.info("role") == "master");
        let mut keys: Vec<_> = up.flat_map(Redis::keys).collect();
        keys.sort_unstable();
        keys
    }

    /// Begins to move a slot: both say `ASK` or take `ASKING` from now on, and the keys are where they were.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]).ok();
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]).ok();
    }

    /// Moves the keys of a slot whose move has begun, as many as `at_most`, and gives how many it were.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, at_most: usize) -> usize {
        let node = &self.nodes[from];
        let keys =
            node.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &at_most.to_string()]).texts();
        if !keys.is_empty() {
            let port = self.nodes[to].port().to_string();
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            node.command(&migrate).ok();
        }
        keys.len()
    }

    /// Ends a move that has begun, and waits until all nodes know.
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) {
        while self.move_keys(slot, from, to, 1_000) > 0 {}
        let id = self.id(to);
        // The new owner first: were it the last, the slot would be nobody's meanwhile.
        for index in [to, from] {
            self.nodes[index].command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]).ok();
        }
        self.owned(slot, to);
    }

    /// Moves a slot with its keys.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.finish_move(slot, from, to);
    }

    /// Has a replica take over from its primary, which may be dead, and waits until all nodes know. It asks nobody.
    pub fn promote(&self, replica: usize) {
        // A primary that is dead can't be asked; what it had not sent is lost.
        self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
        let id = self.id(replica);
        eventually("a replica to take over", || {
            let mut up = self.nodes.iter().filter(|node| node.pid().is_some());
            up.all(|node| {
                let text = node.command(&["CLUSTER", "NODES"]).text();
                text.lines().any(|line| {
                    let fields: Vec<_> = line.split(' ').collect();
                    fields[0] == id && fields[2].contains("master") && fields.len() > 8
                })
            })
            .then_some(())
        });
    }

    /// Waits until all nodes say that all is well.
    pub fn settled(&self) {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            eventually("a cluster that is well", || {
                let info = node.command(&["CLUSTER", "INFO"]).text();
                let well = ["cluster_state:ok", "cluster_slots_ok:16384"];
                let follows = || node.info("role") == "master" || node.info("master_link_status") == "up";
                (well.iter().all(|field| info.lines().any(|line| line == *field)) && follows()).then_some(())
            });
        }
    }

    /// Waits until all nodes that are up say that this one has the slot.
    fn owned(&self, slot: u16, owner: usize) {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            eventually("all nodes to know whose a slot is", || {
                (self.owner_by(node, slot)? == owner).then_some(())
            });
        }
    }

    fn owner_by(&self, node: &Redis, slot: u16) -> Option<usize> {
        let ranges = node.command(&["CLUSTER", "SLOTS"]).array().into_iter();
        let port = ranges.map(Reply::array).find_map(|range| {
            let [first, last, owner, ..] = &range[..] else { panic!("not a range: {range:?}") };
            let inside = (first.clone().integer()..=last.clone().integer()).contains(&i64::from(slot));
            inside.then(|| owner.clone().array()[1].clone().integer())
        })?;
        self.nodes.iter().position(|node| i64::from(node.port()) == port)
    }

    fn id(&self, index: usize) -> String {
        self.nodes[index].command(&["CLUSTER", "MYID"]).text()
    }

    fn up(&self) -> &Redis {
        self.nodes.iter().find(|node| node.pid().is_some()).expect("a node is up")
    }
}
