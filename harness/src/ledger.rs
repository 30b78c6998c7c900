//! Collects the messages of the client processes into the records of one part of a run.

use crate::check::{Pauses, ReportedLoss};
use crate::line::{ClientMessage, EarlyLoss, Request};
use crate::record::{Call, End, Hold};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Records>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) holds: Vec<Hold>,
    pub(crate) calls: Vec<Call>,
    pub(crate) losses: Vec<ReportedLoss>,
    pub(crate) pauses: Pauses,
    /// The number of counter writes that the store refused, because the lease had expired before
    /// the write arrived.
    pub(crate) late_writes: u64,
    /// Leases whose keys disappeared from the nodes before the validity ended, with the client's
    /// number.
    pub(crate) lost_early: Vec<(u16, EarlyLoss)>,
    /// The clients to which every node has replied.
    pub(crate) ready: HashSet<u16>,
    pub(crate) panics: u64,
    pub(crate) leaked_tasks: u64,
    /// The number of releases that were still pending when their client closed.
    pub(crate) undelivered: u64,
    pub(crate) finished: u64,
    pub(crate) others: Vec<String>,
    /// Maps the client number and hold ID of each unfinished hold to its entries in `holds`.
    open: HashMap<(u16, u64), Vec<usize>>,
}

impl Ledger {
    /// Records a client's message. If the message is a request to the store, returns the request
    /// and its ID instead.
    pub(crate) fn take(&self, client: u16, line: &str) -> Option<(u64, Request)> {
        match serde_json::from_str(line) {
            Ok(ClientMessage::StoreRequest { request_id, request }) => {
                return Some((request_id, request));
            }
            Ok(line) => self.lock().take(client, line),
            Err(error) => self
                .lock()
                .others
                .push(format!("client {client} wrote an invalid line ({error}): {line}")),
        }
        None
    }

    pub(crate) fn take_error(&self, client: u16, line: &str) {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "client {client}: {line}");
        if line.contains("panicked at") {
            self.lock().panics += 1;
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn take(&mut self, client: u16, line: ClientMessage) {
        match line {
            ClientMessage::Begun {
                id,
                resources,
                task,
                token,
                asked,
                from,
                until,
                is_renewed,
                is_read,
                period,
            } => {
                let begin = self.holds.len();
                let (end, shared_from) = (End::ValidUntil, is_read.then_some(from));
                self.holds.extend(resources.into_iter().map(|resource| Hold {
                    resource,
                    client,
                    task,
                    id,
                    token,
                    asked,
                    from,
                    until,
                    end,
                    is_renewed,
                    shared_from,
                    period,
                }));
                self.open.insert((client, id), (begin..self.holds.len()).collect());
            }
            ClientMessage::Extended { id, until } => {
                self.amend((client, id), |hold| hold.until = until);
            }
            ClientMessage::Downgraded { id, at } => {
                self.amend((client, id), |hold| hold.shared_from = Some(at));
            }
            ClientMessage::Ended { id, until, end } => {
                self.amend((client, id), |hold| {
                    hold.until = until.max(hold.from);
                    hold.end = end;
                });
                self.open.remove(&(client, id));
            }
            ClientMessage::LossReported { until, at } => {
                self.losses.push(ReportedLoss { client, until, at });
            }
            ClientMessage::Called(call) => self.calls.push(call),
            ClientMessage::StoreRequest { .. } => {
                self.others.push(format!("client {client}: misrouted store request"));
            }
            ClientMessage::TooLate => self.late_writes += 1,
            ClientMessage::LostEarly(loss) => self.lost_early.push((client, loss)),
            ClientMessage::Ready => {
                self.ready.insert(client);
            }
            ClientMessage::Error(error) => self.others.push(format!("client {client}: {error}")),
            ClientMessage::Finished { tasks, undelivered } => {
                self.leaked_tasks += tasks;
                self.undelivered += undelivered;
                self.finished += 1;
            }
        }
    }

    fn amend(&mut self, tenure: (u16, u64), amend: impl Fn(&mut Hold)) {
        for index in self.open.get(&tenure).into_iter().flatten() {
            amend(&mut self.holds[*index]);
        }
    }

    /// Returns the holds that have ended. The end of the others is unknown.
    pub(crate) fn ended(&self) -> Vec<Hold> {
        let open: HashSet<_> = self.open.values().flatten().collect();
        let all = self.holds.iter().enumerate();
        all.filter(|(index, _)| !open.contains(index)).map(|(_, hold)| hold.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ledger: &Ledger, client: u16, messages: &[ClientMessage]) {
        for message in messages {
            let request = ledger.take(client, &serde_json::to_string(message).expect("plain data"));
            assert!(request.is_none());
        }
    }

    fn begun(id: u64, resources: &[u16]) -> ClientMessage {
        let resources = resources.to_vec();
        let (asked, from, until) = (5, 10, 50);
        ClientMessage::Begun {
            id,
            resources,
            task: 1,
            token: None,
            asked,
            from,
            until,
            is_renewed: false,
            is_read: false,
            period: None,
        }
    }

    #[test]
    fn tenure_without_an_end_counts_until_its_validity_ends() {
        let ledger = Ledger::default();
        record(&ledger, 0, &[begun(1, &[7]), ClientMessage::Extended { id: 1, until: 80 }]);
        let records = ledger.lock();
        assert_eq!((records.holds[0].until, records.holds[0].end), (80, End::ValidUntil));
    }

    #[test]
    fn tenure_of_several_resources_ends_on_all_of_them() {
        let ledger = Ledger::default();
        record(&ledger, 0, &[begun(1, &[7, 8])]);
        record(&ledger, 1, &[begun(1, &[9])]);
        record(&ledger, 0, &[ClientMessage::Ended { id: 1, until: 20, end: End::Released }]);
        let ends: Vec<_> = ledger.lock().holds.iter().map(|hold| hold.until).collect();
        assert_eq!(ends, [20, 20, 50]);
    }

    #[test]
    fn invalid_line_is_reported() {
        let ledger = Ledger::default();
        assert!(ledger.take(0, "nonsense").is_none());
        assert_eq!(ledger.lock().others.len(), 1);
    }
}
