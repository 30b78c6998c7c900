//! Blocking client with the methods of the async client, for programs without an async runtime.
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = quorlock::Redlock::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
//!     .build_blocking()?;
//! # let builder = quorlock_test::Nodes::start(3).client().node_timeout(Duration::from_secs(1));
//! # let redlock = builder.build_blocking()?;
//! let lease = redlock.acquire("orders/42").wait(Duration::from_secs(5)).call()?;
//! println!("ours for {:?}", lease.validity());
//! println!("{}", lease.release()?); // "released", unless the lease had ended before
//! # Ok(())
//! # }
//! ```
//!
//! Connections run in the background. If the program does not use tokio, they run on a thread of
//! the library. The client therefore renews leases and detects their loss while the program does
//! other work.
//!
//! The handles of a client are its clones and leases. Dropping the last handle closes the client,
//! and blocks until all pending releases are delivered, for at most one [connect
//! timeout](crate::Builder::connect_timeout). On a thread that is polling an async task, dropping
//! the last handle does not block.
//!
//! A thread that is polling an async task must not block. On such a thread, methods that block
//! return [`InsideRuntime`](Error::InsideRuntime) without waiting. If the method consumes a lease,
//! the lease is still released. [`Redlock::close`] and [`Lease::lost_within`] do not return this
//! error: they return the current state without waiting. Blocking methods can be called on threads
//! of `tokio::task::spawn_blocking`, and inside `tokio::task::block_in_place`.
//!
//! The client cannot detect one case in which its methods must not block: an `unconstrained` task
//! in `Runtime::block_on`, while other threads drive the runtime. In this case, the methods block
//! the task.

// Contains one wrapper for each async method, and no other operations.

mod acquire;
mod election;
mod error;
mod job;
mod lease;
mod redlock;
mod rw_lock;
mod semaphore;
mod waiting;

pub use acquire::Acquire;
pub use election::{Election, ElectionBuilder, Leaders, Leadership};
pub use error::{Error, InsideRuntime};
pub use job::{Once, ScheduledJob};
pub use lease::Lease;
pub use redlock::Redlock;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
