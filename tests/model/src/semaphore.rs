//! Search for more holders of a semaphore than it has permits, without faults, clocks or expiry.
//!
//! A semaphore consists of locks. On each node, each lock has a number of places for clients, and a
//! client holds a permit while a quorum of nodes has accepted it for the same lock. The search
//! covers two designs: one lock with a place for each permit, and one ordinary lock for each permit.
//!
//! A request for a free place can arrive at any time, in any order. A client can withdraw or
//! release at any time, and the nodes free its places in any order. These steps include every run
//! of a real client:
//!
//! - Refusals are not modelled, because a refusal can only make a client withdraw.
//! - Replies arrive at once, because a delayed reply can only make a client a holder later.
//! - A client that releases is a holder until the nodes have freed enough of its places. A real
//!   client is a holder for a shorter time.

use crate::protocol::Quorum;
use crate::seen::Seen;
use crate::suite::SearchReport;
use std::time::Instant;

const MAX_NODES: usize = 5;
const MAX_LOCKS: usize = 2;

/// The size of one semaphore, and the rule that makes a client a holder.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore {
    /// The name printed in the output.
    pub name: &'static str,
    /// The number of clients: at most 8.
    pub clients: usize,
    /// The number of nodes: at most 5.
    pub nodes: usize,
    /// The number of locks: at most 2.
    pub locks: usize,
    /// The number of clients that a node accepts for one lock.
    pub places: usize,
    /// The number of nodes that must accept a client for the same lock.
    pub quorum: usize,
}

impl Semaphore {
    /// Creates a semaphore whose nodes each count the permits, with a majority as quorum.
    fn counted(name: &'static str, nodes: usize, permits: usize, clients: usize) -> Self {
        let quorum = Quorum::majority(nodes).needed();
        Self { name, clients, nodes, locks: 1, places: permits, quorum }
    }

    /// Creates a semaphore with an ordinary lock for each permit.
    fn of_locks(name: &'static str, nodes: usize, permits: usize, clients: usize) -> Self {
        let quorum = Quorum::majority(nodes).needed();
        Self { name, clients, nodes, locks: permits, places: 1, quorum }
    }

    /// Returns the number of clients that may hold the semaphore at the same time.
    pub fn permits(&self) -> usize {
        self.locks * self.places
    }
}

/// Returns semaphores that never have more holders than permits, each with its number of states.
pub fn safe_semaphores() -> [(Semaphore, usize); 3] {
    let of_four = Semaphore {
        quorum: 4,
        ..Semaphore::counted(
            "semaphore: 2 permits, counted on each of 5 nodes, a quorum of 4",
            5,
            2,
            3,
        )
    };
    [
        // Each of 10 locks is free or held by one of 3 clients.
        (
            Semaphore::of_locks("semaphore: a lock for each of 2 permits, 5 nodes", 5, 2, 3),
            4_usize.pow(10),
        ),
        (
            Semaphore::counted("semaphore: 1 permit, counted on each of 3 nodes", 3, 1, 3),
            4_usize.pow(3),
        ),
        // Each node has one of the 7 sets of at most 2 of 3 clients.
        (of_four, 7_usize.pow(5)),
    ]
}

/// Returns semaphores that can have more holders than permits, each with the number of steps of a
/// shortest trace to one holder too many.
pub fn unsafe_semaphores() -> [(Semaphore, usize); 2] {
    [
        (Semaphore::counted("semaphore: 2 permits, counted on each of 3 nodes", 3, 2, 3), 6),
        (Semaphore::counted("semaphore: 2 permits, counted on each of 5 nodes", 5, 2, 3), 9),
    ]
}

/// The accepted clients of each lock on each node. Each client is one bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Accepted([[u8; MAX_NODES]; MAX_LOCKS]);

impl Accepted {
    /// Returns the number of nodes that have accepted `client` for `lock`.
    fn nodes(&self, lock: usize, client: usize) -> usize {
        self.0[lock].iter().filter(|clients| **clients & 1 << client != 0).count()
    }

    fn is_holder(&self, semaphore: &Semaphore, client: usize) -> bool {
        (0..semaphore.locks).any(|lock| self.nodes(lock, client) >= semaphore.quorum)
    }

    fn holders(&self, semaphore: &Semaphore) -> usize {
        (0..semaphore.clients).filter(|client| self.is_holder(semaphore, *client)).count()
    }

    /// Appends the states that one step leads to: a node accepts a client, or frees its place.
    fn next_states(&self, semaphore: &Semaphore, found: &mut Vec<Self>) {
        for client in 0..semaphore.clients {
            for lock in 0..semaphore.locks {
                for node in 0..semaphore.nodes {
                    let clients = self.0[lock][node];
                    let is_accepted = clients & 1 << client != 0;
                    if is_accepted || (clients.count_ones() as usize) < semaphore.places {
                        let mut next = *self;
                        next.0[lock][node] ^= 1 << client;
                        found.push(next);
                    }
                }
            }
        }
    }
}

/// Searches all states of `semaphore` for one with more holders than permits.
///
/// # Panics
/// Panics if the semaphore is larger than its fields allow.
pub fn search_semaphore(semaphore: &Semaphore) -> SearchReport {
    let started = Instant::now();
    let permits = semaphore.permits();
    let mut seen = Seen::starting_from(Accepted([[0; MAX_NODES]; MAX_LOCKS]));
    let (mut depth, mut end_of_level, mut place) = (0, 1, 0);
    let (mut next_states, mut all_held, mut trace) = (Vec::new(), None, None);
    'search: while place < seen.len() {
        if place == end_of_level {
            (depth, end_of_level) = (depth + 1, seen.len());
        }
        let state = seen.get(place);
        if all_held.is_none() && state.holders(semaphore) == permits {
            all_held = Some(depth);
        }
        state.next_states(semaphore, &mut next_states);
        for next in next_states.drain(..) {
            if seen.insert(next, place) && next.holders(semaphore) > permits {
                trace = Some(describe(semaphore, &seen.path_to(seen.len() - 1)));
                break 'search;
            }
        }
        place += 1;
    }
    let goals = vec![("all permits are held at the same time", all_held)];
    SearchReport { states: seen.len(), depth, time: started.elapsed(), trace, goals }
}

fn describe(semaphore: &Semaphore, path: &[Accepted]) -> Vec<String> {
    let step = |(index, pair): (usize, &[Accepted])| {
        format!("{:>3}. {}", index + 1, describe_step(semaphore, &pair[0], &pair[1]))
    };
    path.windows(2).enumerate().map(step).collect()
}

/// Describes the step between two states, which differ in one place of one client.
fn describe_step(semaphore: &Semaphore, before: &Accepted, after: &Accepted) -> String {
    let places = (0..semaphore.locks).flat_map(|lock| (0..MAX_NODES).map(move |node| (lock, node)));
    let changed = |(lock, node): &(usize, usize)| before.0[*lock][*node] != after.0[*lock][*node];
    let (lock, node) = places.into_iter().find(changed).expect("a step changes one place");
    let (old, new) = (before.0[lock][node], after.0[lock][node]);
    let client = (old ^ new).trailing_zeros() as usize;
    let name = char::from(b'A' + u8::try_from(client).expect("few clients"));
    let of_lock =
        if semaphore.locks == 1 { String::new() } else { format!(" for lock {}", lock + 1) };
    if new < old {
        return format!("node {} frees the place of {name}{of_lock}", node + 1);
    }
    let (taken, places) = (new.count_ones(), semaphore.places);
    let text =
        format!("node {} accepts {name}{of_lock}, {taken} of {places} places taken", node + 1);
    if before.is_holder(semaphore, client) || !after.is_holder(semaphore, client) {
        return text;
    }
    format!("{text}; {name} has {} nodes and HOLDS A PERMIT", semaphore.quorum)
}
