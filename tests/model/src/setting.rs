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
    /// The decision asks for a majority of so many nodes; there are three nodes.
    pub electorate: usize,
}

/// All rules kept, and faults within the promise.
pub(crate) const SAFE: Setting = Setting {
    name: "safe",
    clients: 2,
    attempts: 2,
    extends: false,
    ttl: 3,
    allowance: 1,
    ahead: 1,
    crash: Crash::StaysAway,
    loses: false,
    jumps: false,
    compares: true,
    from_t1: true,
    electorate: crate::NODES,
};
