//! The data that the locks protect: for each resource, a counter and a cell that checks fencing
//! tokens. The store belongs to the controller process, which is never subject to faults.
//!
//! A client reads a counter and, after a pause, writes back a higher value. The store counts the
//! accepted writes. If a counter is lower than this number at the end, the difference is the number
//! of lost updates. A process can be stopped between its last check of the lease and the arrival of
//! its write, and no lock can prevent that. The store therefore refuses and records counter writes
//! that arrive after their lease has expired.
//!
//! A fenced cell accepts a write if its token is not lower than the highest accepted token. Holders
//! also write to the cell after the end of their lease. Each cell records its writes in the order
//! of their arrival, for the checks of fencing.

use crate::boot;
use crate::line::Request;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Store(Vec<Mutex<Cell>>);

#[derive(Debug, Default)]
struct Cell {
    counter: u64,
    /// The number of accepted writes to the counter.
    count: u64,
    /// The highest accepted token, or 0 before the first write.
    highest: u64,
    writes: Vec<Write>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) client: u16,
    /// The ID of the writer's hold, unique within its client.
    pub(crate) id: u64,
}

/// A write to a fenced cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) writer: Writer,
    pub(crate) is_accepted: bool,
    /// Whether the write arrived while its lease was valid.
    pub(crate) is_valid: bool,
}

#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) updates: u64,
    /// The number of updates that another write has overwritten.
    pub(crate) lost: u64,
    /// The writes to the fenced cell, in the order of their arrival.
    pub(crate) writes: Vec<Write>,
}

impl Store {
    pub(crate) fn new(resources: u16) -> Self {
        Self((0..resources).map(|_| Mutex::default()).collect())
    }

    /// Executes a client's request. For a read, returns the value. For a write, returns 1 if the
    /// store accepted it and 0 if not. Returns `None` if the resource does not exist.
    pub(crate) fn answer(&self, client: u16, request: Request) -> Option<u64> {
        let mut cell = self.cell(request.resource())?;
        let is_valid = |until: u64| boot::now() < until;
        Some(match request {
            Request::Read { .. } => cell.counter,
            Request::Highest { .. } => cell.highest,
            Request::Write { value, until, .. } => {
                let is_in_time = is_valid(until);
                if is_in_time {
                    (cell.counter, cell.count) = (value, cell.count + 1);
                }
                u64::from(is_in_time)
            }
            Request::WriteFenced { id, token, until, .. } => {
                let is_accepted = token >= cell.highest;
                if is_accepted {
                    cell.highest = token;
                }
                let (writer, is_valid) = (Writer { client, id }, is_valid(until));
                cell.writes.push(Write { writer, is_accepted, is_valid });
                u64::from(is_accepted)
            }
        })
    }

    /// Returns the results for each resource. Removes the recorded writes from the cells.
    pub(crate) fn audit(&self) -> impl Iterator<Item = Audit> {
        (0..).map_while(|resource| {
            let mut cell = self.cell(resource)?;
            let lost = cell.count.saturating_sub(cell.counter);
            Some(Audit { updates: cell.count, lost, writes: mem::take(&mut cell.writes) })
        })
    }

    fn cell(&self, resource: u16) -> Option<MutexGuard<'_, Cell>> {
        let cell = self.0.get(usize::from(resource))?;
        Some(cell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = u64::MAX;

    #[test]
    fn cell_refuses_tokens_below_the_highest_accepted_one() {
        let store = Store::new(8);
        let write = |client, id, token, until| {
            store.answer(client, Request::WriteFenced { resource: 7, id, token, until })
        };
        let big = 1_700_000_000_000_000;
        let replies = [(0, 1, 0), (1, 1, 2), (1, 2, 1), (1, 1, 2), (0, 1, 0)]
            .map(|(client, id, more)| write(client, id, big + more, LATER));
        assert_eq!(replies, [Some(1), Some(1), Some(0), Some(1), Some(0)]);
        assert_eq!(write(1, 2, big + 3, 1), Some(1), "late, with the highest token");
        assert_eq!(store.answer(0, Request::Highest { resource: 7 }), Some(big + 3));
        let audits: Vec<_> = store.audit().collect();
        let recorded = |write: &Write| (write.writer.client, write.is_accepted, write.is_valid);
        let expected = [
            (0, true, true),
            (1, true, true),
            (1, false, true),
            (1, true, true),
            (0, false, true),
            (1, true, false),
        ];
        assert_eq!(audits[7].writes.iter().map(recorded).collect::<Vec<_>>(), expected);
        assert_eq!((audits.len(), audits[6].writes.len()), (8, 0));
    }

    #[test]
    fn overwritten_update_is_counted_as_lost() {
        let store = Store::new(2);
        let write = |value, until| store.answer(0, Request::Write { resource: 1, value, until });
        assert_eq!(write(1, LATER), Some(1));
        assert_eq!(store.answer(3, Request::Read { resource: 1 }), Some(1));
        assert_eq!((write(2, LATER), write(2, LATER)), (Some(1), Some(1)));
        assert_eq!(write(9, 1), Some(0), "too late");
        assert_eq!(store.answer(3, Request::Read { resource: 1 }), Some(2));
        let audits: Vec<_> = store.audit().map(|audit| (audit.updates, audit.lost)).collect();
        assert_eq!(audits, [(0, 0), (3, 1)]);
    }

    #[test]
    fn unknown_resource_has_no_cell() {
        assert_eq!(Store::new(2).answer(0, Request::Read { resource: 2 }), None);
    }
}
