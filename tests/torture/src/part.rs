//! A part of a run: one number of nodes, for some time.

use crate::inflict::ProxiedNode;
use crate::keep::keep;
use crate::log::Log;
use crate::nemesis::{Kind, NODE_TIMEOUT, OLD, ROLLING};
use crate::plan::{Field, NEWCOMERS, Planned};
use crate::room::{Room, Target};
use crate::storm::{SIGHT, Scene};
use harness::keys::Keys;
use harness::record::Fault;
use harness::{Circumstances, Crew, GONE, Nodes, Outcome, Sabotage, Session, Who, boot};
use kit::{Proxy, Server, ServerBuilder};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How many client processes there are at a time.
pub(crate) const CLIENTS: u16 = 4;
/// How many tasks each one has.
const TASKS: u16 = 10;
/// How long all is quiet between the last fault and the end.
const CALM: Duration = Duration::from_secs(1);
/// How old nodes are that clients are to see as old.
const AGE: Duration = Duration::from_hours(3);
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
    /// Where the files of the servers are copied to if the part fails.
    pub(crate) kept: PathBuf,
}

impl Part {
    /// Makes it.
    pub(crate) fn run(&self) -> Outcome {
        let nodes: Vec<_> = (0..self.field.nodes).map(|node| self.node(node)).collect();
        let (log, room) = (Log::default(), self.room());
        let crew =
            Crew { clients: CLIENTS, newcomers: NEWCOMERS, tasks: TASKS, program: ourselves };
        let (seed, part, origin, sabotage) = (self.seed, self.number, self.origin, self.sabotage);
        let session =
            Session::begin(crew, Who { seed, part, origin, sabotage }, &self.nodes(&nodes));
        // Clocks are not to step before all have measured them.
        session.await_sight(SIGHT);
        let (is_inside, fleet) = (self.field.is_inside, session.fleet());
        let scene = Scene { nodes: &nodes, fleet, room: &room, is_inside, origin, log: &log };
        let from = boot::now() - origin;
        self.storm(&scene, &session);
        let span = (from, boot::now() - origin);
        for node in &nodes {
            node.proxy.heal();
        }
        thread::sleep(CALM);
        let server = version(&nodes[0].server);
        let mut outcome = session.end().judge(self.circumstances(span, &log, server));
        log.tell_failures(&mut outcome.findings.others);
        let findings = &mut outcome.findings;
        findings.leaked_connections = nodes.iter().map(|node| connections(&node.server)).sum();
        thread::sleep(GONE);
        for node in &nodes {
            match Keys::on(&node.server.url(), "") {
                Ok(keys) => findings.leaked_keys += keys.leaked(),
                Err(error) => {
                    findings.others.push(format!("a node does not tell its keys: {error}"));
                }
            }
        }
        if findings.is_failure(is_inside)
            && let Err(error) = keep(&nodes, &self.plan(), &self.kept)
        {
            eprintln!("files of the servers cannot be copied to {}: {error}", self.kept.display());
        }
        outcome
    }

    fn plan(&self) -> Vec<Planned> {
        self.field.plan(self.seed, self.number)
    }

    fn circumstances(&self, span: (u64, u64), log: &Log, server: String) -> Circumstances {
        let faults = log.faults();
        let rolling = faults.iter().filter(|fault| fault.nemesis == ROLLING);
        let amnesias = rolling.map(|Fault { from, until, .. }| (*from, *until)).collect();
        let (steps, ailments) = (log.steps(), log.ailments());
        let Field { nodes, is_inside, .. } = self.field;
        let skipped = Vec::new();
        Circumstances { nodes, is_inside, span, faults, skipped, steps, ailments, amnesias, server }
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

    fn nodes(&self, nodes: &[ProxiedNode]) -> Nodes {
        Nodes {
            urls: nodes.iter().map(|node| node.proxy.url()).collect(),
            other_urls: Vec::new(),
            prefix: String::new(),
            node_timeout: NODE_TIMEOUT,
            connect_timeout: None,
            token_ttl: None,
            is_trusting: self.field.is_trusting(),
        }
    }

    /// Carries the plan out, and shows how it goes.
    fn storm(&self, scene: &Scene<'_>, session: &Session) {
        let plan = self.plan();
        let begin = boot::now();
        thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            scope.spawn(move || {
                while is_over.recv_timeout(SHOW) == Err(RecvTimeoutError::Timeout) {
                    session.show(&scene.log.faults());
                }
            });
            scene.rage(&plan, begin);
            boot::sleep_until(begin + boot::nanos(self.field.lasts));
            drop(over);
        });
        session.show(&scene.log.faults());
    }
}

/// This program as a client process.
fn ourselves() -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("client");
    command
}

/// How many connections by TCP a server has, once those that are closing are closed.
fn connections(server: &Server) -> u64 {
    let begun = Instant::now();
    loop {
        let left = server.clients().len() as u64;
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
