//! Simulates complete quorlock clients, as shipped. The seed of a run determines all of its events.
//! - Real: the library, except for its sockets, its timer thread and its feature `blocking`, which
//!   needs threads; the runtimes and channels of tokio; the `redis` crate.
//! - Simulated: nodes, the network, the clocks of all machines, processes, and the order in which
//!   tasks run. A node is the server model of `quorlock-test`, whose replies are compared with a
//!   real server's byte by byte.
//!
//! Each process has its own tokio runtimes. All runtimes share one thread. They run in an order
//! drawn from the seed, and each runs until it has no more work. Then time advances to the next
//! event. A custom executor would be faster, but would have to copy tokio's handles, spawning and
//! shutdown. tokio's paused time is not used, because each runtime would advance to its own next
//! timer.
//!
//! A run has four stages. First, faults occur. After all faults have ended, every client acquires
//! every lock once. Then all clients are closed. Finally, the run checks the remaining keys, tasks
//! and alarms.

mod bounds;
mod bystander;
mod call;
mod checker;
mod client;
mod clock;
mod closing;
mod cool_downs;
mod counter_life;
mod counts;
mod dice;
mod event;
mod executor;
mod failover;
mod fairness;
mod fault;
mod fencing;
mod finale;
mod floors;
mod gate;
mod healing;
mod holder;
mod instant_fault;
mod jobs;
mod large;
mod lease_checks;
mod ledger;
mod leftovers;
mod machines;
mod many_waiters;
mod mode;
mod network;
mod network_quality;
mod node;
mod order;
mod panics;
mod permits;
mod process;
mod reader_tokens;
mod readers;
mod readings;
mod restarts;
mod rule;
mod run;
mod scenario;
mod shared;
mod shrink;
mod single;
mod sleep;
mod solo;
mod steps;
mod stream;
mod sweep;
mod trace;
mod watchdog;
mod worker;
mod world;

pub use counts::{Condition, Counts, Situation};
pub use mode::Mode;
pub use rule::Rule;
pub use run::{Parts, RunResult, run};
pub use shrink::shrink;
pub use sweep::{Sweep, sweep};
pub use watchdog::watch;
