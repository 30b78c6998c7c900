//! What is worked on under the locks: for each resource a counter, and a cell that takes fencing tokens. They are
//! kept in the process of the torturer, which nothing is done to.
//!
//! A counter is read, slept on and written back. Each write that takes place is counted in the same step, so at the
//! end a counter differs from its count by the updates that were lost. A write lands at some time after it was sent.
//! What lands after the validity of its lease is refused here: that is not what the lock promises to prevent (a
//! process can be stopped between its last look at the lease and the write). Such refusals are told, too.
//!
//! A fenced cell takes a write whose token is not lower than the highest that it has taken, and refuses any other.
//! Nothing else keeps a holder from writing to it after its lease has ended. Each cell keeps a list of who wrote, in
//! the order in which the writes landed: from it the check is made.

use crate::boot;
use crate::line::Request;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All counters and cells of a part.
#[derive(Debug)]
pub(crate) struct Store(Vec<Mutex<Cell>>);

/// Of one resource.
#[derive(Debug, Default)]
struct Cell {
    counter: u64,
    /// How often the counter was written to.
    count: u64,
    /// The highest token that was taken; 0 before the first one.
    highest: u64,
    writes: Vec<Write>,
}

/// Who writes: one tenure of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) client: u16,
    /// Which of its tenures it is.
    pub(crate) id: u64,
}

/// A write with a token, as its cell noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) writer: Writer,
    pub(crate) is_accepted: bool,
    /// It landed within the validity of its lease.
    pub(crate) is_valid: bool,
}

/// What is in the books of one resource at the end.
#[derive(Debug)]
pub(crate) struct Audit {
    /// How many updates of the counter took place.
    pub(crate) updates: u64,
    /// How many of them were lost.
    pub(crate) lost: u64,
    /// All writes with tokens, as they landed.
    pub(crate) writes: Vec<Write>,
}

impl Store {
    /// Everything is zero.
    pub(crate) fn new(resources: u16) -> Self {
        Self((0..resources).map(|_| Mutex::default()).collect())
    }

    /// Does what a client asks for; `None` if there is no such resource. The answer is a number: what was read, or 1
    /// for a write that took place.
    pub(crate) fn answer(&self, client: u16, request: Request) -> Option<u64> {
        let mut cell = self.cell(request.resource())?;
        let is_valid = |until: u64| boot::now() < until;
        Some(match request {
            Request::Read { .. } => cell.counter,
            Request::Highest { .. } => cell.highest,
            Request::Write { value, until, .. } => {
                let lands = is_valid(until);
                if lands {
                    (cell.counter, cell.count) = (value, cell.count + 1);
                }
                u64::from(lands)
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

    /// What there is at the end, for each resource. The lists of writes are taken out.
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
    fn a_cell_refuses_what_is_lower_than_the_highest_it_has_taken() {
        let store = Store::new(8);
        let write = |client, id, token, until| {
            store.answer(client, Request::WriteFenced { resource: 7, id, token, until })
        };
        let big = 1_700_000_000_000_000;
        let fates = [(0, 1, 0), (1, 1, 2), (1, 2, 1), (1, 1, 2), (0, 1, 0)]
            .map(|(client, id, more)| write(client, id, big + more, LATER));
        assert_eq!(fates, [Some(1), Some(1), Some(0), Some(1), Some(0)]);
        assert_eq!(write(1, 2, big + 3, 1), Some(1), "late, with the highest token");
        assert_eq!(store.answer(0, Request::Highest { resource: 7 }), Some(big + 3));
        let audits: Vec<_> = store.audit().collect();
        let noted = |write: &Write| (write.writer.client, write.is_accepted, write.is_valid);
        let expected = [
            (0, true, true),
            (1, true, true),
            (1, false, true),
            (1, true, true),
            (0, false, true),
            (1, true, false),
        ];
        assert_eq!(audits[7].writes.iter().map(noted).collect::<Vec<_>>(), expected);
        assert_eq!((audits.len(), audits[6].writes.len()), (8, 0));
    }

    #[test]
    fn an_update_that_another_one_overwrote_is_lost() {
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
    fn there_is_nothing_beyond_the_resources() {
        assert_eq!(Store::new(2).answer(0, Request::Read { resource: 2 }), None);
    }
}
