//! From the wish for a lock to the round that won it.
//!
//! Here live attempts, retries, and the queues of those who wait in this process. No lease: what was won
//! is handed up. No command: those are in [`wire`](crate::wire).

mod adoption;
mod attempt;
mod course;
mod driver;
mod observed;
mod permits;
mod queue;
mod queue_slot;
mod request;
mod sets;
mod wait_queue;
mod waiter;

pub(crate) use adoption::{Adoption, PreviousLease};
pub(crate) use driver::Driver;
pub(crate) use request::{AcquireFailure, AcquireRequest, Acquired};
pub(crate) use wait_queue::WaitQueues;
pub(crate) use waiter::AttemptGuard;
