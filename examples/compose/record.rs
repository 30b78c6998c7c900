//! What a run leaves behind, and the check: tenures of a resource may not overlap.

use std::fmt;
use std::time::Duration;

/// One tenure, as the holder saw it: from the moment the acquire returned to the earliest of its
/// release, its `valid_until`, and the loss it was told of. Times count from the start of the run,
/// on one clock; they are never taken from a node.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// The resource, by number.
    pub(crate) resource: usize,
    /// The client.
    pub(crate) client: usize,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) end: End,
}

/// How a tenure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The holder released it in time.
    Released,
    /// Its validity ended before the holder had finished.
    ValidUntil,
    /// The holder was told of the loss.
    Lost,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, client, from, until, end } = self;
        let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
        write!(f, "lock {resource} held by client {client}, {from:.3} s to {until:.3} s, {end:?}")
    }
}

/// Something that was done to nodes.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// In words: `n2 paused`.
    pub(crate) what: String,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Two tenures of one resource that overlap.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    /// The one that began first.
    pub(crate) first: Hold,
    /// The one that began before the first had ended.
    pub(crate) second: Hold,
}

/// Every tenure that began while an earlier one of its resource had not ended.
pub(crate) fn overlaps(holds: &[Hold]) -> Vec<Overlap> {
    let mut sorted = holds.to_vec();
    sorted.sort_by_key(|hold| (hold.resource, hold.from));
    let mut found = Vec::new();
    // Of those seen, the one that lasts longest: not always the last one that began.
    let mut longest: Option<Hold> = None;
    for hold in sorted {
        let before = longest.as_ref().filter(|before| before.resource == hold.resource);
        if let Some(first) = before.filter(|before| hold.from < before.until) {
            found.push(Overlap { first: first.clone(), second: hold.clone() });
        }
        if before.is_none_or(|before| hold.until > before.until) {
            longest = Some(hold);
        }
    }
    found
}
