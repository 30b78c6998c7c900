//! Bounds of a model, and the safety rules that it keeps.

/// Behaviour of a crashed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nodes do not crash.
    Never,
    /// The node loses its keys and stays down until the longest ttl has passed, as the safety
    /// guarantee requires.
    StaysAway,
    /// The node restarts at once without keys.
    BackAtOnce,
}

/// Rule for nodes that restarted or are young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingRule {
    /// All nodes count.
    Off,
    /// Nodes seen to restart do not count. Young nodes do not count unless the deployment is new.
    Observed,
    /// Young nodes never count.
    Strict,
}

/// Guard against restarts, with the assumptions about nodes. With a guard, a client sends no
/// request to a node before a connection, and a restart loses pending requests.
#[allow(clippy::struct_excessive_bools)] // Each is one assumption, kept or broken.
#[derive(Clone, Copy, Debug)]
pub struct GuardPromises {
    /// Rule for nodes that do not count.
    pub rule: CountingRule,
    /// Ticks for which they do not count. Every grant ends within the term.
    pub term: u8,
    /// Whether B has no connection to any node so far. Otherwise B has known all nodes for longer
    /// than the term.
    pub is_new: bool,
    /// Whether the nodes have just started for the first time.
    pub is_fresh: bool,
    /// Whether a node restarts only while another one is older than the term.
    pub keeps_an_old_node: bool,
    /// Whether a new client may assume that a node is unreachable.
    pub assumes_unreachable: bool,
    /// Error of the uptime that servers report, in ticks. The guard allows for one tick.
    pub uptime_error: u8,
}

/// Assumptions under which the guard is safe.
pub(crate) const GUARD: GuardPromises = GuardPromises {
    rule: CountingRule::Observed,
    term: 2,
    is_new: true,
    is_fresh: false,
    keeps_an_old_node: true,
    assumes_unreachable: false,
    uptime_error: 1,
};

/// One model. Times are in ticks.
#[allow(clippy::struct_excessive_bools)] // Each is one rule, kept or broken.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in the output.
    pub name: &'static str,
    /// Number of clients: two or three.
    pub clients: usize,
    /// Attempts of each client: at most 3, or 2 with extensions.
    pub attempts: u8,
    /// Whether clients give up and release. Two clients with one attempt each need no end: after its
    /// end, a client has no lease, and its keys block only the other client.
    pub ends: bool,
    /// Whether a holder may extend, once per acquired lease.
    pub extends: bool,
    /// The ttl sent to the nodes.
    pub ttl: u8,
    /// Allowance that clients subtract for drift.
    pub allowance: u8,
    /// Ticks by which a node's clock runs ahead of the clients' clocks during one ttl.
    pub ahead: u8,
    /// Behaviour of a crashed node.
    pub crash: Crash,
    /// Whether a request can be lost while later ones are delivered.
    pub loses: bool,
    /// Whether a node's clock can jump, so that a key expires at any time.
    pub jumps: bool,
    /// Whether a release compares the value before it deletes.
    pub compares: bool,
    /// Whether validity starts at T1. Otherwise it starts at the deciding reply.
    pub from_t1: bool,
    /// Keys that each client locks together.
    pub sets: &'static [&'static [usize]],
    /// Whether a node sets all keys of a set or none. Otherwise it sets the free ones, if any.
    pub is_whole: bool,
    /// Guard of the clients. Without a guard, the nodes stay down after a crash or break the
    /// guarantee.
    pub guard: Option<GuardPromises>,
    /// Number of nodes from which the majority is computed; the model has three nodes.
    pub electorate: usize,
}

impl Setting {
    /// Whether two clients' sets have a key in common.
    pub(crate) fn conflict(&self, one: usize, other: usize) -> bool {
        self.sets[one].iter().any(|key| self.sets[other].contains(key))
    }

    /// Age from which a node's age needs no distinction.
    pub(crate) fn oldest(&self) -> u8 {
        self.guard.map_or(0, |guard| guard.term)
    }
}

/// All rules kept, with faults that the safety guarantee allows.
pub(crate) const SAFE: Setting = Setting {
    name: "safe",
    clients: 2,
    attempts: 2,
    ends: true,
    extends: false,
    ttl: 3,
    allowance: 1,
    ahead: 1,
    crash: Crash::StaysAway,
    loses: false,
    jumps: false,
    compares: true,
    from_t1: true,
    sets: &[&[0], &[0], &[0]],
    is_whole: true,
    guard: None,
    electorate: crate::NODES,
};
