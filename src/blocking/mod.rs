//! The same verbs without async: for programs that have no runtime.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[cfg(feature = "test-util")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = quorlock::Redlock::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
//! #   .test_nodes(&quorlock::test_util::Nodes::start(3))
//! #   .node_timeout(Duration::from_secs(1))
//!     .build_blocking()?;
//! let lease = redlock.acquire("orders/42").wait(Duration::from_secs(5)).call()?;
//! println!("ours for {:?}", lease.validity());
//! lease.release()?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! Connections and deliveries run on a thread of their own, so leases are renewed, and their loss is
//! noticed, while the program does something else. The last handle of a client to be dropped (clone
//! or lease) waits until all releases are delivered, at most one
//! [connect timeout](crate::Builder::connect_timeout), also while a resolver searches for a node.
//!
//! A thread that is polling an async task must not wait: there, every verb refuses with
//! [`InsideRuntime`](Error::InsideRuntime) and does nothing but give up what it was called on. On a thread of
//! `tokio::task::spawn_blocking` and inside of `tokio::task::block_in_place` they work. Where nobody
//! can tell (an `unconstrained` task in `Runtime::block_on`, while other threads drive the runtime),
//! they wait.
//!
//! A process that was forked from one that had made such a client has not got that thread: make the
//! client anew there, and let the old one be dropped, which does nothing. (The async client works on in it, on a
//! runtime of its own.)

// Here live the thread that runs the client, and a wrapper of each verb. No verb is added here.

/// Hands settings on to the async builder of the same name.
macro_rules! settings {
    ($of:ident: $($name:ident($($argument:ident: $type:ty)?);)*) => {$(
        #[doc = concat!("See [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$name($($argument)?), ..self }
        }
    )*};
}

mod acquire;
mod background;
mod error;
mod lease;
mod profile;
mod redlock;

pub use acquire::Acquire;
pub use error::{Error, InsideRuntime};
pub use lease::Lease;
pub use profile::Profile;
pub use redlock::Redlock;
