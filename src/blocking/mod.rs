//! Blocking API: the methods of the async client, for programs without a runtime.
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
//! Connections run on a dedicated thread. Leases are therefore renewed, and their loss is detected,
//! while the program does other work. Dropping the last handle of a client (a clone or a lease)
//! waits until all releases are delivered. The wait takes at most one [connect
//! timeout](crate::Builder::connect_timeout), even during DNS resolution of a node's address.
//!
//! A thread that is polling an async task must not block. On such a thread, methods that block
//! return [`InsideRuntime`](Error::InsideRuntime) without waiting; a consumed lease is still
//! released. [`Redlock::close`] and [`Lease::lost_within`] have no such error: they return what is
//! known without waiting. Blocking works on threads of `tokio::task::spawn_blocking`, and inside
//! `tokio::task::block_in_place`.
//!
//! The methods block in one case that cannot be detected: inside an `unconstrained` task in
//! `Runtime::block_on`, while other threads drive the runtime.
//!
//! A forked child process does not have the client's thread. Create a new client in the child, and
//! drop the inherited one; the drop has no effect. (An inherited async client keeps working in the
//! child, on a runtime that the child creates.)

// Contains the thread that runs the client, and one wrapper for each async method. It adds no other
// operations.

/// Forwards settings to the async type's method of the same name.
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
