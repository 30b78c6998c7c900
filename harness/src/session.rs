//! A workload, from the start of its clients to the judgement of their books.

use crate::boot;
use crate::check::{self, SLACK};
use crate::choice::LONGEST_TTL;
use crate::fence::Fence;
use crate::fleet::{self, Fleet, Program};
use crate::ledger::{self, Ledger};
use crate::line::{Nodes, Orders, Sabotage};
use crate::record::{Fault, Fencing, Findings, SkippedFault};
use crate::robbed;
use crate::say;
use crate::service::{Ailment, Gap, Service};
use crate::steps::Steps;
use crate::store::{Audit, Store};
use std::sync::Arc;
use std::time::Duration;

/// How many resources all are after.
pub const RESOURCES: u16 = 20;
/// How long after the end of a session no lock is left on the nodes: the longest ttl, and a little more.
pub const GONE: Duration = LONGEST_TTL.saturating_add(Duration::from_millis(500));

/// The client processes of a session.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// How many are there all the time.
    pub clients: u16,
    /// For how many more there is a place.
    pub newcomers: u16,
    /// How many tasks each one has that stays.
    pub tasks: u16,
    /// How they are started.
    pub program: Program,
}

/// Which session of which run it is.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// Of all choices.
    pub seed: u64,
    /// The number of this part of the run.
    pub part: u16,
    /// When the run began, on the [boot clock](boot::now).
    pub origin: u64,
    /// What the first client does wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Clients that fight for locks.
pub struct Session {
    fleet: Fleet,
    books: fleet::Books,
    clients: u16,
    nodes: usize,
    origin: u64,
}

/// What went on beside the clients: all that their books are judged by.
#[derive(Debug)]
pub struct Circumstances {
    /// How many nodes there are.
    pub nodes: u16,
    /// Whether Redlock promises exclusion under all of the faults.
    pub is_inside: bool,
    /// When faults were made: from when to when, on the boot clock less the origin.
    pub span: (u64, u64),
    /// What was done.
    pub faults: Vec<Fault>,
    /// The faults that could not be applied.
    pub skipped: Vec<SkippedFault>,
    /// By how much clocks of nodes have stepped.
    pub steps: Steps,
    /// When nodes were not well, so that locks need not be had.
    pub ailments: Vec<Ailment>,
    /// When nodes may have come back empty.
    pub amnesias: Vec<(u64, u64)>,
    /// What a node says that it is.
    pub server: String,
}

/// What came of a session.
pub struct Outcome {
    pub(crate) books: ledger::Books,
    pub(crate) faults: Vec<Fault>,
    pub(crate) skipped: Vec<SkippedFault>,
    /// What was found. More may be added by whoever looks at the nodes.
    pub findings: Findings,
    pub(crate) fencing: Fencing,
    pub(crate) updates: u64,
    /// When a lock should have been had, and was not; each up to the next lock.
    pub(crate) gaps: Vec<Gap>,
    pub(crate) server: String,
}

impl Session {
    /// Starts the clients.
    pub fn begin(crew: Crew, who: Who, nodes: &Nodes) -> Self {
        let Who { seed, part, origin, sabotage } = who;
        let Crew { clients, newcomers, tasks, program } = crew;
        let nodes = nodes.clone();
        let count = nodes.urls.len();
        let resources = RESOURCES;
        let orders = Orders { seed, part, client: 0, tasks, resources, nodes, origin, sabotage };
        let (ledger, store) = (Arc::default(), Arc::new(Store::new(RESOURCES)));
        let books = fleet::Books { ledger, store };
        let fleet = Fleet::launch((clients, newcomers), program, orders, books.clone());
        Self { fleet, books, clients, nodes: count, origin }
    }

    /// The clients.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Waits until each client has heard of all nodes. Those that have not are told of at the end.
    pub fn await_sight(&self, limit: Duration) {
        for place in (0..self.clients).filter(|place| !self.fleet.await_ready(*place, limit)) {
            let complaint = format!("client {place} has not seen all nodes");
            self.ledger().open().others.push(complaint);
        }
    }

    /// Shows on a line how it goes.
    pub fn show(&self, faults: &[Fault]) {
        let (holds, calls) = {
            let books = self.ledger().open();
            (books.over(), books.calls.len())
        };
        let active = faults.iter().filter(|fault| fault.until == u64::MAX).count();
        say!(
            "{:6.1} s  {} nodes  {:6} calls  {:6} tenures  {:4} faults, {active} active  {} \
             overlaps",
            Duration::from_nanos(boot::now() - self.origin).as_secs_f64(),
            self.nodes,
            calls,
            holds.len(),
            faults.len(),
            check::overlaps(&holds, &[]).len(),
        );
    }

    /// Lets all clients come to an end.
    pub fn end(self) -> Ended {
        self.fleet.end();
        let fleet::Books { ledger, store } = self.books;
        let books = ledger.open().clone();
        Ended { books, store }
    }

    fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }
}

/// A session that is over, and not judged yet.
pub struct Ended {
    books: ledger::Books,
    store: Arc<Store>,
}

impl Ended {
    /// Judges it.
    pub fn judge(self, all: Circumstances) -> Outcome {
        let Self { books, store } = self;
        let mut findings = found(&books, &all.faults, &all.steps);
        let gaps = gaps(&books, &all, &mut findings);
        if all.is_inside {
            let robbed = robbed::unexplained(&books.robbed, &all.steps, &all.amnesias);
            findings.others.extend(robbed);
        }
        let (mut updates, mut writes) = (0, Vec::new());
        for audit in store.audit() {
            let Audit { updates: more, lost, writes: of_one } = audit;
            updates += more;
            findings.lost_updates += lost;
            writes.push(of_one);
        }
        let fence = Fence::new(&books.holds, writes, &all.faults);
        let fenced = fence.examine(all.is_inside, &books.pauses);
        findings.breaches = fenced.breaches;
        findings.others.extend(fenced.others);
        let Circumstances { faults, skipped, server, .. } = all;
        let fencing = fenced.fencing;
        Outcome { books, faults, skipped, findings, fencing, updates, gaps, server }
    }
}

/// Outside the promise nodes forget and are away as they like.
fn gaps(books: &ledger::Books, all: &Circumstances, findings: &mut Findings) -> Vec<Gap> {
    if !all.is_inside {
        return Vec::new();
    }
    let service = Service { nodes: all.nodes, span: all.span, ailments: &all.ailments };
    let gaps = service.gaps(&books.holds);
    findings.others.extend(gaps.iter().filter_map(|gap| gap.complaint()));
    gaps
}

/// What the books tell.
fn found(books: &ledger::Books, faults: &[Fault], steps: &Steps) -> Findings {
    let overdue = check::overdue(&books.calls, &books.pauses, steps);
    for call in &overdue {
        let bound = Duration::from_nanos(call.bound);
        say!("overdue call, longer than {bound:?} and {SLACK} ns: {call:?}");
    }
    let late = check::late(&books.losses, &books.pauses);
    for told in &late {
        say!("late loss notification: {told:?}");
    }
    Findings {
        overlaps: check::overlaps(&books.holds, faults),
        late_losses: late.len() as u64,
        overdue_calls: overdue.len() as u64,
        panics: books.panics,
        leaked_tasks: books.leaked_tasks,
        others: books.others.clone(),
        ..Findings::default()
    }
}
