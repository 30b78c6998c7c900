//! Checks Redlock's mutual exclusion in every state that a few clients can reach with three nodes.
//!
//! A state consists of the nodes' keys, the clients' rounds and the messages between them. A step
//! is a tick of time or one event. The search visits all states within the bounds of a [`Setting`],
//! breadth first. In no state may two clients believe that they hold the lock. The library's own
//! `protocol` module, included here unchanged, makes the clients' decisions.

// The protocol's tests and examples run in its own crate, so this crate is empty in test builds.
#![cfg(not(any(test, doctest)))]

// The protocol is independent of its crate, so including it by path needs no public API.
#[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
#[path = "../../../src/protocol/mod.rs"]
mod protocol;

mod action;
mod channel;
mod decision;
mod memory;
mod node;
mod rebuild;
mod search;
mod seen;
mod setting;
mod state;
mod suite;
mod words;

pub use rebuild::check_rebuilt_quarantine;
pub use setting::{CountingRule, Crash, GuardPromises, Setting};
pub use suite::{SearchReport, guards, hand_over, safe_settings, search, unsafe_settings};

/// Number of nodes.
const NODES: usize = 3;
