//! Redlock's mutual exclusion, in every state that a few clients can reach with three nodes.
//!
//! A state is the nodes' keys, the clients' rounds and what is under way between them; a step is a
//! tick of time or one event. All states up to the bounds of a [`Setting`] are visited, breadth
//! first, and in each of them no two clients may believe that they hold the lock. What a client
//! decides is decided by the library's own `protocol`, which is included here as it stands.

// The protocol's tests and examples run in its own crate, so this crate is empty in tests.
#![cfg(not(any(test, doctest)))]

// The protocol imports nothing of the crate, so it can be asked without being public.
#[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
#[path = "../../../src/protocol/mod.rs"]
mod protocol;

mod action;
mod decision;
mod line;
mod memory;
mod node;
mod rehearsal;
mod search;
mod seen;
mod setting;
mod state;
mod suite;
mod words;

pub use rehearsal::rehearse;
pub use setting::{CountingRule, Crash, GuardPromises, Setting};
pub use suite::{SearchReport, guards, hand_over, safe_settings, search, unsafe_settings};

/// N.
const NODES: usize = 3;
