//! Checks Redlock's mutual exclusion in every state that a few clients can reach with three nodes.
//!
//! A state consists of the nodes' keys, the clients' rounds and the messages between clients and
//! nodes. A step is a tick of time or one event. The search visits all states within the bounds of
//! a [`Setting`], breadth first. In no state may two clients believe that they hold the lock. The
//! library's own `protocol` module, included here unchanged, makes the clients' decisions.
//!
//! A separate, smaller search compares two designs of a [`Semaphore`].

// The protocol's tests and examples run in the `quorlock` crate, so this crate is empty in test
// builds.
#![cfg(not(any(test, doctest)))]

// The protocol does not depend on the rest of its crate, so it is included by path. No public API
// is needed.
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
mod semaphore;
mod setting;
mod state;
mod suite;
mod trace_text;

pub use rebuild::check_rebuilt_quarantine;
pub use semaphore::{Semaphore, safe_semaphores, search_semaphore, unsafe_semaphores};
pub use setting::{CountingRule, Crash, GuardPromises, Setting};
pub use suite::{SearchReport, guards, hand_over, safe_settings, search, unsafe_settings};

const NODES: usize = 3;
