//! Scheduled events.

use crate::clock::Instant;
use std::collections::BTreeMap;
use std::task::Waker;

/// Something that happens in the simulated world at a given time.
pub(crate) enum WorldEvent {
    /// A packet arrives.
    Arrival { connection: usize, way: Way },
    /// An alarm of a process is due, by its clock.
    Alarm { process: usize, alarm: u64 },
    /// Polls a task.
    Wake(Waker),
    /// A node deletes expired keys.
    Expiry { node: usize },
    /// A planned fault begins or ends.
    Fault { index: usize, begins: bool },
    /// A planned process starts or ends.
    Process { process: usize, starts: bool },
    /// A planned task starts.
    Task { index: usize },
    /// The calm time at the start of the run has ended.
    Stirred,
    /// All faults have ended.
    Healed,
    /// A runtime of a process is shut down.
    Shutdown { process: usize, runtime: usize },
    /// No action, but a runtime or a stage may be due.
    Tick,
}

/// The two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    ToNode,
    ToClient,
}

/// Identifies an event, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId(Instant, u64);

/// Scheduled events by time. Events of the same time are in the order of their scheduling.
#[derive(Default)]
pub(crate) struct Events {
    events: BTreeMap<EventId, WorldEvent>,
    last: u64,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Instant, event: WorldEvent) -> EventId {
        self.last += 1;
        let id = EventId(at, self.last);
        self.events.insert(id, event);
        id
    }

    pub(crate) fn cancel(&mut self, id: EventId) -> Option<WorldEvent> {
        self.events.remove(&id)
    }

    pub(crate) fn next(&mut self) -> Option<(Instant, WorldEvent)> {
        self.events.pop_first().map(|(EventId(at, _), event)| (at, event))
    }
}
