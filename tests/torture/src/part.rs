//! A part of a run: one number of nodes, for some time.

use crate::boot;
use crate::cell;
use crate::check::{self, SLACK};
use crate::choice::LONGEST_TTL;
use crate::fence::Fence;
use crate::fenced_cell;
use crate::fleet::Fleet;
use crate::inflict::Node;
use crate::ledger::{Books, Ledger};
use crate::line::{Orders, Sabotage};
use crate::plan::Field;
use crate::record::{Fault, Fencing, Findings};
use crate::room::Room;
use crate::storm::Scene;
use kit::{Proxy, Server, ServerBuilder};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many client processes there are at a time.
pub(crate) const CLIENTS: u16 = 4;
/// How many tasks each one has.
const TASKS: u16 = 10;
/// How many resources they are after.
pub(crate) const RESOURCES: u16 = 20;
/// How long all is quiet between the last fault and the end.
const CALM: Duration = Duration::from_secs(1);
/// One fault in so many may fail to be made.
const MOST_MISSING: usize = 20;
/// How long after the longest ttl no key may be left.
const MARGIN: Duration = Duration::from_millis(500);
/// How long a server may take to see that its clients have gone.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// How often progress is shown.
const SHOW: Duration = Duration::from_secs(4);

/// How it is made.
pub(crate) struct Part {
    pub(crate) number: u16,
    pub(crate) seed: u64,
    pub(crate) field: Field,
    pub(crate) program: Option<PathBuf>,
    /// When the run began, on the boot clock.
    pub(crate) origin: u64,
    pub(crate) sabotage: Option<Sabotage>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) books: Books,
    pub(crate) faults: Vec<Fault>,
    pub(crate) findings: Findings,
    pub(crate) fencing: Fencing,
    pub(crate) updates: u64,
    pub(crate) server: String,
}

impl Part {
    /// Makes it.
    pub(crate) fn run(&self) -> Outcome {
        let nodes: Vec<_> = (0..self.field.nodes).map(|node| self.node(node)).collect();
        let cells = self.server().start();
        let ledger = Arc::new(Ledger::default());
        let faults = Mutex::default();
        let fleet = Fleet::launch(CLIENTS, self.orders(&nodes, &cells), &ledger);
        let failures = {
            let (nodes, fleet, faults) = (&nodes, &fleet, &faults);
            let room = Room::new(self.field.limits());
            let failures = Mutex::default();
            let scene = Scene { nodes, fleet, room, origin: self.origin, faults, failures };
            self.storm(&scene, &ledger);
            scene.failures.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        for node in &nodes {
            node.proxy.heal();
        }
        thread::sleep(CALM);
        fleet.end();
        let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
        let books = ledger.open().clone();
        let mut findings = found(&books, &faults);
        // That a fault could not be made says nothing of the library; but they must not all be missing.
        for failure in &failures {
            eprintln!("a fault could not be made: {failure}");
        }
        if failures.len() * MOST_MISSING > faults.len() {
            findings.others.extend(failures);
        }
        if self.field.is_inside {
            findings.others.extend(books.robbed.iter().cloned());
        }
        findings.leaked_connections = nodes.iter().map(|node| connections(&node.server)).sum();
        thread::sleep(LONGEST_TTL + MARGIN);
        findings.leaked_keys = nodes.iter().map(|node| leaked_keys(&node.server)).sum();
        let audits = (0..RESOURCES).map(|resource| cell::audit(&cells, resource));
        let (updates, lost) = audits.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        findings.lost_updates = lost;
        let fencing = self.fencing(&cells, &books, &faults, &mut findings);
        Outcome { books, faults, findings, fencing, updates, server: version(&cells) }
    }

    fn server(&self) -> ServerBuilder {
        match &self.program {
            Some(program) => Server::builder().program(program),
            None => Server::builder(),
        }
    }

    fn node(&self, node: u16) -> Node {
        let builder = self.server().clock();
        let builder = if Field::is_durable(node) { builder.durable() } else { builder };
        let server = builder.start();
        let proxy = Proxy::start(server.addr());
        Node { server, proxy }
    }

    fn orders(&self, nodes: &[Node], cells: &Server) -> Orders {
        Orders {
            seed: self.seed,
            part: self.number,
            client: 0,
            tasks: TASKS,
            resources: RESOURCES,
            nodes: nodes.iter().map(|node| node.proxy.url()).collect(),
            cell: cells.url(),
            origin: self.origin,
            sabotage: self.sabotage,
        }
    }

    /// What fencing did; what it did not goes to the findings.
    fn fencing(
        &self,
        cells: &Server,
        books: &Books,
        faults: &[Fault],
        findings: &mut Findings,
    ) -> Fencing {
        let audits = (0..RESOURCES).map(|resource| fenced_cell::audit(cells, resource));
        let (writes, others): (Vec<_>, Vec<_>) = audits.unzip();
        let fence = Fence::new(&books.holds, writes, faults);
        let found = fence.examine(self.field.is_inside, &books.pauses);
        findings.breaches = found.breaches;
        findings.others.extend(others.into_iter().flatten().chain(found.others));
        found.fencing
    }

    /// Carries the plan out, and shows how it goes.
    fn storm(&self, scene: &Scene<'_>, ledger: &Ledger) {
        let plan = self.field.plan(self.seed, self.number);
        let begin = boot::now();
        thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            scope.spawn(move || {
                while is_over.recv_timeout(SHOW) == Err(RecvTimeoutError::Timeout) {
                    self.show(scene, ledger);
                }
            });
            scene.rage(&plan, begin);
            boot::sleep_until(begin + boot::nanos(self.field.lasts));
            drop(over);
        });
        self.show(scene, ledger);
    }

    fn show(&self, scene: &Scene<'_>, ledger: &Ledger) {
        let (holds, calls) = {
            let books = ledger.open();
            (books.over(), books.calls.len())
        };
        let faults = scene.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let at_work = faults.iter().filter(|fault| fault.until == u64::MAX).count();
        println!(
            "{:6.1} s  {} nodes  {:6} calls  {:6} tenures  {:4} faults, {at_work} at work  {} \
             overlaps",
            Duration::from_nanos(boot::now() - self.origin).as_secs_f64(),
            self.field.nodes,
            calls,
            holds.len(),
            faults.len(),
            check::overlaps(&holds, &[]).len(),
        );
    }
}

/// What the books tell.
fn found(books: &Books, faults: &[Fault]) -> Findings {
    let overdue = check::overdue(&books.calls, &books.pauses);
    for call in &overdue {
        println!(
            "took longer than {:?} and {SLACK} ns: {call:?}",
            Duration::from_nanos(call.bound)
        );
    }
    let late = check::late(&books.losses, &books.pauses);
    for told in &late {
        println!("a loss was told late: {told:?}");
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

/// How many keys were left: locks, and fencing counters that would never go.
fn leaked_keys(server: &Server) -> u64 {
    let keys = server.keys();
    let stays = |key: &&Vec<u8>| !is_counter(key) || server.pttl(key.as_slice()) == -1;
    keys.iter().filter(stays).count() as u64
}

/// Counters outlive their locks on purpose: for a day, by default.
fn is_counter(key: &[u8]) -> bool {
    let mark = b"#quorlock:token";
    key.windows(mark.len()).any(|part| part == mark)
}

/// How many connections by TCP a server has, once those that are closing are closed.
fn connections(server: &Server) -> u64 {
    let begun = Instant::now();
    loop {
        let list = format!("{:?}", server.cmd(&["CLIENT", "LIST"]));
        let left = list.matches(" addr=127.0.0.1:").count() as u64;
        if left == 0 || begun.elapsed() > CLOSE_LIMIT {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a server calls itself.
fn version(server: &Server) -> String {
    let info = server.info("server");
    let named =
        |name: &str, field: &str| info.get(field).map(|version| format!("{name} {version}"));
    let version = named("Valkey", "valkey_version").or_else(|| named("Redis", "redis_version"));
    version.unwrap_or_else(|| "unknown".to_owned())
}
