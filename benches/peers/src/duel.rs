//! One scenario: the contenders take turns on the same servers.

use std::sync::Arc;
use std::time::Duration;

use kit::Cluster;
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::contender::{Contender, EagerRslock, Quorlock, Rslock};
use crate::floor::Floor;
use crate::measure::{self, Slice, Tally};
use crate::scenario::{Fault, Scenario, Third};

/// How many nodes there are.
pub(crate) const NODES: usize = 5;

/// The node that suffers the fault.
const VICTIM: usize = 2;

/// What all contenders came to in one scenario.
pub(crate) struct Outcome {
    /// The situation.
    pub(crate) scenario: &'static Scenario,
    /// The peer, which is the base of all ratios.
    pub(crate) rslock: Tally,
    /// This library.
    pub(crate) quorlock: Tally,
    /// Who else took part, by name.
    pub(crate) third: Option<(&'static str, Tally)>,
}

/// Runs one scenario on servers and a runtime of its own.
pub(crate) fn fight(scenario: &'static Scenario, args: &Args) -> Result<Outcome, String> {
    match scenario.third {
        Third::Nobody => fight_beside::<Floor>(scenario, args, false),
        Third::Floor => fight_beside::<Floor>(scenario, args, true),
        Third::EagerRslock => fight_beside::<EagerRslock>(scenario, args, true),
    }
}

/// Runs one scenario, with a third contender or without.
fn fight_beside<T: Contender>(
    scenario: &'static Scenario,
    args: &Args,
    with_third: bool,
) -> Result<Outcome, String> {
    let cluster = Cluster::start(NODES);
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let warm_up = scenario.fault != Fault::HungBefore;
    if !warm_up {
        cluster[VICTIM].stop();
    }
    let mut rslock = Corner::<Rslock>::enter(scenario, &cluster, &runtime)?;
    let mut quorlock = Corner::<Quorlock>::enter(scenario, &cluster, &runtime)?;
    let mut third =
        if with_third { Some(Corner::<T>::enter(scenario, &cluster, &runtime)?) } else { None };
    if warm_up {
        let length = args.slice / 2;
        rslock.slice(length, true);
        quorlock.slice(length, true);
        if let Some(third) = &mut third {
            third.slice(length, true);
        }
    }
    match scenario.fault {
        Fault::Killed => cluster[VICTIM].kill(),
        Fault::Hung => cluster[VICTIM].stop(),
        Fault::None | Fault::HungBefore => {}
    }
    let length = args.slice * scenario.slice_factor;
    for round in 0..args.rounds.min(scenario.rounds_max) {
        // Who begins changes, so that neither always runs after the other.
        if round % 2 == 0 {
            rslock.slice(length, false);
            quorlock.slice(length, false);
        } else {
            quorlock.slice(length, false);
            rslock.slice(length, false);
        }
        if let Some(third) = &mut third {
            third.slice(length, false);
        }
    }
    let outcome = Outcome {
        scenario,
        rslock: rslock.tally,
        quorlock: quorlock.tally,
        third: third.map(|third| (T::NAME, third.tally)),
    };
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(outcome)
}

/// A contender with its clients and what it has achieved so far.
struct Corner<'a, C> {
    scenario: &'static Scenario,
    runtime: &'a Runtime,
    clients: Vec<Arc<C>>,
    slices: usize,
    tally: Tally,
}

impl<'a, C: Contender> Corner<'a, C> {
    /// Makes the clients; connections are opened here or by the first cycle, as the library does it.
    fn enter(
        scenario: &'static Scenario,
        cluster: &Cluster,
        runtime: &'a Runtime,
    ) -> Result<Self, String> {
        let urls = cluster.urls();
        let connect = || runtime.block_on(C::connect(&urls)).map(Arc::new);
        let clients: Result<Vec<_>, _> = (0..scenario.clients).map(|_| connect()).collect();
        let clients = clients.map_err(|error| format!("{}: {error}", C::NAME))?;
        Ok(Self { scenario, runtime, clients, slices: 0, tally: Tally::new() })
    }

    /// Runs one slice under keys that no slice before has used.
    fn slice(&mut self, length: Duration, warm_up: bool) {
        let Scenario { name, tasks, work, .. } = *self.scenario;
        let key_prefix = format!("{}:{name}:{}", C::NAME, self.slices);
        self.slices += 1;
        let slice = Slice { tasks, work, length, warm_up };
        self.runtime.block_on(measure::run(slice, &self.clients, &key_prefix, &mut self.tally));
    }
}
