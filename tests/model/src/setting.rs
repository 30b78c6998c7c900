//! What a model is made of: its bounds, and which of the safety rules it keeps.

/// What a node that crashes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nodes do not crash.
    Never,
    /// It loses its memory and stays away until the longest ttl is over, as the promise asks.
    StaysAway,
    /// It is back at once, and empty.
    BackAtOnce,
}

/// Which nodes that were restarted, or are young, do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingRule {
    /// All count.
    Off,
    /// Those that were seen to restart do not, and young ones do not, unless the deployment is new.
    Observed,
    /// Young ones never do.
    Strict,
}

/// What clients know of nodes that restart, and what befalls them. With it, nothing is asked of a node
/// before it was met, and what is under way to one that restarts is lost.
#[allow(clippy::struct_excessive_bools)] // Each is one promise, kept or not.
#[derive(Clone, Copy, Debug)]
pub struct GuardPromises {
    /// Which nodes do not count.
    pub rule: CountingRule,
    /// For how long they do not: something that was granted stands no longer.
    pub term: u8,
    /// Whether B comes new: it has not met any node. Else it knows all for long.
    pub is_new: bool,
    /// Whether the nodes have just been started, for the first time.
    pub is_fresh: bool,
    /// Whether a node is restarted only while another one is older than the term.
    pub spares: bool,
    /// Whether a newcomer may take a node for one that it cannot reach.
    pub hastes: bool,
    /// How much older than it is a server says that it is. The guard reckons with one tick.
    pub uptime_error: u8,
}

/// What the guard is promised.
pub(crate) const GUARD: GuardPromises = GuardPromises {
    rule: CountingRule::Observed,
    term: 2,
    is_new: true,
    is_fresh: false,
    spares: true,
    hastes: false,
    uptime_error: 1,
};

/// One model: bounds and rules. Times are in ticks.
#[allow(clippy::struct_excessive_bools)] // Each is one rule, kept or not.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What it is called in the output.
    pub name: &'static str,
    /// How many clients: two or three.
    pub clients: usize,
    /// How often each client tries, at most 3, or 2 with extensions.
    pub attempts: u8,
    /// Whether clients give up and release. Two clients that try once need not: one that has ended holds
    /// nothing, and what it would take away stands in nobody's way but the other's.
    pub ends: bool,
    /// Whether a holder may extend, once for each attempt it has won.
    pub extends: bool,
    /// The ttl that the nodes are told.
    pub ttl: u8,
    /// What the clients take off for drift.
    pub allowance: u8,
    /// How far a node's clock really runs ahead of the clients' during one ttl.
    pub ahead: u8,
    /// What a crash does.
    pub crash: Crash,
    /// Whether a request can be lost, with those behind it still delivered.
    pub loses: bool,
    /// Whether a node's clock can jump, so that a key expires at any time.
    pub jumps: bool,
    /// Whether a release compares the value before it deletes.
    pub compares: bool,
    /// Whether validity counts from T1; otherwise from the reply that decides.
    pub from_t1: bool,
    /// The keys that each client wants, all or none.
    pub sets: &'static [&'static [usize]],
    /// Whether a node sets all keys of a set or none; otherwise those that are free, if there are any.
    pub is_whole: bool,
    /// What clients know of nodes that restart; nothing, if the nodes see to that themselves.
    pub guard: Option<GuardPromises>,
    /// The decision asks for a majority of so many nodes; there are three nodes.
    pub electorate: usize,
}

impl Setting {
    /// Whether two clients must not hold at once what they want.
    pub(crate) fn conflict(&self, one: usize, other: usize) -> bool {
        self.sets[one].iter().any(|key| self.sets[other].contains(key))
    }

    /// The age of a node from which on it does not matter.
    pub(crate) fn oldest(&self) -> u8 {
        self.guard.map_or(0, |guard| guard.term)
    }
}

/// All rules kept, and faults within the promise.
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
