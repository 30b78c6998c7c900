//! The schedule of simulated events.

use crate::clock::Instant;
use std::collections::BTreeMap;
use std::task::Waker;

pub(crate) enum WorldEvent {
    /// The arrival of a packet.
    Arrival { connection: usize, way: Way },
    /// An alarm of a process, which becomes due by the clock of the process.
    Alarm { process: usize, alarm: u64 },
    /// The end of a task's sleep.
    Wake(Waker),
    /// The deletion of a node's expired keys.
    Expiry { node: usize },
    /// The start or the end of a planned fault.
    Fault { index: usize, begins: bool },
    /// The start or the end of a planned process.
    Process { process: usize, starts: bool },
    /// The start of a planned task.
    Task { index: usize },
    /// The end of the initial period without faults.
    CalmEnded,
    /// The end of all faults.
    Healed,
    /// The shutdown of one of a process's runtimes.
    Shutdown { process: usize, runtime: usize },
    /// An event without an effect. It makes the simulation run due runtimes and check for the next
    /// stage at this time.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    ToNode,
    ToClient,
}

/// The ID of a scheduled event, with which the event can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId(Instant, u64);

/// The scheduled events, ordered by time. Simultaneous events keep the order in which they were
/// scheduled.
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
