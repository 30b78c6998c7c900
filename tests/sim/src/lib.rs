//! Whole quorlock clients, as they ship, in a world of their own: from a seed comes everything that happens.
//!
//! - What is real: the library, all of it but for its sockets, its thread of alarms and its feature
//!   `blocking`, which needs threads; tokio's runtimes and channels; the redis crate.
//! - Simulated: nodes (the server model of `quorlock-test`, whose replies are compared with a real server's byte by
//!   byte), the network, every machine's clocks, processes, and the order in which tasks run.
//!
//! Each process has tokio runtimes of its own. They run on one thread, one after the other in an order that
//! is drawn from the seed, each until it has nothing to do; then the next event happens, and time goes on to
//! it. An executor of our own would be faster, but handles, spawning and the end of a runtime would be
//! copies; and with paused time each of several runtimes would go on to its own next timer.
//!
//! A run ends in four stages: faults; all is healed, and every client has every lock once more; all clients
//! are closed; nothing is left.

mod alone;
mod bystander;
mod call;
mod checker;
mod client;
mod clock;
mod closing;
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
mod large;
mod ledger;
mod machines;
mod many_waiters;
mod mishap;
mod mode;
mod network;
mod node;
mod order;
mod panics;
mod patience;
mod process;
mod readings;
mod remains;
mod restarts;
mod rule;
mod run;
mod scenario;
mod shared;
mod shrink;
mod single;
mod sleep;
mod standing;
mod steps;
mod stream;
mod sweep;
mod trace;
mod watchdog;
mod weather;
mod witness;
mod worker;
mod world;

pub use mode::Mode;
pub use rule::Rule;
pub use run::{Parts, RunResult, run};
pub use shrink::shrink;
pub use sweep::{Sweep, sweep};
pub use watchdog::watch;
