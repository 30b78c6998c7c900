//! Runs one scenario: the contenders alternate on the same servers.

use std::path::Path;
use std::time::Duration;

use kit::Cluster;
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::entrant::{Entrant, entrants};
use crate::measure::Slice;
use crate::node_usage::NodeUsage;
use crate::nodes::Nodes;
use crate::runner::{Runner, runner};
use crate::scenario::{Base, Fault, Scenario, Work};
use crate::tally::{Measured, Measurements};
use crate::worker_pool::WorkerPool;

/// Results of one scenario.
pub(crate) struct Outcome {
    pub(crate) scenario: &'static Scenario,
    /// Measurements by name. The first contender is the base of all ratios.
    pub(crate) measured: Vec<(&'static str, Measurements)>,
}

/// Runs one scenario on new servers and a new runtime. `counter` is the counting library, if available.
pub(crate) fn run_scenario(
    scenario: &'static Scenario,
    args: &Args,
    counter: Option<&Path>,
) -> Result<Outcome, String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let nodes = Nodes::start(scenario);
    let healthy = (scenario.base == Base::Healthy).then(|| Nodes::start(scenario));
    let warm_up = scenario.fault != Fault::StoppedBefore;
    if !warm_up {
        nodes.inject(scenario.fault);
    }
    let entrants = entrants(scenario, &nodes, healthy.as_ref());
    let started = entrants.iter().map(|entrant| ContenderState::start(entrant, &runtime));
    let mut contenders = started.collect::<Result<Vec<_>, _>>()?;
    let pools =
        counter.map(|counter| entrants.iter().map(move |s| WorkerPool::start(s, Some(counter))));
    let mut pools = pools.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    if warm_up {
        for contender in &mut contenders {
            contender.slice(args.slice / 2, true)?;
        }
        for (index, worker_pool) in pools.iter_mut().enumerate() {
            worker_pool.run(args.slice / 4, &format!("warm:{index}"))?;
        }
        nodes.inject(scenario.fault);
    }
    let length = args.slice * scenario.slice_factor;
    for (index, (mut worker_pool, contender)) in pools.into_iter().zip(&mut contenders).enumerate()
    {
        contender.tally.counted = Some(worker_pool.count(length / 2, &format!("counted:{index}"))?);
    }
    for round in 0..args.rounds.min(scenario.rounds_max) {
        // The order of the first two contenders alternates.
        let mut order: Vec<_> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.swap(0, 1);
        }
        for index in order {
            contenders[index].slice(length, false)?;
        }
    }
    let measured =
        contenders.into_iter().map(|contender| (contender.name, contender.tally)).collect();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Outcome { scenario, measured })
}

/// A contender and its measurements so far.
struct ContenderState<'a> {
    name: &'static str,
    clients: Box<dyn Clients + 'a>,
    slices: usize,
    tally: Measurements,
}

impl<'a> ContenderState<'a> {
    /// Connects the clients.
    fn start(entrant: &Entrant<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let clients: Box<dyn Clients + 'a> = if entrant.scenario.processes > 0 {
            Box::new(WorkerPool::start(entrant, None)?)
        } else {
            Box::new(InProcess::connect(entrant, runtime)?)
        };
        Ok(Self { name: entrant.name, clients, slices: 0, tally: Measurements::new() })
    }

    /// Runs one slice with new keys.
    fn slice(&mut self, length: Duration, warm_up: bool) -> Result<(), String> {
        let key_prefix = format!("{}:{}", self.name, self.slices);
        self.slices += 1;
        let (measured, nodes) = self.clients.run(length, &key_prefix)?;
        self.tally.absorb(measured, nodes, warm_up);
        Ok(())
    }
}

/// The clients of a contender, in this process or in worker processes.
trait Clients {
    /// Runs a slice. Returns the measurements of each process, and the usage of the nodes.
    fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String>;
}

impl Clients for WorkerPool<'_> {
    fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String> {
        WorkerPool::run(self, length, key_prefix)
    }
}

/// Clients in this process.
struct InProcess<'a> {
    tasks: usize,
    work: Work,
    cluster: &'a Cluster,
    runner: Box<dyn Runner + 'a>,
}

impl<'a> InProcess<'a> {
    fn connect(entrant: &Entrant<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let (nodes, scenario) = (entrant.nodes, entrant.scenario);
        let runner = runner(entrant.library, entrant.clients, &nodes.urls(), runtime)?;
        Ok(Self { tasks: scenario.tasks, work: entrant.work, cluster: nodes.cluster(), runner })
    }
}

impl Clients for InProcess<'_> {
    fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String> {
        let (tasks, work, key_prefix) = (self.tasks, self.work, key_prefix.to_owned());
        let slice = Slice { tasks, first: 0, work, length, key_prefix };
        let before = NodeUsage::before(self.cluster, work);
        let measured = self.runner.run(&slice);
        Ok((vec![measured], NodeUsage::after(self.cluster, work) - before))
    }
}
