//! From the wish for a lock to the round that won it.
//!
//! Here live attempts, retries, and the queues of those who wait in this process. No lease: what was won
//! is handed up. No command: those are in [`wire`](crate::wire).

mod attempt;
mod driver;
mod queue;
mod wait_queue;
mod waiter;

pub(crate) use driver::{AcquireFailure, AcquireRequest, Acquired, Driver};
pub(crate) use wait_queue::WaitQueues;
pub(crate) use waiter::AttemptGuard;
