//! One part of a run, with a fixed number of nodes.

use crate::admission::{Admission, Target};
use crate::apply::ProxiedNode;
use crate::executor::{Executor, READY_LIMIT};
use crate::keep::keep;
use crate::log::Log;
use crate::nemesis::{MIN_OLD_AGE, NODE_TIMEOUT, Nemesis, ROLLING, TargetClass};
use crate::plan::{NEW_CLIENTS, Planned, Setup};
use harness::keys::Keys;
use harness::record::Fault;
use harness::{
    ClientPlan, KEYS_EXPIRE_AFTER, Nodes, Outcome, RunContext, RunPart, Sabotage, Session, boot,
};
use kit::{Proxy, Server, ServerBuilder};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CLIENTS: u16 = 4;
const TASKS: u16 = 10;
/// The time without faults before the end of a part of the run.
const CALM: Duration = Duration::from_secs(1);
/// The initial age of the nodes, unless the deployment is new.
const AGE: Duration = Duration::from_hours(3);
/// The maximum time until a server notices that connections were closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
const SHOW: Duration = Duration::from_secs(4);

pub(crate) struct Part {
    pub(crate) number: u16,
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    pub(crate) program: Option<PathBuf>,
    /// The start of the run, as a reading of the boot clock.
    pub(crate) origin: u64,
    pub(crate) sabotage: Option<Sabotage>,
    /// The directory to which the servers' files are copied if the part fails.
    pub(crate) kept: PathBuf,
}

impl Part {
    pub(crate) fn run(&self) -> Outcome {
        let nodes: Vec<_> = (0..self.setup.nodes).map(|node| self.node(node)).collect();
        let (log, admission) = (Log::default(), self.admission());
        let plan = ClientPlan {
            clients: CLIENTS,
            temporary: NEW_CLIENTS,
            tasks: TASKS,
            program: client_program,
        };
        let (seed, part, origin, sabotage) = (self.seed, self.number, self.origin, self.sabotage);
        let session =
            Session::begin(plan, RunPart { seed, part, origin, sabotage }, &self.nodes(&nodes));
        // The nodes' clocks must not step before all clients have measured the clocks.
        session.await_ready(READY_LIMIT);
        let (is_inside, fleet) = (self.setup.is_inside, session.fleet());
        let executor =
            Executor { nodes: &nodes, fleet, admission: &admission, is_inside, origin, log: &log };
        let from = boot::now() - origin;
        self.apply_faults(&executor, &session);
        let span = (from, boot::now() - origin);
        for node in &nodes {
            node.proxy.heal();
        }
        thread::sleep(CALM);
        let server = version(&nodes[0].server);
        let mut outcome = session.end().judge(self.context(span, &log, server));
        log.report_failures(&mut outcome.findings.others);
        let findings = &mut outcome.findings;
        findings.leaked_connections = nodes.iter().map(|node| connections(&node.server)).sum();
        thread::sleep(KEYS_EXPIRE_AFTER);
        for node in &nodes {
            match Keys::on(&node.server.url(), "") {
                Ok(keys) => findings.leaked_keys += keys.leaked(),
                Err(error) => {
                    findings.others.push(format!("the keys of a node cannot be read: {error}"));
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
        self.setup.plan(self.seed, self.number)
    }

    fn context(&self, span: (u64, u64), log: &Log, server: String) -> RunContext {
        let faults = log.faults();
        let times = |is_of: fn(&Fault) -> bool| {
            let faults = faults.iter().filter(|fault| is_of(fault));
            faults.map(|fault| (fault.from, fault.until)).collect()
        };
        let data_losses = times(|fault| fault.nemesis == ROLLING);
        let counter_losses = times(|fault| Nemesis::loses_data(&fault.nemesis));
        let (steps, outages) = (log.steps(), log.outages());
        let Setup { nodes, is_inside, .. } = self.setup;
        let skipped = Vec::new();
        RunContext {
            nodes,
            is_inside,
            span,
            faults,
            skipped,
            steps,
            outages,
            data_losses,
            counter_losses,
            server,
        }
    }

    fn server(&self) -> ServerBuilder {
        match &self.program {
            Some(program) => Server::builder().program(program),
            None => Server::builder(),
        }
    }

    fn node(&self, node: u16) -> ProxiedNode {
        let builder = self.server().clock();
        let builder = if Setup::is_durable(node) { builder.durable() } else { builder };
        let server = builder.start();
        if self.setup.is_old() {
            server.clock().jump(AGE);
        }
        let proxy = Proxy::start(server.addr());
        ProxiedNode { server, proxy }
    }

    /// Creates the admission of faults for the start of this part of the run, when no fault is
    /// active. In a new deployment, no node has been running for long enough to be a witness.
    fn admission(&self) -> Admission {
        let admission = Admission::new(self.setup.limits());
        for node in (0..self.setup.nodes).filter(|_| !self.setup.is_old()) {
            admission.claim_for((Target::Node(node), TargetClass::RecentlyFaulty), MIN_OLD_AGE);
        }
        admission
    }

    fn nodes(&self, nodes: &[ProxiedNode]) -> Nodes {
        Nodes {
            urls: nodes.iter().map(|node| node.proxy.url()).collect(),
            other_urls: Vec::new(),
            prefix: String::new(),
            node_timeout: NODE_TIMEOUT,
            connect_timeout: None,
            token_ttl: None,
            is_trusting: self.setup.is_trusting(),
        }
    }

    fn apply_faults(&self, executor: &Executor<'_>, session: &Session) {
        let plan = self.plan();
        let begin = boot::now();
        thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            scope.spawn(move || {
                while is_over.recv_timeout(SHOW) == Err(RecvTimeoutError::Timeout) {
                    session.show(&executor.log.faults());
                }
            });
            executor.run(&plan, begin);
            boot::sleep_until(begin + boot::nanos(self.setup.lasts));
            drop(over);
        });
        session.show(&executor.log.faults());
    }
}

fn client_program() -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("client");
    command
}

/// Waits until all connections to `server` are closed, up to a time limit. Returns the number of
/// connections that remain open.
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

fn version(server: &Server) -> String {
    let info = server.info("server");
    let named =
        |name: &str, setup: &str| info.get(setup).map(|version| format!("{name} {version}"));
    let version = named("Valkey", "valkey_version").or_else(|| named("Redis", "redis_version"));
    version.unwrap_or_else(|| "unknown".to_owned())
}
