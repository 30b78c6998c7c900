//! One scenario: the contenders take turns on the same servers.

use std::path::Path;
use std::time::Duration;

use kit::Cluster;
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::crew::Crew;
use crate::measure::Slice;
use crate::node_usage::NodeUsage;
use crate::nodes::Nodes;
use crate::runner::{Runner, runner};
use crate::scenario::{Base, Fault, Scenario, Work};
use crate::seat::{Seat, seats};
use crate::tally::{Measurements, Seen};

/// What all contenders came to in one scenario.
pub(crate) struct Outcome {
    /// The situation.
    pub(crate) scenario: &'static Scenario,
    /// By name; the first is the base of all ratios.
    pub(crate) measured: Vec<(&'static str, Measurements)>,
}

/// Runs one scenario on servers and a runtime of its own; `counter` is the library that counts, if there is one.
pub(crate) fn fight(
    scenario: &'static Scenario,
    args: &Args,
    counter: Option<&Path>,
) -> Result<Outcome, String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let nodes = Nodes::start(scenario);
    let healthy = (scenario.base == Base::Healthy).then(|| Nodes::start(scenario));
    let warm_up = scenario.fault != Fault::HungBefore;
    if !warm_up {
        nodes.suffer(scenario.fault);
    }
    let seats = seats(scenario, &nodes, healthy.as_ref());
    let entered = seats.iter().map(|seat| Turns::enter(seat, &runtime));
    let mut contenders = entered.collect::<Result<Vec<_>, _>>()?;
    let crews = counter.map(|counter| seats.iter().map(move |s| Crew::enter(s, Some(counter))));
    let mut crews = crews.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    if warm_up {
        for contender in &mut contenders {
            contender.slice(args.slice / 2, true)?;
        }
        for (index, crew) in crews.iter_mut().enumerate() {
            crew.run(args.slice / 4, &format!("warm:{index}"))?;
        }
        nodes.suffer(scenario.fault);
    }
    let length = args.slice * scenario.slice_factor;
    for (index, (mut crew, contender)) in crews.into_iter().zip(&mut contenders).enumerate() {
        contender.tally.counted = Some(crew.count(length / 2, &format!("counted:{index}"))?);
    }
    for round in 0..args.rounds.min(scenario.rounds_max) {
        // Who begins changes, so that neither of the first two always runs after the other.
        let mut order: Vec<_> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.swap(0, 1);
        }
        for index in order {
            contenders[index].slice(length, false)?;
        }
    }
    let measured = contenders.into_iter().map(|turns| (turns.name, turns.tally)).collect();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Outcome { scenario, measured })
}

/// A contender with what it has achieved so far.
struct Turns<'a> {
    name: &'static str,
    clients: Box<dyn Clients + 'a>,
    slices: usize,
    tally: Measurements,
}

impl<'a> Turns<'a> {
    /// Makes the clients.
    fn enter(seat: &Seat<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let clients: Box<dyn Clients + 'a> = if seat.scenario.processes > 0 {
            Box::new(Crew::enter(seat, None)?)
        } else {
            Box::new(Corner::enter(seat, runtime)?)
        };
        Ok(Self { name: seat.name, clients, slices: 0, tally: Measurements::new() })
    }

    /// Runs one slice, under keys that no slice before has used.
    fn slice(&mut self, length: Duration, warm_up: bool) -> Result<(), String> {
        let key_prefix = format!("{}:{}", self.name, self.slices);
        self.slices += 1;
        let (seen, nodes) = self.clients.run(length, &key_prefix)?;
        self.tally.absorb(seen, nodes, warm_up);
        Ok(())
    }
}

/// The clients of a contender, wherever they are.
trait Clients {
    /// Runs a slice; returns what each process saw, and what the nodes used up.
    fn run(&mut self, length: Duration, key_prefix: &str)
    -> Result<(Vec<Seen>, NodeUsage), String>;
}

impl Clients for Crew<'_> {
    fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Seen>, NodeUsage), String> {
        Crew::run(self, length, key_prefix)
    }
}

/// Clients in this process.
struct Corner<'a> {
    tasks: usize,
    work: Work,
    cluster: &'a Cluster,
    runner: Box<dyn Runner + 'a>,
}

impl<'a> Corner<'a> {
    fn enter(seat: &Seat<'a>, runtime: &'a Runtime) -> Result<Self, String> {
        let (nodes, scenario) = (seat.nodes, seat.scenario);
        let runner = runner(seat.library, seat.clients, &nodes.urls(), runtime)?;
        Ok(Self { tasks: scenario.tasks, work: seat.work, cluster: nodes.cluster(), runner })
    }
}

impl Clients for Corner<'_> {
    fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Seen>, NodeUsage), String> {
        let (tasks, work, key_prefix) = (self.tasks, self.work, key_prefix.to_owned());
        let slice = Slice { tasks, first: 0, work, length, key_prefix };
        let before = NodeUsage::before(self.cluster, work);
        let seen = self.runner.run(&slice);
        Ok((vec![seen], NodeUsage::after(self.cluster, work) - before))
    }
}
