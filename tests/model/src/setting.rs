//! The bounds of a model, and the safety rules that the model keeps.

/// How a crashed node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nodes do not crash.
    Never,
    /// The node loses its keys and stays down until the longest ttl has passed, as the safety
    /// guarantee requires.
    StaysAway,
    /// The node restarts immediately without keys.
    BackAtOnce,
}

/// The rule that decides whether the grants of recently started nodes count towards a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingRule {
    /// The grants of all nodes count.
    Off,
    /// Grants of a node do not count if the client has observed a restart of the node. Grants of
    /// recently started nodes count only in a new deployment.
    Observed,
    /// Grants of recently started nodes never count.
    Strict,
}

/// The guard against restarts, and its assumptions about nodes. With a guard, a client sends no
/// request to a node before it has connected. A restart loses pending requests.
#[allow(clippy::struct_excessive_bools)] // Each is one assumption, kept or broken.
#[derive(Clone, Copy, Debug)]
pub struct GuardPromises {
    /// The rule that selects the nodes whose grants do not count towards a quorum.
    pub rule: CountingRule,
    /// The number of ticks for which the grants of a node do not count, if `rule` selects the node.
    /// The guard is safe only if every key expires within this period.
    pub quarantine_period: u8,
    /// Whether client B has never connected to a node before. Otherwise, B has known all nodes for
    /// longer than the quarantine period.
    pub is_new: bool,
    /// Whether the nodes have just started for the first time.
    pub is_fresh: bool,
    /// Whether a node restarts only while another node has been running for longer than the
    /// quarantine period.
    pub keeps_an_old_node: bool,
    /// Whether a new client may assume that a node is unreachable.
    pub assumes_unreachable: bool,
    /// The error of the uptime that servers report, in ticks. The guard allows for an error of one
    /// tick.
    pub uptime_error: u8,
}

/// The assumptions under which the guard is safe.
pub(crate) const GUARD: GuardPromises = GuardPromises {
    rule: CountingRule::Observed,
    quarantine_period: 2,
    is_new: true,
    is_fresh: false,
    keeps_an_old_node: true,
    assumes_unreachable: false,
    uptime_error: 1,
};

/// The bounds and rules of one search. Times are in ticks.
#[allow(clippy::struct_excessive_bools)] // Each is one rule, kept or broken.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name printed in the output.
    pub name: &'static str,
    /// The number of clients: two or three.
    pub clients: usize,
    /// The maximum number of attempts of each client: at most 3, or at most 2 with extensions.
    pub attempts: u8,
    /// Whether clients abandon attempts and release leases. Two clients with one attempt each do
    /// not need releases. After a release, the client has no lease, and its keys block only the
    /// other client.
    pub ends: bool,
    /// Whether a holder may extend each acquired lease once.
    pub extends: bool,
    /// The ttl that is sent to the nodes.
    pub ttl: u8,
    /// The drift allowance that clients subtract from the validity.
    pub allowance: u8,
    /// The number of ticks that a node's clock gains on the clients' clocks during one ttl.
    pub ahead: u8,
    /// How a crashed node behaves.
    pub crash: Crash,
    /// Whether a request can be lost while later requests are delivered.
    pub loses: bool,
    /// Whether a node's clock can jump, so that a key may expire at any time.
    pub jumps: bool,
    /// Whether a release compares the value before it deletes the key.
    pub compares: bool,
    /// Whether the validity is measured from the start of the attempt (T1). Otherwise, it is
    /// measured from the reply that completes the quorum.
    pub from_t1: bool,
    /// The keys that each client locks together.
    pub sets: &'static [&'static [usize]],
    /// Whether a node sets either all keys of a set or none. Otherwise, a node sets the keys that
    /// are free.
    pub is_whole: bool,
    /// The clients' guard against restarts, or `None`. Without a guard, crashed nodes must stay
    /// down. Otherwise, the setting breaks the guarantee.
    pub guard: Option<GuardPromises>,
    /// The number of nodes from which the majority is computed. The model always has three nodes.
    pub electorate: usize,
}

impl Setting {
    pub(crate) fn conflict(&self, one: usize, other: usize) -> bool {
        self.sets[one].iter().any(|key| self.sets[other].contains(key))
    }

    /// Returns the largest age of a node that the model distinguishes, in ticks. All higher ages
    /// have the same effect.
    pub(crate) fn oldest(&self) -> u8 {
        self.guard.map_or(0, |guard| guard.quarantine_period)
    }
}

/// A setting that keeps all rules. Its faults are within the safety guarantee.
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
