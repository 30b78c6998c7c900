//! What happens, and when.

use crate::clock::Instant;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A packet reaches its node.
    Arrive {
        packet: u32,
    },
    /// The answer to a packet reaches its client.
    Reply {
        client: u8,
        packet: u32,
    },
    /// The network breaks a connection.
    Break {
        connection: u32,
    },
    /// A client hears that its connection is broken.
    Disconnected {
        client: u8,
        connection: u32,
    },
    /// A connection was not set up in time, or was refused.
    Refused {
        client: u8,
        connection: u32,
    },
    /// It is time to connect.
    Connect {
        client: u8,
        node: u8,
    },
    /// Look whether a node owes answers, or is owed something.
    Alarm {
        client: u8,
        node: u8,
    },
    /// An order is answered by the client's own task of the node: it could not be written.
    Fail {
        client: u8,
        node: u8,
        round: u32,
    },
    /// The client's task goes on, if this is still its turn.
    Task {
        client: u8,
        turn: u32,
    },
    /// The alarm of a lease rings.
    Ring {
        client: u8,
        turn: u32,
    },
    /// An extension that the holder asked for is settled, or closed.
    Settle {
        client: u8,
        round: u32,
    },
    /// A planned fault begins.
    Fault {
        index: u32,
    },
    /// A node goes on.
    Resume {
        node: u8,
        turn: u32,
    },
    /// A node's process starts again.
    Restart {
        node: u8,
        turn: u32,
    },
    /// A client's process goes on.
    Continue {
        client: u8,
    },
    /// From here on nothing goes wrong any more.
    Heal,
    End,
}

impl Event {
    /// The client that it happens to: it waits while that is stopped.
    pub(crate) fn client(self) -> Option<usize> {
        match self {
            Self::Reply { client, .. }
            | Self::Disconnected { client, .. }
            | Self::Refused { client, .. }
            | Self::Connect { client, .. }
            | Self::Alarm { client, .. }
            | Self::Fail { client, .. }
            | Self::Task { client, .. }
            | Self::Ring { client, .. }
            | Self::Settle { client, .. } => Some(usize::from(client)),
            _ => None,
        }
    }

    /// True if a timer made it, and no other process.
    pub(crate) fn is_timer(self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::Alarm { .. }
                | Self::Task { .. }
                | Self::Ring { .. }
                | Self::Settle { .. }
        )
    }
}

struct Entry {
    at: Instant,
    place: u32,
    event: Event,
}

impl Entry {
    fn key(&self) -> (Instant, u32) {
        (self.at, self.place)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Events in the order of their instants; those of one instant in the order in which they came.
#[derive(Default)]
pub(crate) struct Queue {
    entries: BinaryHeap<Reverse<Entry>>,
    places: u32,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Instant, event: Event) {
        self.places += 1;
        self.entries.push(Reverse(Entry { at, place: self.places, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, Event)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
