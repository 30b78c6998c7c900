#![cfg_attr(docsrs, feature(doc_cfg))]
//! Distributed locks on N independent Redis or Valkey servers, using the [Redlock algorithm].
//!
//! # Types
//!
//! | type | role |
//! |---|---|
//! | [`Redlock`] | The client, which acquires locks and reports their status. Clones share connections. |
//! | [`Builder`], [`Config`] | Settings of a client: in code, or from a file or environment variables. |
//! | [`Acquire`] | Future that acquires a lock. Its methods set the options of this acquire. |
//! | [`Lease`] | A lock that this client holds. Dropping the lease releases the lock in the background. |
//! | [`LeaseRef`] | View of a lease for other tasks, with most of the lease's methods. |
//! | [`Semaphore`] | Limit on the number of holders. Each holder has one permit. |
//! | [`Election`], [`Leadership`] | Leader election, and the leadership of the elected candidate. |
//! | [`RwLock`] | Lock that either any number of readers or one writer hold. |
//! | [`FencingToken`] | Number that increases with each holder of a lock. Resources use it to reject stale writers. |
//! | [`AcquireError`], [`ExtendError`], [`ReleaseError`], [`UsingError`] | Error types, one for each operation. |
//! | [`Report`], [`NodeReport`] | The nodes' replies to one request. Errors and leases contain a report. |
//! | [`Status`], [`NodeInfo`], [`NodeCheck`] | Holder of a lock, state of a node, and unsafe settings of a node. |
//! | [`Observer`], [`event`] | Trait that receives events, for your own logs and metrics, and the events. |
//!
//! # Example
//!
//! ```
//! use quorlock::{AcquireError, Redlock, ReleaseOutcome};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
//!     .ttl(Duration::from_secs(10))
//!     .build()?; // checks the settings, without network I/O
//! # let redlock = quorlock_test::Nodes::start(3).client().build()?;
//!
//! // Acquires the lock, renews it while the closure runs, and releases it. If the lock is lost, the closure's future is
//! // dropped. The result is an error unless the lock was held until the end of the closure.
//! # let ship = async |_: u64| 2;
//! let parcels = redlock.using("orders/42", async |_lease| ship(42).await).await?;
//! println!("shipped {parcels} parcels");
//!
//! // The same by hand. Waits for at most five seconds. The lease is not renewed.
//! let lease = redlock.acquire("orders/42").wait(Duration::from_secs(5)).await?;
//! println!("locked for {:?}", lease.validity());
//! lease.extend(Duration::from_secs(30)).await?;
//! match lease.release().await? {
//!     ReleaseOutcome::Released => println!("held until now"),
//!     other => println!("another client may have held the lock, too: {other}"),
//! }
//!
//! // One attempt.
//! match redlock.try_acquire("orders/42").await {
//!     Ok(lease) => drop(lease), // released in the background
//!     Err(AcquireError::Contended { report, .. }) => println!("held by another client: {report}"),
//!     Err(AcquireError::NoQuorum { report }) => println!("too few nodes replied: {report}"),
//!     Err(other) => println!("{other}"),
//! }
//!
//! // Waits until every release is delivered.
//! redlock.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # More operations
//!
//! ```
//! use quorlock::ReleaseOutcome;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let nodes = quorlock_test::Nodes::start(3);
//! # let redlock = nodes.client().build()?;
//! // Several resources under one lease: all or none, without deadlocks.
//! let both = redlock.acquire_all(["account/7", "account/9"]).await?;
//! drop(both); // released in the background
//!
//! // A fencing token, for a resource that rejects lower numbers.
//! let fenced = redlock.acquire("account/7").fenced().await?;
//! println!("writing with token {}", fenced.token().ok_or("the lease is fenced")?);
//! drop(fenced);
//!
//! // Metadata that other clients see.
//! let lease = redlock.acquire("report").metadata("worker-7").await?;
//! println!("{}", redlock.status("report").await?); // held by worker-7 (need 2): …
//!
//! // A second guard of the same lease. The last guard releases the lock.
//! let guard = lease.reenter()?;
//! assert_eq!(guard.release().await?, ReleaseOutcome::StillHeld { guards: 1 });
//!
//! // Takes over the lock with the value of its lease. The previous lease is then lost.
//! let adopted = redlock.adopt("report", lease.value()).await?;
//!
//! // Releases the lease, but keeps the resource locked for another minute.
//! assert_eq!(adopted.release_after(Duration::from_secs(60)).await?, ReleaseOutcome::Released);
//!
//! // Deletes the lock, whoever holds it.
//! redlock.force_release("report").await?;
//! # redlock.close().await?;
//! # assert_eq!(nodes.count("report"), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | resource | Name to lock: any sequence of bytes. Its key is the [prefix](Builder::key_prefix) followed by the name. |
//! | node | One of the independent Redis or Valkey servers. |
//! | quorum | More than half of all nodes: floor(N / 2) + 1. |
//! | value | Random string stored under a lock's key, which identifies the attempt that acquired the lock. |
//! | TTL | Time after which the nodes delete a lock that was neither extended nor released. |
//! | validity | Time for which the holder may rely on the lock: TTL, minus elapsed time, minus drift allowance. |
//! | lease | A held lock together with its validity. |
//!
//! # Guides
//!
//! - [recipes](_docs::recipes): complete programs for common cases
//! - [configuration](_docs::configuration): all settings and their sources
//! - [platforms](_docs::platforms): operating systems, servers and features of this crate
//! - [operations](_docs::operations): running the nodes, and the meaning of each message
//! - [command](_docs::command): the `quorlock` command for scripts and operators
//! - [safety](_docs::safety): the guarantees, their conditions, and the tests that verify them
//! - [fencing](_docs::fencing): how resources reject stale writers
//! - [metrics](_docs::metrics): all metrics, and alert rules
//! - [`quorlock-test`](https://docs.rs/quorlock-test): a crate with nodes for tests of your own code
//! - [performance](_docs::performance): measurements
//! - [comparison](_docs::compare): other libraries
//! - [design](_docs::design): how the library works
//! - [format](_docs::format): keys and values on the nodes
//!
//! [Redlock algorithm]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

pub mod _docs;
#[cfg(feature = "blocking")]
pub mod blocking;
mod check;
mod client;
mod coordinator;
mod engine;
mod error;
mod lease;
mod node;
mod observe;
mod protocol;
mod random;
mod sync;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod test_util;
mod time;
mod transport;
mod wire;

pub use check::{ClockOffset, Finding, NodeCheck, Severity};
pub use client::{Acquire, Builder, Config, HeldLease, LockState, NodeInfo, NodeStatus};
pub use client::{Election, ElectionBuilder, Leader, Leaders, Leadership};
pub use client::{JobError, JobOutcome, Once, ScheduledJob, StartedJob};
pub use client::{Redlock, RestartGuard, RwLock, Semaphore, SemaphoreStatus, Status};
pub use client::{TryUsingError, UsingError};
pub use error::{AcquireError, ClientError, CloseError, ConfigError};
pub use error::{DowngradeError, ExtendError, ReenterError, ReleaseError};
pub use lease::{Ended, Lease, LeaseRef, ReleaseOutcome};
pub use node::{Credentials, NoRuntime};
pub use observe::event;
pub use observe::{FencingToken, ParseTokenError, TokenRangeError};
pub use observe::{Holder, NodeReport, NodeState, NodeVote, Observer, Report, VoteEligibility};
pub use protocol::{Loss, RetryPolicy};
#[cfg(feature = "rustls-0-23")]
pub use rustls;
pub use wire::{Fsync, NodeFailure, Persistence, Role};
