//! Measures the cost of many tasks that wait for locks, which another client holds throughout.

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

const NODES: usize = 5;

const WAITERS: usize = 10_000;

const BATCH: usize = 500;

/// The length of the warm-up, and of the measurement, in units of `--slice-ms`. When the warm-up ends, all tasks wait
/// without sending commands.
const SLICES: u32 = 10;

const HOLD_LIMIT: Duration = Duration::from_mins(1);

/// Determines how the nodes' commands are counted. Waiters also send commands outside of scripts; see
/// [`Work::is_scripted`].
const WORK: Work = Work::OwnKey;

/// [`WAITERS`] tasks wait for `keys` locks that another client holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingScenario {
    pub(crate) name: &'static str,
    keys: usize,
}

pub(crate) const WAITING_SCENARIOS: [WaitingScenario; 2] = [
    WaitingScenario { name: "10,000 keys, one waiter each", keys: WAITERS },
    WaitingScenario { name: "1 key, 10,000 waiters", keys: 1 },
];

pub(crate) struct WaitResult {
    pub(crate) scenario: &'static str,
    pub(crate) library: &'static str,
    /// The cost, or the reason why it could not be measured.
    pub(crate) cost: Result<Cost, String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// The number of tasks that are still waiting at the end. The others have acquired a lock or failed.
    pub(crate) waiting: usize,
    pub(crate) lasted: Duration,
    pub(crate) usage: Usage,
    pub(crate) nodes: NodeUsage,
}

impl Cost {
    /// Returns the user and system time of the client, in cores.
    pub(crate) fn cores(&self) -> f64 {
        self.usage.cpu.div_duration_f64(self.lasted)
    }

    /// Returns the user and system time per node, in cores.
    pub(crate) fn node_cores(&self) -> f64 {
        self.nodes.each(self.nodes.cpu.div_duration_f64(self.lasted))
    }

    pub(crate) fn commands_per_s(&self) -> f64 {
        let calls = u32::try_from(self.nodes.commands.calls).unwrap_or(u32::MAX);
        self.nodes.each(f64::from(calls) / self.lasted.as_secs_f64())
    }

    pub(crate) fn switches_per_s(&self) -> f64 {
        let context_switches = u32::try_from(self.usage.context_switches).unwrap_or(u32::MAX);
        f64::from(context_switches) / self.lasted.as_secs_f64()
    }
}

/// Measures both libraries, one after the other, each on its own servers.
pub(crate) fn wait(scenario: &'static WaitingScenario, args: &Args) -> [WaitResult; 2] {
    [result::<Rslock>(scenario, args), result::<Quorlock>(scenario, args)]
}

fn result<C: Contender>(scenario: &'static WaitingScenario, args: &Args) -> WaitResult {
    WaitResult { scenario: scenario.name, library: C::NAME, cost: measure::<C>(scenario, args) }
}

fn measure<C: Contender>(scenario: &WaitingScenario, args: &Args) -> Result<Cost, String> {
    let cluster = Cluster::start(NODES);
    let urls = cluster.urls();
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let holder = runtime.block_on(C::connect_patient(&urls))?;
    let held = runtime.block_on(hold(&holder, scenario.keys))?;
    let client = std::sync::Arc::new(runtime.block_on(C::connect_patient(&urls))?);
    let waiting: Vec<JoinHandle<_>> = (0..WAITERS)
        .map(|number| {
            let (client, key) = (client.clone(), key(number % scenario.keys));
            runtime.spawn(async move { client.wait_long(&key).await.map(drop) })
        })
        .collect();
    std::thread::sleep(args.slice * SLICES);
    let before = NodeUsage::before(&cluster, WORK);
    let (used, started) = (Usage::now(), Instant::now());
    std::thread::sleep(args.slice * SLICES);
    let (usage, lasted) = (Usage::now() - used, started.elapsed());
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
    let late = |_| format!("timed out after {HOLD_LIMIT:?} while acquiring {keys} locks");
    tokio::time::timeout(HOLD_LIMIT, all).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Cost;
    use crate::node_usage::{Commands, NodeUsage};
    use crate::usage::Usage;

    #[test]
    fn costs_are_per_second_and_node() {
        let cost = Cost {
            waiting: 1,
            lasted: Duration::from_secs(4),
            usage: Usage { cpu: Duration::from_secs(1), context_switches: 8, ..Usage::default() },
            nodes: NodeUsage {
                cpu: Duration::from_secs(10),
                commands: Commands { calls: 60, usec: 0 },
                nodes: 5,
            },
        };
        let all = [cost.cores(), cost.node_cores(), cost.commands_per_s(), cost.switches_per_s()];
        for (is, expected) in all.into_iter().zip([0.25, 0.5, 3.0, 2.0]) {
            assert!((is - expected).abs() < 1e-9, "{all:?}");
        }
    }
}
