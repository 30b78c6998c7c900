//! Whole quorlock clients, as they ship, in a world of their own: from a seed comes everything that happens.

mod call;
mod checker;
mod client;
mod clock;
mod core;
mod dice;
mod event;
mod executor;
mod fault;
mod gate;
mod healing;
mod mode;
mod network;
mod node;
mod process;
mod rule;
mod run;
mod scenario;
mod shrink;
mod sleep;
mod stream;
mod sweep;
mod trace;
mod worker;
mod world;

pub use mode::Mode;
pub use rule::Rule;
pub use run::{Outcome, Parts, run};
pub use shrink::shrink;
pub use sweep::{Sweep, sweep};
