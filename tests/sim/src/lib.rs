//! Simulation of complete quorlock clients, as shipped. A seed determines everything that happens
//! in a run.
//!
//! - Real: the library, except for its sockets, its timer thread and its feature `blocking`, which
//!   needs threads; the runtimes and channels of tokio; the `redis` crate.
//! - Simulated: nodes (the server model of `quorlock-test`, whose replies are compared with a real
//!   server's byte by byte), the network, the clocks of all machines, processes, and the order in
//!   which tasks run.
//!
//! Each process has its own tokio runtimes. They run on one thread, in an order that is drawn from
//! the seed, each until it has no more work. Then time advances to the next event. A custom
//! executor would be faster, but handles, spawning and the shutdown of runtimes would be copies.
//! With paused time, each of several runtimes would advance to its own next timer.
//!
//! A run has four stages: faults; after all faults have ended, every client acquires every lock
//! once; all clients are closed; the remaining keys, tasks and alarms are checked.

mod bounds;
mod bystander;
mod call;
mod checker;
mod client;
mod clock;
mod closing;
mod counter_life;
mod dice;
mod event;
mod executor;
mod failover;
mod fairness;
mod fault;
mod fencing;
mod finale;
mod gate;
mod healing;
mod holder;
mod instant_fault;
mod large;
mod lease_checks;
mod ledger;
mod leftovers;
mod machines;
mod many_waiters;
mod mode;
mod network;
mod node;
mod order;
mod panics;
mod process;
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
mod weather;
mod worker;
mod world;

pub use mode::Mode;
pub use rule::Rule;
pub use run::{Parts, RunResult, run};
pub use shrink::shrink;
pub use sweep::{Sweep, sweep};
pub use watchdog::watch;
