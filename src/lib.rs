#![cfg_attr(docsrs, feature(doc_cfg))]
//! Distributed locks on N independent Redis or Valkey servers, with the [Redlock algorithm].
//!
//! # Types
//!
//! | type | role |
//! |---|---|
//! | [`Redlock`] | The client. It acquires locks and reports their status. Clones share connections. |
//! | [`Builder`], [`Config`] | Settings of a client: in code, or from a file and environment variables. |
//! | [`Profile`] | A client with other settings for one kind of lock, on the same connections. |
//! | [`Acquire`] | A future that acquires a lock, and its options. |
//! | [`Lease`] | A lock that is held. Dropping it releases the lock in the background. |
//! | [`LeaseRef`] | A view of a lease for other tasks, with most of its methods. |
//! | [`FencingToken`] | A number that grows from holder to holder, for resources that reject stale writers. |
//! | [`AcquireError`], [`ExtendError`], [`ReleaseError`], [`UsingError`] | One error type for each operation. |
//! | [`Report`], [`NodeReport`] | The reply of each node, in errors and leases. |
//! | [`Status`], [`NodeInfo`], [`NodeCheck`] | The holder of a lock, the state of a node, and its unsafe settings. |
//! | [`Observer`] | Receives typed events, for logs and metrics of your own. |
//!
//! # Example
//!
//! ```
//! use quorlock::{AcquireError, Redlock};
//! use std::time::Duration;
//!
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
//! #   .test_nodes(&quorlock::test_util::Nodes::start(3))
//!     .ttl(Duration::from_secs(10))
//!     .build()?; // checks the settings, without network I/O
//!
//! // Waits for at most five seconds.
//! let lease = redlock.acquire("orders/42").wait(Duration::from_secs(5)).await?;
//! println!("locked for {:?}", lease.validity());
//! lease.extend(Duration::from_secs(30)).await?;
//! lease.release().await?;
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
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! # More operations
//!
//! ```
//! use quorlock::ReleaseOutcome;
//! use std::time::Duration;
//!
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let nodes = quorlock::test_util::Nodes::start(3);
//! # let redlock = nodes.client().build()?;
//! // Several resources under one lease: all or none, without deadlocks.
//! let both = redlock.acquire_all(["account/7", "account/9"]).await?;
//! both.release().await?;
//!
//! // A fencing token, for a resource that rejects lower numbers.
//! let fenced = redlock.acquire("account/7").fenced().await?;
//! println!("writing with token {}", fenced.token().ok_or("the lease is fenced")?);
//! fenced.release().await?;
//!
//! // Metadata that other clients see.
//! let lease = redlock.acquire("report").metadata("worker-7").await?;
//! println!("{}", redlock.status("report").await?); // held by worker-7 (need 2): …
//!
//! // A second guard of the same lease. The last guard releases the lock.
//! let guard = lease.reenter()?;
//! assert_eq!(guard.release().await?, ReleaseOutcome::StillHeld { guards: 1 });
//!
//! // Hands the lock to another holder, which knows the value of the lease. The first lease is then lost.
//! let adopted = redlock.adopt("report", lease.value()).await?;
//!
//! // Releases the lease, but keeps the resource locked for another minute.
//! adopted.release_after(Duration::from_secs(60)).await?;
//!
//! // Deletes the lock, whoever holds it.
//! redlock.force_release("report").await?;
//! # redlock.close().await?;
//! # assert_eq!(nodes.count("report"), 0);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | resource | The name that is locked: any bytes. Its key is the [prefix](Builder::key_prefix) and this name. |
//! | node | One independent Redis or Valkey server. |
//! | quorum | More than half of all nodes: floor(N / 2) + 1. |
//! | value | The random string under a key that identifies one attempt. |
//! | ttl | How long the nodes keep a lock that is not extended or released. |
//! | validity | How long the holder may rely on the lock: ttl, minus elapsed time, minus allowance for clock drift. |
//! | lease | A lock that is held, with its validity. |
//!
//! # Guides
//!
//! - [recipes](_docs::recipes): complete programs for common cases
//! - [configuration](_docs::configuration): all settings, and where they can come from
//! - [platforms](_docs::platforms): operating systems, servers and features of this crate
//! - [operations](_docs::operations): running the nodes, and what each message means
//! - [command](_docs::command): the program `quorlock` for scripts and operators
//! - [safety](_docs::safety): guarantees, their conditions and their tests
//! - [fencing](_docs::fencing): resources that reject stale writers
//! - [metrics](_docs::metrics) and alert rules
#![cfg_attr(feature = "test-util", doc = "- [testing](_docs::testing): tests of your own code")]
//! - [performance](_docs::performance), measured
//! - [comparison](_docs::compare) with other libraries
//! - [design](_docs::design): how it works; [format](_docs::format): keys and values on the nodes
//!
//! [Redlock algorithm]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

pub mod _docs;
mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod check;
mod client;
mod error;
mod lease;
mod node;
mod observe;
mod protocol;
mod random;
mod round;
#[cfg(feature = "test-util")]
mod server_model;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod time;
mod transport;
mod wire;

pub use check::{ClockOffset, Disagreement, Finding, NodeCheck, Severity};
pub use client::{Acquire, Builder, Config, HeldLease, LockState, NodeInfo, NodeStatus, Profile};
pub use client::{Redlock, Status, TryUsingError, UsingError};
pub use error::{AcquireError, ClientError, CloseError, ConfigError};
pub use error::{ExtendError, ReenterError, ReleaseError};
pub use lease::{Ended, Lease, LeaseRef, ReleaseOutcome};
pub use node::{Credentials, NodeState, RestartGuard, RuntimeDriver, VoteEligibility};
pub use observe::{AcquireBegun, AcquireEnded, AcquireOutcome, AttemptEnded, AttemptOutcome};
pub use observe::{Asked, ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswer};
pub use observe::{ExtendBegun, ExtendEnded, ExtendOutcome, HandedOver, LeaseLost, Lock};
pub use observe::{FencingToken, ParseTokenError, TokenRangeError};
pub use observe::{Holder, NodeReport, NodeVote, Report};
pub use observe::{NodeAnswered, NodeChanged, NodeStanding, Observer, ReleaseBegun, ReleaseEnded};
pub use observe::{ReleaseResult, ReleasesOwed, RenewalFailing, Renewed, Resources};
pub use observe::{WaitBegun, WaitEnded};
pub use protocol::{Loss, RetryPolicy};
#[cfg(feature = "redis-1")]
pub use redis;
pub use wire::{Fsync, NodeFailure, Persistence, Role};
