//! What is measured: the list of situations, one row group of the table each.

use std::time::Duration;

/// What happens to one of the five nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Its process is killed after the clients have warmed up.
    Killed,
    /// Its process is stopped (SIGSTOP) after the clients have warmed up.
    Hung,
    /// Its process is stopped before the clients exist; they do not warm up.
    HungBefore,
}

/// What a task does in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Locks and unlocks a key of its own; the latency is that of the whole cycle.
    OwnKey,
    /// Locks one key that all tasks want, holds it, unlocks it; the latency is that of the wait.
    SharedKey {
        /// How long it sleeps while it holds the lock (tokio's timer: 1 ms becomes 1 to 2 ms).
        hold: Duration,
    },
}

/// Who else takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Third {
    /// Nobody.
    Nobody,
    /// The raw fan-out, where it makes sense.
    Floor,
    /// rslock with its retry delay tuned for short holds.
    EagerRslock,
}

/// One situation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name in the table, and what `--only` looks for.
    pub(crate) name: &'static str,
    /// How many tasks run at once.
    pub(crate) tasks: usize,
    /// How many clients they share; 1, or one for each task.
    pub(crate) clients: usize,
    /// What each task does.
    pub(crate) work: Work,
    /// What happens to one node.
    pub(crate) fault: Fault,
    /// How many times longer than `--slice-ms` a slice is: a slow contender needs time for a few cycles.
    pub(crate) slice_factor: u32,
    /// At most so many rounds, however many `--rounds` asks for.
    pub(crate) rounds_max: usize,
    /// Who runs beside the two libraries.
    pub(crate) third: Third,
}

/// What the scenarios have in common.
const PLAIN: Scenario = Scenario {
    name: "",
    tasks: 1,
    clients: 1,
    work: Work::OwnKey,
    fault: Fault::None,
    slice_factor: 1,
    rounds_max: usize::MAX,
    third: Third::Nobody,
};

const HOLD_1_MS: Work = Work::SharedKey { hold: Duration::from_millis(1) };

/// All scenarios, in the order of the table.
pub(crate) const SCENARIOS: [Scenario; 8] = [
    Scenario { name: "sequential", third: Third::Floor, ..PLAIN },
    Scenario { name: "64 tasks", tasks: 64, third: Third::Floor, ..PLAIN },
    Scenario { name: "512 tasks", tasks: 512, third: Third::Floor, ..PLAIN },
    Scenario { name: "1 killed, 64 tasks", tasks: 64, fault: Fault::Killed, ..PLAIN },
    Scenario {
        name: "1 hung, sequential",
        fault: Fault::Hung,
        slice_factor: 3,
        rounds_max: 3,
        third: Third::Floor,
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
    Scenario {
        name: "1 key, 8 tasks, 1 ms hold",
        tasks: 8,
        work: HOLD_1_MS,
        third: Third::EagerRslock,
        ..PLAIN
    },
    Scenario {
        name: "1 key, 8 clients, 1 ms hold",
        tasks: 8,
        clients: 8,
        work: HOLD_1_MS,
        third: Third::EagerRslock,
        ..PLAIN
    },
];
