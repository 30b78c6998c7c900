//! One scenario: the contenders take turns on the same servers.

use std::sync::Arc;
use std::time::Duration;

use kit::{Cluster, Direction, Proxy};
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::contender::{Contender, EagerRslock, Quorlock, Rslock};
use crate::floor::Floor;
use crate::measure::{self, Measurements, Slice};
use crate::scenario::{Base, Fault, Scenario, Third, Work};

/// What all contenders came to in one scenario.
pub(crate) struct Outcome {
    /// The situation.
    pub(crate) scenario: &'static Scenario,
    /// By name; the first is the base of all ratios.
    pub(crate) measured: Vec<(&'static str, Measurements)>,
}

/// Runs one scenario on servers and a runtime of its own.
pub(crate) fn fight(scenario: &'static Scenario, args: &Args) -> Result<Outcome, String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let nodes = Nodes::start(scenario);
    let healthy = (scenario.base == Base::Healthy).then(|| Nodes::start(scenario));
    let warm_up = scenario.fault != Fault::HungBefore;
    if !warm_up {
        nodes.suffer(scenario.fault);
    }
    let mut contenders = contenders(scenario, &nodes, healthy.as_ref(), &runtime)?;
    if warm_up {
        for contender in &mut contenders {
            contender.slice(args.slice / 2, true);
        }
        nodes.suffer(scenario.fault);
    }
    let length = args.slice * scenario.slice_factor;
    for round in 0..args.rounds.min(scenario.rounds_max) {
        // Who begins changes, so that neither of the first two always runs after the other.
        let mut order: Vec<_> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.swap(0, 1);
        }
        for index in order {
            contenders[index].slice(length, false);
        }
    }
    let measured = contenders.into_iter().map(Turns::end).collect();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Outcome { scenario, measured })
}

/// Those who take part, the base first.
fn contenders<'a>(
    scenario: &'static Scenario,
    nodes: &'a Nodes,
    healthy: Option<&'a Nodes>,
    runtime: &'a Runtime,
) -> Result<Vec<Box<dyn Turns + 'a>>, String> {
    let work = scenario.work;
    let mut all: Vec<Box<dyn Turns + 'a>> = Vec::new();
    match (scenario.base, healthy) {
        (Base::Healthy, Some(healthy)) => {
            let corner = Corner::<Quorlock>::enter(scenario, work, healthy, runtime)?;
            all.push(Box::new(Corner { name: "quorlock, all well", ..corner }));
        }
        (Base::Plain, _) => {
            let corner = Corner::<Quorlock>::enter(scenario, Work::OwnKey, nodes, runtime)?;
            all.push(Box::new(Corner { name: "quorlock, plain", ..corner }));
        }
        _ => all.push(Box::new(Corner::<Rslock>::enter(scenario, work, nodes, runtime)?)),
    }
    all.push(Box::new(Corner::<Quorlock>::enter(scenario, work, nodes, runtime)?));
    match scenario.third {
        Third::Nobody => {}
        Third::Floor => all.push(Box::new(Corner::<Floor>::enter(scenario, work, nodes, runtime)?)),
        Third::EagerRslock => {
            all.push(Box::new(Corner::<EagerRslock>::enter(scenario, work, nodes, runtime)?));
        }
    }
    Ok(all)
}

/// The servers of one scenario.
struct Nodes {
    cluster: Cluster,
    /// Before the node that is to be slow.
    proxy: Option<Proxy>,
}

impl Nodes {
    /// Starts what the scenario asks for.
    fn start(scenario: &Scenario) -> Self {
        let cluster = Cluster::start(scenario.nodes);
        let is_slow = matches!(scenario.fault, Fault::Slow(_));
        let proxy = is_slow.then(|| Proxy::start(cluster[cluster.len() / 2].addr()));
        Self { cluster, proxy }
    }

    /// Where clients connect to.
    fn urls(&self) -> Vec<String> {
        let mut urls = self.cluster.urls();
        if let Some(proxy) = &self.proxy {
            let slow = urls.len() / 2;
            urls[slow] = proxy.url();
        }
        urls
    }

    /// Lets the fault happen: to the node in the middle, and those behind it.
    fn suffer(&self, fault: Fault) {
        let victims = || self.cluster.iter().skip(self.cluster.len() / 2);
        match fault {
            Fault::None => {}
            Fault::Killed => victims().take(1).for_each(kit::Server::kill),
            Fault::Hung(count) => victims().take(count).for_each(kit::Server::stop),
            Fault::HungBefore => victims().take(1).for_each(kit::Server::stop),
            Fault::Slow(by) => {
                self.proxy.iter().for_each(|proxy| proxy.delay(Direction::Replies, by));
            }
        }
    }
}

/// Whoever takes turns.
trait Turns {
    /// Runs one slice.
    fn slice(&mut self, length: Duration, warm_up: bool);

    /// The name, and what it all came to.
    fn end(self: Box<Self>) -> (&'static str, Measurements);
}

/// A contender with its clients and what it has achieved so far.
struct Corner<'a, C> {
    name: &'static str,
    scenario: &'static Scenario,
    work: Work,
    cluster: &'a Cluster,
    runtime: &'a Runtime,
    clients: Vec<Arc<C>>,
    slices: usize,
    tally: Measurements,
}

impl<'a, C: Contender> Corner<'a, C> {
    /// Makes the clients; connections are opened here or by the first cycle, as the library does it.
    fn enter(
        scenario: &'static Scenario,
        work: Work,
        nodes: &'a Nodes,
        runtime: &'a Runtime,
    ) -> Result<Self, String> {
        let urls = nodes.urls();
        let connect = || runtime.block_on(C::connect(&urls)).map(Arc::new);
        let clients: Result<Vec<_>, _> = (0..scenario.clients).map(|_| connect()).collect();
        let clients = clients.map_err(|error| format!("{}: {error}", C::NAME))?;
        let (name, cluster, tally) = (C::NAME, &nodes.cluster, Measurements::new());
        Ok(Self { name, scenario, work, cluster, runtime, clients, slices: 0, tally })
    }
}

impl<C: Contender> Turns for Corner<'_, C> {
    /// Runs it under keys that no slice before has used.
    fn slice(&mut self, length: Duration, warm_up: bool) {
        let Scenario { name, tasks, .. } = *self.scenario;
        let key_prefix = format!("{}:{name}:{}", self.name, self.slices);
        self.slices += 1;
        let slice = Slice { tasks, work: self.work, length, warm_up };
        let (cluster, clients) = (self.cluster, &self.clients);
        self.runtime.block_on(measure::run(slice, cluster, clients, &key_prefix, &mut self.tally));
    }

    fn end(self: Box<Self>) -> (&'static str, Measurements) {
        (self.name, self.tally)
    }
}
