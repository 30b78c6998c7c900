//! What is measured: the list of situations, one row group of the table each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens to some of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// The process of one is killed after the clients have warmed up.
    Killed,
    /// The processes of so many are stopped (SIGSTOP) after the clients have warmed up.
    Hung(usize),
    /// The process of one is stopped before the clients exist; they do not warm up.
    HungBefore,
    /// What one answers comes so much later, from when the clients have warmed up.
    Slow(Duration),
}

/// What a task does in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Locks and unlocks a key of its own; the latency is that of the whole cycle.
    OwnKey,
    /// Locks one key that all tasks want, holds it, unlocks it; the latency is that of the wait.
    SharedKey {
        /// How long it sleeps while it holds the lock (tokio's timer: 1 ms becomes 1 to 2 ms).
        hold: Duration,
    },
    /// Extends a lock of its own again and again; the latency is that of one extension.
    Extend,
    /// As with a key of its own, with a fencing token.
    Fenced,
    /// Locks and unlocks so many keys of its own at once.
    Several(usize),
}

impl Work {
    /// True if it is done by scripts alone, which run what others send by itself. One key needs none to be set.
    pub(crate) fn is_scripted(self) -> bool {
        matches!(self, Self::Extend | Self::Fenced | Self::Several(2..))
    }
}

/// What the figures are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// rslock, doing the same.
    Rslock,
    /// quorlock, locking and unlocking a key for each task.
    Plain,
    /// quorlock, doing the same on as many nodes that nothing happens to.
    Healthy,
    /// quorlock, doing the same with one client for all tasks.
    OneClient,
}

/// Who else takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Third {
    /// Nobody.
    Nobody,
    /// The raw fan-out.
    FanOut,
    /// The raw fan-out, and a loop without tasks.
    Floors,
    /// rslock with its retry delay tuned for short holds.
    EagerRslock,
}

/// One situation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name in the table, and what `--only` looks for.
    pub(crate) name: &'static str,
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// How many tasks run at once.
    pub(crate) tasks: usize,
    /// How many clients they share; 1, or one for each task.
    pub(crate) clients: usize,
    /// How many processes of their own share tasks and clients evenly; 0 if all are in this one.
    pub(crate) processes: usize,
    /// What each task does.
    pub(crate) work: Work,
    /// What happens to the nodes.
    pub(crate) fault: Fault,
    /// How many times longer than `--slice-ms` a slice is: a slow contender needs time for a few cycles.
    pub(crate) slice_factor: u32,
    /// At most so many rounds, however many `--rounds` asks for.
    pub(crate) rounds_max: usize,
    /// Who runs beside the two libraries.
    pub(crate) third: Third,
    /// What it is compared with.
    pub(crate) base: Base,
}

impl Scenario {
    /// True if it differs from the first by nothing but how many tasks there are.
    pub(crate) fn is_plain(&self) -> bool {
        self.nodes == PLAIN.nodes
            && self.base == PLAIN.base
            && self.work == PLAIN.work
            && self.fault == PLAIN.fault
    }
}

/// What the scenarios have in common.
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
    third: Third::Nobody,
    base: Base::Rslock,
};

/// How much later a slow node answers.
const LATE: Fault = Fault::Slow(Duration::from_millis(20));

const HOLD_1_MS: Work = Work::SharedKey { hold: Duration::from_millis(1) };

/// All scenarios, in the order of the table.
pub(crate) const SCENARIOS: [Scenario; 36] = [
    Scenario { name: "sequential", third: Third::Floors, ..PLAIN },
    Scenario { name: "8 tasks", tasks: 8, third: Third::Floors, ..PLAIN },
    Scenario { name: "64 tasks", tasks: 64, third: Third::Floors, ..PLAIN },
    Scenario { name: "512 tasks", tasks: 512, third: Third::Floors, ..PLAIN },
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
        fault: Fault::Hung(1),
        slice_factor: 3,
        rounds_max: 3,
        third: Third::FanOut,
        ..PLAIN
    },
    Scenario {
        name: "1 hung, 64 tasks, new client",
        tasks: 64,
        fault: Fault::HungBefore,
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
    Scenario { name: "own: 1 hung, sequential", fault: Fault::Hung(1), ..OWN },
    Scenario { name: "own: 1 hung, 64 tasks", tasks: 64, fault: Fault::Hung(1), ..OWN },
    Scenario { name: "own: 2 hung, sequential", fault: Fault::Hung(2), ..OWN },
    Scenario { name: "own: 2 hung, 64 tasks", tasks: 64, fault: Fault::Hung(2), ..OWN },
    Scenario { name: "own: 1 slow by 20 ms, sequential", fault: LATE, ..OWN },
    Scenario { name: "own: 1 slow by 20 ms, 64 tasks", tasks: 64, fault: LATE, ..OWN },
    Scenario { name: "fenced, sequential", work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "fenced, 64 tasks", tasks: 64, work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "fenced, 512 tasks", tasks: 512, work: Work::Fenced, ..BESIDE_PLAIN },
    Scenario { name: "set of 1, 64 tasks", tasks: 64, work: Work::Several(1), ..BESIDE_PLAIN },
    Scenario { name: "set of 4, sequential", work: Work::Several(4), ..BESIDE_PLAIN },
    Scenario { name: "set of 4, 64 tasks", tasks: 64, work: Work::Several(4), ..BESIDE_PLAIN },
    Scenario { name: "set of 16, sequential", work: Work::Several(16), ..BESIDE_PLAIN },
    Scenario { name: "set of 16, 64 tasks", tasks: 64, work: Work::Several(16), ..BESIDE_PLAIN },
];

/// Many want one key.
const SHARED: Scenario = Scenario { work: HOLD_1_MS, third: Third::EagerRslock, ..PLAIN };

/// What a fault costs this library.
const OWN: Scenario = Scenario { base: Base::Healthy, ..PLAIN };

/// What more costs than a plain lock.
const BESIDE_PLAIN: Scenario = Scenario { base: Base::Plain, ..PLAIN };
