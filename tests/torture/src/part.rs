//! A part of a run: one number of nodes, for some time.

use crate::boot;
use crate::cell;
use crate::check::{self, SLACK};
use crate::choice::LONGEST_TTL;
use crate::fence::Fence;
use crate::fenced_cell;
use crate::fleet::Fleet;
use crate::inflict::ProxiedNode;
use crate::ledger::{Books, Ledger};
use crate::line::{Orders, Sabotage};
use crate::log::Log;
use crate::nemesis::{Kind, OLD};
use crate::plan::{Field, NEWCOMERS};
use crate::record::{Fault, Fencing, Findings};
use crate::robbed;
use crate::room::{Room, Target};
use crate::service::{Gap, Service};
use crate::steps::Steps;
use crate::storm::{SIGHT, Scene};
use kit::{Proxy, Server, ServerBuilder};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
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
/// How old nodes are that clients are to see as old.
const AGE: Duration = Duration::from_hours(3);
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
    /// When a lock should have been had, and was not; each up to the next lock.
    pub(crate) gaps: Vec<Gap>,
    pub(crate) server: String,
}

impl Part {
    /// Makes it.
    pub(crate) fn run(&self) -> Outcome {
        let nodes: Vec<_> = (0..self.field.nodes).map(|node| self.node(node)).collect();
        let cells = self.server().start();
        let ledger = Arc::new(Ledger::default());
        let log = Log::default();
        let room = self.room();
        let fleet = Fleet::launch(CLIENTS, NEWCOMERS, self.orders(&nodes, &cells), &ledger);
        // Clocks are not to step before all have measured them.
        let is_blind = |place: &u16| !fleet.await_ready(*place, SIGHT);
        let blind: Vec<_> = (0..CLIENTS).filter(is_blind).collect();
        let (is_inside, origin) = (self.field.is_inside, self.origin);
        let scene =
            Scene { nodes: &nodes, fleet: &fleet, room: &room, is_inside, origin, log: &log };
        let from = boot::now() - origin;
        self.storm(&scene, &ledger);
        let span = (from, boot::now() - origin);
        for node in &nodes {
            node.proxy.heal();
        }
        thread::sleep(CALM);
        fleet.end();
        let books = ledger.open().clone();
        let faults = log.faults();
        let mut findings = found(&books, &faults, &log.steps());
        let sightless = blind.iter().map(|place| format!("client {place} has not seen all nodes"));
        findings.others.extend(sightless);
        log.tell_failures(&mut findings.others);
        let gaps = self.gaps(span, &books, &log, &mut findings);
        if is_inside {
            findings.others.extend(robbed::unexplained(&books.robbed, &log.steps(), &faults));
        }
        findings.leaked_connections = nodes.iter().map(|node| connections(&node.server)).sum();
        thread::sleep(LONGEST_TTL + MARGIN);
        findings.leaked_keys = nodes.iter().map(|node| leaked_keys(&node.server)).sum();
        let audits = (0..RESOURCES).map(|resource| cell::audit(&cells, resource));
        let (updates, lost) = audits.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        findings.lost_updates = lost;
        let fencing = self.fencing(&cells, &books, &faults, &mut findings);
        let server = version(&cells);
        Outcome { books, faults, findings, fencing, updates, gaps, server }
    }

    fn server(&self) -> ServerBuilder {
        match &self.program {
            Some(program) => Server::builder().program(program),
            None => Server::builder(),
        }
    }

    fn node(&self, node: u16) -> ProxiedNode {
        let builder = self.server().clock();
        let builder = if Field::is_durable(node) { builder.durable() } else { builder };
        let server = builder.start();
        if self.field.is_old() {
            server.clock().jump(AGE);
        }
        let proxy = Proxy::start(server.addr());
        ProxiedNode { server, proxy }
    }

    /// Nobody is broken yet; but nodes that are young are no witnesses.
    fn room(&self) -> Room {
        let room = Room::new(self.field.limits());
        for node in (0..self.field.nodes).filter(|_| !self.field.is_old()) {
            room.linger((Target::Node(node), Kind::Shaken), OLD);
        }
        room
    }

    /// Outside the promise nodes forget and are away as they like.
    fn gaps(
        &self,
        span: (u64, u64),
        books: &Books,
        log: &Log,
        findings: &mut Findings,
    ) -> Vec<Gap> {
        if !self.field.is_inside {
            return Vec::new();
        }
        let service = Service { nodes: self.field.nodes, span, ailments: &log.ailments() };
        let gaps = service.gaps(&books.holds);
        findings.others.extend(gaps.iter().filter_map(|gap| gap.complaint()));
        gaps
    }

    fn orders(&self, nodes: &[ProxiedNode], cells: &Server) -> Orders {
        Orders {
            seed: self.seed,
            part: self.number,
            client: 0,
            tasks: TASKS,
            resources: RESOURCES,
            nodes: nodes.iter().map(|node| node.proxy.url()).collect(),
            cell: cells.url(),
            is_trusting: self.field.is_trusting(),
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
        let faults = scene.log.faults();
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
fn found(books: &Books, faults: &[Fault], steps: &Steps) -> Findings {
    let overdue = check::overdue(&books.calls, &books.pauses, steps);
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
