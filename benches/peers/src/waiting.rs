//! Many who wait for locks that others hold and do not give: what that costs while nothing happens.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kit::Cluster;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::args::Args;
use crate::contender::{Contender, Quorlock, Rslock};
use crate::node_usage::NodeUsage;
use crate::scenario::Work;
use crate::usage::Usage;

/// How many nodes there are.
const NODES: usize = 5;

/// How many wait.
const WAITERS: usize = 10_000;

/// So many locks are acquired at once by who holds them.
const BATCH: usize = 500;

/// How many slices it takes until all have asked, and are quiet; and for how many it is measured then.
const SLICES: u32 = 10;

/// How long the holder may need for its locks.
const PATIENCE: Duration = Duration::from_mins(1);

/// The commands of those who wait are no script's: see [`Work::is_scripted`].
const WORK: Work = Work::OwnKey;

/// One situation: so many locks, all held, and [`WAITERS`] tasks that wait for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Its name in the table, and what `--only` looks for.
    pub(crate) name: &'static str,
    /// How many locks there are.
    keys: usize,
}

/// All of them.
pub(crate) const CROWDS: [Crowd; 2] = [
    Crowd { name: "10,000 keys, one waits for each", keys: WAITERS },
    Crowd { name: "1 key, 10,000 wait", keys: 1 },
];

/// What waiting costs one contender.
pub(crate) struct Waited {
    pub(crate) crowd: &'static str,
    pub(crate) library: &'static str,
    /// What it costs; or why nothing could be measured.
    pub(crate) cost: Result<Cost, String>,
}

/// What waiting costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// How many still wait in the end, and have neither got a lock nor given up.
    pub(crate) waiting: usize,
    /// For how long it was measured.
    pub(crate) lasted: Duration,
    /// What the client used up meanwhile.
    pub(crate) usage: Usage,
    /// What the nodes did.
    pub(crate) nodes: NodeUsage,
}

impl Cost {
    /// User and system time of the client, as a share of one core.
    pub(crate) fn cores(&self) -> f64 {
        self.usage.cpu.div_duration_f64(self.lasted)
    }

    /// The same of one node.
    pub(crate) fn node_cores(&self) -> f64 {
        self.nodes.each(self.nodes.cpu.div_duration_f64(self.lasted))
    }

    /// Commands that one node is sent in a second.
    pub(crate) fn commands_per_s(&self) -> f64 {
        let calls = u32::try_from(self.nodes.commands.calls).unwrap_or(u32::MAX);
        self.nodes.each(f64::from(calls) / self.lasted.as_secs_f64())
    }

    /// How often a thread of the client goes to sleep in a second.
    pub(crate) fn switches_per_s(&self) -> f64 {
        let switches = u32::try_from(self.usage.switches).unwrap_or(u32::MAX);
        f64::from(switches) / self.lasted.as_secs_f64()
    }
}

/// Lets both libraries wait, one after the other, each on servers of its own.
pub(crate) fn wait(crowd: &'static Crowd, args: &Args) -> [Waited; 2] {
    [waited::<Rslock>(crowd, args), waited::<Quorlock>(crowd, args)]
}

fn waited<C: Contender>(crowd: &'static Crowd, args: &Args) -> Waited {
    Waited { crowd: crowd.name, library: C::NAME, cost: measure::<C>(crowd, args) }
}

fn measure<C: Contender>(crowd: &Crowd, args: &Args) -> Result<Cost, String> {
    let cluster = Cluster::start(NODES);
    let urls = cluster.urls();
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let holder = runtime.block_on(C::connect_patient(&urls))?;
    let held = runtime.block_on(hold(&holder, crowd.keys))?;
    let client = std::sync::Arc::new(runtime.block_on(C::connect_patient(&urls))?);
    let waiting: Vec<JoinHandle<_>> = (0..WAITERS)
        .map(|number| {
            let (client, key) = (client.clone(), key(number % crowd.keys));
            runtime.spawn(async move { client.wait_long(&key).await.map(drop) })
        })
        .collect();
    std::thread::sleep(args.slice * SLICES);
    let before = NodeUsage::before(&cluster, WORK);
    let (used, begun) = (Usage::now(), Instant::now());
    std::thread::sleep(args.slice * SLICES);
    let (usage, lasted) = (Usage::now() - used, begun.elapsed());
    let nodes = NodeUsage::after(&cluster, WORK) - before;
    let waits = waiting.iter().filter(|task| !task.is_finished()).count();
    waiting.iter().for_each(JoinHandle::abort);
    drop((held, holder));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Cost { waiting: waits, lasted, usage, nodes })
}

fn key(number: usize) -> String {
    format!("lock/{number}")
}

/// Locks so many keys.
async fn hold<C: Contender>(holder: &C, keys: usize) -> Result<Vec<C::Lock>, String> {
    let all = async {
        let mut held = Vec::with_capacity(keys);
        while held.len() < keys {
            let numbers = held.len()..keys.min(held.len() + BATCH);
            let lock = |number| async move { holder.hold(&key(number)).await };
            held.extend(try_join_all(numbers.map(lock)).await?);
        }
        Ok(held)
    };
    let late = |_| format!("{keys} locks were not had in {PATIENCE:?}");
    tokio::time::timeout(PATIENCE, all).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Cost;
    use crate::node_usage::{Commands, NodeUsage};
    use crate::usage::Usage;

    #[test]
    fn costs_are_of_a_second_and_of_one_node() {
        let cost = Cost {
            waiting: 1,
            lasted: Duration::from_secs(4),
            usage: Usage { cpu: Duration::from_secs(1), switches: 8, ..Usage::default() },
            nodes: NodeUsage {
                cpu: Duration::from_secs(10),
                commands: Commands { calls: 60, usec: 0 },
                asked: 5,
            },
        };
        let all = [cost.cores(), cost.node_cores(), cost.commands_per_s(), cost.switches_per_s()];
        for (is, must) in all.into_iter().zip([0.25, 0.5, 3.0, 2.0]) {
            assert!((is - must).abs() < 1e-9, "{all:?}");
        }
    }
}
