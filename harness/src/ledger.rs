//! The books of a part, as its clients tell them.

use crate::check::{Pauses, ToldLoss};
use crate::line::{Line, Request, Robbery};
use crate::record::{Call, End, Hold};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What all clients have told so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

/// The books.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) holds: Vec<Hold>,
    pub(crate) calls: Vec<Call>,
    pub(crate) losses: Vec<ToldLoss>,
    pub(crate) pauses: Pauses,
    /// Writes to counters that were refused, as they landed after the validity.
    pub(crate) late_writes: u64,
    /// Leases that were gone from the nodes before their validity ended.
    pub(crate) robbed: Vec<(u16, Robbery)>,
    /// Clients that have heard of all nodes.
    pub(crate) ready: HashSet<u16>,
    pub(crate) panics: u64,
    pub(crate) leaked_tasks: u64,
    /// Releases that could not be delivered before a client closed.
    pub(crate) undelivered: u64,
    /// Clients that have closed.
    pub(crate) finished: u64,
    pub(crate) others: Vec<String>,
    /// Where the tenures under way stand in `holds`, by client and number.
    open: HashMap<(u16, u64), Vec<usize>>,
}

impl Ledger {
    /// Takes what a client has told. A question to the counters and cells is no matter of the books: it is handed
    /// back, with its number.
    pub(crate) fn take(&self, client: u16, line: &str) -> Option<(u64, Request)> {
        match serde_json::from_str(line) {
            Ok(Line::Asks { ask, request }) => return Some((ask, request)),
            Ok(line) => self.open().take(client, line),
            Err(error) => self.open().others.push(format!("client {client} told {error}: {line}")),
        }
        None
    }

    /// Takes what a client has complained about.
    pub(crate) fn take_complaint(&self, client: u16, line: &str) {
        // Nobody may be there to read it.
        let _ = writeln!(std::io::stderr(), "client {client}: {line}");
        if line.contains("panicked at") {
            self.open().panics += 1;
        }
    }

    /// The books, to be looked at or written in.
    pub(crate) fn open(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn take(&mut self, client: u16, line: Line) {
        match line {
            Line::Begun { id, resources, task, token, asked, from, until, is_renewed } => {
                let begin = self.holds.len();
                let end = End::ValidUntil;
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
                }));
                self.open.insert((client, id), (begin..self.holds.len()).collect());
            }
            Line::Moved { id, until } => self.amend((client, id), |hold| hold.until = until),
            Line::Ended { id, until, end } => {
                self.amend((client, id), |hold| {
                    hold.until = until.max(hold.from);
                    hold.end = end;
                });
                self.open.remove(&(client, id));
            }
            Line::Told { until, at } => self.losses.push(ToldLoss { client, until, at }),
            Line::Called(call) => self.calls.push(call),
            Line::Asks { .. } => self.others.push(format!("client {client} asks the books")),
            Line::TooLate => self.late_writes += 1,
            Line::Robbed(how) => self.robbed.push((client, how)),
            Line::Ready => {
                self.ready.insert(client);
            }
            Line::Wrong(what) => self.others.push(format!("client {client}: {what}")),
            Line::Finished { tasks, undelivered } => {
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

    /// The tenures that are over. Of those under way it is not known yet when they end.
    pub(crate) fn over(&self) -> Vec<Hold> {
        let open: HashSet<_> = self.open.values().flatten().collect();
        let all = self.holds.iter().enumerate();
        all.filter(|(index, _)| !open.contains(index)).map(|(_, hold)| hold.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(ledger: &Ledger, client: u16, lines: &[Line]) {
        for line in lines {
            let asked = ledger.take(client, &serde_json::to_string(line).expect("plain data"));
            assert!(asked.is_none());
        }
    }

    fn begun(id: u64, resources: &[u16]) -> Line {
        let resources = resources.to_vec();
        let (asked, from, until) = (5, 10, 50);
        Line::Begun { id, resources, task: 1, token: None, asked, from, until, is_renewed: false }
    }

    #[test]
    fn a_tenure_that_nobody_ends_counts_until_its_validity_ends() {
        let ledger = Ledger::default();
        tell(&ledger, 0, &[begun(1, &[7]), Line::Moved { id: 1, until: 80 }]);
        let books = ledger.open();
        assert_eq!((books.holds[0].until, books.holds[0].end), (80, End::ValidUntil));
    }

    #[test]
    fn a_tenure_of_several_resources_ends_on_all_and_clients_are_told_apart() {
        let ledger = Ledger::default();
        tell(&ledger, 0, &[begun(1, &[7, 8])]);
        tell(&ledger, 1, &[begun(1, &[9])]);
        tell(&ledger, 0, &[Line::Ended { id: 1, until: 20, end: End::Released }]);
        let ends: Vec<_> = ledger.open().holds.iter().map(|hold| hold.until).collect();
        assert_eq!(ends, [20, 20, 50]);
    }

    #[test]
    fn what_is_no_line_is_not_passed_over() {
        let ledger = Ledger::default();
        assert!(ledger.take(0, "nonsense").is_none());
        assert_eq!(ledger.open().others.len(), 1);
    }
}
