//! Runs one scenario, in which the contenders alternate on the same servers.

use std::path::Path;
use std::time::Duration;

use kit::Cluster;
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::contender_setup::{ContenderSetup, contender_setups};
use crate::measure::Slice;
use crate::node_usage::NodeUsage;
use crate::nodes::Nodes;
use crate::runner::{Runner, runner};
use crate::scenario::{Base, Fault, Scenario, Work};
use crate::tally::{Measured, Measurements};
use crate::worker_pool::WorkerPool;

pub(crate) struct Outcome {
    pub(crate) scenario: &'static Scenario,
    /// The name and the measurements of each contender. The first contender is the base of all ratios.
    pub(crate) measured: Vec<(&'static str, Measurements)>,
}

/// Runs one scenario on new servers and a new runtime. `counter` is the path of the library that counts allocations and
/// system calls, or `None` if they cannot be counted.
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
    let contender_setups = contender_setups(scenario, &nodes, healthy.as_ref());
    let started = contender_setups.iter().map(|setup| ContenderState::start(setup, &runtime));
    let mut contenders = started.collect::<Result<Vec<_>, _>>()?;
    let pools = counter
        .map(|counter| contender_setups.iter().map(move |s| WorkerPool::start(s, Some(counter))));
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

struct ContenderState<'a> {
    name: &'static str,
    clients: Box<dyn Clients + 'a>,
    slices: usize,
    tally: Measurements,
}

impl<'a> ContenderState<'a> {
    fn start(setup: &ContenderSetup<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let clients: Box<dyn Clients + 'a> = if setup.scenario.processes > 0 {
            Box::new(WorkerPool::start(setup, None)?)
        } else {
            Box::new(InProcess::connect(setup, runtime)?)
        };
        Ok(Self { name: setup.name, clients, slices: 0, tally: Measurements::new() })
    }

    /// Runs one slice of this contender. Each slice uses new keys, because an aborted task may leave keys.
    fn slice(&mut self, length: Duration, warm_up: bool) -> Result<(), String> {
        let key_prefix = format!("{}:{}", self.name, self.slices);
        self.slices += 1;
        let (measured, nodes) = self.clients.run_slice(length, &key_prefix)?;
        self.tally.absorb(measured, nodes, warm_up);
        Ok(())
    }
}

trait Clients {
    /// Runs one slice. Returns the measurements of each process, and the usage of the nodes.
    fn run_slice(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String>;
}

impl Clients for WorkerPool<'_> {
    fn run_slice(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String> {
        WorkerPool::run(self, length, key_prefix)
    }
}

struct InProcess<'a> {
    tasks: usize,
    work: Work,
    cluster: &'a Cluster,
    runner: Box<dyn Runner + 'a>,
}

impl<'a> InProcess<'a> {
    fn connect(setup: &ContenderSetup<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let (nodes, scenario) = (setup.nodes, setup.scenario);
        let runner = runner(setup.library, setup.clients, &nodes.urls(), runtime)?;
        Ok(Self { tasks: scenario.tasks, work: setup.work, cluster: nodes.cluster(), runner })
    }
}

impl Clients for InProcess<'_> {
    fn run_slice(
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
