//! What is going to happen, and when.

use crate::clock::Instant;
use std::collections::BTreeMap;
use std::task::Waker;

/// Something that happens at a time.
pub(crate) enum WorldEvent {
    /// A packet arrives.
    Arrival { connection: usize, way: Way },
    /// An alarm of a process is due, by its clock.
    Alarm { process: usize, alarm: u64 },
    /// A task is to be polled.
    Wake(Waker),
    /// A node looks for keys that are due.
    Expiry { node: usize },
    /// A fault of the plan begins, or ends.
    Fault { index: usize, begins: bool },
    /// A process of the plan starts, or ends.
    Process { process: usize, starts: bool },
    /// A task of the plan starts.
    Task { index: usize },
    /// From now on something may go wrong.
    Stirred,
    /// All faults have ended.
    Healed,
    /// A runtime of a process is shut down.
    Shutdown { process: usize, runtime: usize },
    /// Nothing by itself: something may be due.
    Tick,
}

/// The two ways of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    ToNode,
    ToClient,
}

/// Names an event, so that it can be called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId(Instant, u64);

/// The events to come, by time. Those of the same time come in the order in which they were planned.
#[derive(Default)]
pub(crate) struct Agenda {
    events: BTreeMap<EventId, WorldEvent>,
    last: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at: Instant, event: WorldEvent) -> EventId {
        self.last += 1;
        let id = EventId(at, self.last);
        self.events.insert(id, event);
        id
    }

    pub(crate) fn call_off(&mut self, id: EventId) -> Option<WorldEvent> {
        self.events.remove(&id)
    }

    pub(crate) fn next(&mut self) -> Option<(Instant, WorldEvent)> {
        self.events.pop_first().map(|(EventId(at, _), event)| (at, event))
    }
}
