//! The scenarios of the comparison. In the table, a scenario has one row per contender.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// One node is killed after the warm-up.
    Killed,
    /// This number of nodes is stopped (SIGSTOP) after the warm-up.
    Stopped(usize),
    /// One node is stopped before the clients connect. The scenario has no warm-up.
    StoppedBefore,
    /// After the warm-up, a proxy delays the replies of one node by this time.
    Slow(Duration),
    /// After the warm-up, proxies delay the replies of all nodes by this time.
    Distant(Duration),
}

/// The work that a task repeats, which also determines the measured latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Acquires and releases the task's own key. The latency is the duration of the cycle.
    OwnKey,
    /// Acquires, holds and releases a key that all tasks share. The latency is the duration of the acquire.
    SharedKey {
        /// How long a task holds the lock. With tokio's timer, 1 ms becomes 1 to 2 ms.
        hold: Duration,
    },
    /// Extends the task's own lock again and again. The latency is the duration of one extension.
    Extend,
    /// Acquires and releases the task's own key, with a fencing token.
    Fenced,
    /// Acquires and releases this number of keys together.
    Several(usize),
}

impl Work {
    /// Returns true if scripts do all of the work. Other work acquires single keys, for which clients send commands
    /// directly.
    pub(crate) fn is_scripted(self) -> bool {
        matches!(self, Self::Extend | Self::Fenced | Self::Several(2..))
    }
}

/// The contender to which the results are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// rslock with the same work.
    Rslock,
    /// quorlock with one key per task.
    Plain,
    /// quorlock without the scenario's fault, and with the same work and number of nodes.
    Healthy,
    /// quorlock with the same work and one client for all tasks.
    OneClient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtraContenders {
    None,
    FanOut,
    /// The same commands without a lock library: from tasks on tokio, and from a loop on one thread.
    FanOutAndBareLoop,
    /// rslock with a retry delay that suits short holds.
    EagerRslock,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    pub(crate) tasks: usize,
    /// The number of clients that the tasks share: one, or one per task.
    pub(crate) clients: usize,
    /// The number of worker processes, which share the tasks and clients evenly. If 0, all tasks run in this process.
    pub(crate) processes: usize,
    pub(crate) work: Work,
    pub(crate) fault: Fault,
    /// Multiplies `--slice-ms`, so that a slow contender has time for a few cycles.
    pub(crate) slice_factor: u32,
    /// An upper limit of `--rounds` for this scenario.
    pub(crate) rounds_max: usize,
    pub(crate) extra: ExtraContenders,
    pub(crate) base: Base,
}

impl Scenario {
    /// Returns true if the scenario differs from the first one only in the number of tasks.
    pub(crate) fn is_plain(&self) -> bool {
        self.nodes == PLAIN.nodes
            && self.base == PLAIN.base
            && self.work == PLAIN.work
            && self.fault == PLAIN.fault
    }
}

const PLAIN: Scenario = Scenario {
    name: "",
    nodes: 5,
    tasks: 1,
    clients: 1,
    processes: 0,
    work: Work::OwnKey,
    fault: Fault::None,
    slice_factor: 1,
    rounds_max: usize::MAX,
    extra: ExtraContenders::None,
    base: Base::Rslock,
};

const SLOW: Fault = Fault::Slow(Duration::from_millis(20));

const DISTANT_0_5_MS: Fault = Fault::Distant(Duration::from_micros(500));
const DISTANT_5_MS: Fault = Fault::Distant(Duration::from_millis(5));

const HOLD_1_MS: Work = Work::SharedKey { hold: Duration::from_millis(1) };

/// All scenarios, in the order of the table.
pub(crate) const SCENARIOS: [Scenario; 40] = [
    Scenario { name: "sequential", extra: ExtraContenders::FanOutAndBareLoop, ..PLAIN },
    Scenario { name: "8 tasks", tasks: 8, extra: ExtraContenders::FanOutAndBareLoop, ..PLAIN },
    Scenario { name: "64 tasks", tasks: 64, extra: ExtraContenders::FanOutAndBareLoop, ..PLAIN },
    Scenario { name: "512 tasks", tasks: 512, extra: ExtraContenders::FanOutAndBareLoop, ..PLAIN },
    Scenario {
        name: "0.5 ms, sequential",
        fault: DISTANT_0_5_MS,
        extra: ExtraContenders::FanOutAndBareLoop,
        ..PLAIN
    },
    Scenario {
        name: "0.5 ms, 64 tasks",
        tasks: 64,
        fault: DISTANT_0_5_MS,
        extra: ExtraContenders::FanOutAndBareLoop,
        ..PLAIN
    },
    Scenario {
        name: "5 ms, sequential",
        fault: DISTANT_5_MS,
        extra: ExtraContenders::FanOutAndBareLoop,
        ..PLAIN
    },
    Scenario {
        name: "5 ms, 64 tasks",
        tasks: 64,
        fault: DISTANT_5_MS,
        extra: ExtraContenders::FanOutAndBareLoop,
        ..PLAIN
    },
    Scenario { name: "4,096 tasks", tasks: 4096, ..PLAIN },
    Scenario { name: "1 node, 64 tasks", nodes: 1, tasks: 64, ..PLAIN },
    Scenario { name: "3 nodes, 64 tasks", nodes: 3, tasks: 64, ..PLAIN },
    Scenario { name: "7 nodes, 64 tasks", nodes: 7, tasks: 64, ..PLAIN },
    Scenario { name: "9 nodes, 64 tasks", nodes: 9, tasks: 64, ..PLAIN },
    Scenario { name: "extend, sequential", work: Work::Extend, ..PLAIN },
    Scenario { name: "extend, 64 tasks", tasks: 64, work: Work::Extend, ..PLAIN },
    Scenario { name: "1 killed, 64 tasks", tasks: 64, fault: Fault::Killed, ..PLAIN },
    Scenario {
        name: "1 hung, sequential",
        fault: Fault::Stopped(1),
        slice_factor: 3,
        rounds_max: 3,
        extra: ExtraContenders::FanOut,
        ..PLAIN
    },
    Scenario {
        name: "1 hung, 64 tasks, new client",
        tasks: 64,
        fault: Fault::StoppedBefore,
        slice_factor: 10,
        rounds_max: 1,
        ..PLAIN
    },
    Scenario { name: "1 key, 2 tasks, 1 ms hold", tasks: 2, ..SHARED },
    Scenario { name: "1 key, 8 tasks, 1 ms hold", tasks: 8, ..SHARED },
    Scenario { name: "1 key, 32 tasks, 1 ms hold", tasks: 32, ..SHARED },
    Scenario { name: "1 key, 8 clients, 1 ms hold", tasks: 8, clients: 8, ..SHARED },
    Scenario {
        name: "1 key, 8 processes, 1 ms hold",
        tasks: 8,
        clients: 8,
        processes: 8,
        ..SHARED
    },
    Scenario {
        name: "own: 1 key, 8 clients, 1 ms hold",
        tasks: 8,
        clients: 8,
        work: HOLD_1_MS,
        base: Base::OneClient,
        ..PLAIN
    },
    Scenario { name: "own: 1 killed, sequential", fault: Fault::Killed, ..OWN },
    Scenario { name: "own: 1 killed, 64 tasks", tasks: 64, fault: Fault::Killed, ..OWN },
    Scenario { name: "own: 1 hung, sequential", fault: Fault::Stopped(1), ..OWN },
    Scenario { name: "own: 1 hung, 64 tasks", tasks: 64, fault: Fault::Stopped(1), ..OWN },
    Scenario { name: "own: 2 hung, sequential", fault: Fault::Stopped(2), ..OWN },
    Scenario { name: "own: 2 hung, 64 tasks", tasks: 64, fault: Fault::Stopped(2), ..OWN },
    Scenario { name: "own: 1 slow by 20 ms, sequential", fault: SLOW, ..OWN },
    Scenario { name: "own: 1 slow by 20 ms, 64 tasks", tasks: 64, fault: SLOW, ..OWN },
    Scenario { name: "fenced, sequential", work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "fenced, 64 tasks", tasks: 64, work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "fenced, 512 tasks", tasks: 512, work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "set of 1, 64 tasks", tasks: 64, work: Work::Several(1), ..BESIDE_PLAIN },
    Scenario { name: "set of 4, sequential", work: Work::Several(4), ..BESIDE_PLAIN },
    Scenario { name: "set of 4, 64 tasks", tasks: 64, work: Work::Several(4), ..BESIDE_PLAIN },
    Scenario { name: "set of 16, sequential", work: Work::Several(16), ..BESIDE_PLAIN },
    Scenario { name: "set of 16, 64 tasks", tasks: 64, work: Work::Several(16), ..BESIDE_PLAIN },
];

/// The base of the scenarios in which many tasks use one key.
const SHARED: Scenario = Scenario { work: HOLD_1_MS, extra: ExtraContenders::EagerRslock, ..PLAIN };

/// Compares quorlock with and without a fault.
const OWN: Scenario = Scenario { base: Base::Healthy, ..PLAIN };

/// Compares a feature of quorlock with its plain lock.
const BESIDE_PLAIN: Scenario = Scenario { base: Base::Plain, ..PLAIN };
