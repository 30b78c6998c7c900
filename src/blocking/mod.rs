//! Blocking client, for programs without an async runtime. It has the methods of the async client.
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
//! lease.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! Connections run on a dedicated thread. The client therefore renews leases and detects their loss
//! while the program does other work. Dropping the last handle of a client (a clone or a lease)
//! blocks until all pending releases are delivered. This takes at most one [connect
//! timeout](crate::Builder::connect_timeout), even if the DNS resolution of a node's address takes
//! longer.
//!
//! A thread that is polling an async task must not block. On such a thread, methods that block
//! return [`InsideRuntime`](Error::InsideRuntime) without waiting. If the method consumes a lease,
//! the lease is still released. [`Redlock::close`] and [`Lease::lost_within`] do not return this
//! error: they return the current state without waiting. The methods can block on threads of
//! `tokio::task::spawn_blocking`, and inside `tokio::task::block_in_place`.
//!
//! The client cannot detect one case in which its methods must not block: an `unconstrained` task
//! in `Runtime::block_on`, while other threads drive the runtime. In this case, the methods block.
//!
//! A forked child process does not have the client's thread. In the child, drop the inherited
//! client, which has no effect, and create a new client. (An inherited async client keeps working
//! in the child, on a runtime that the child creates.)

// Contains the thread that runs the client, and one wrapper for each async method. It adds no other
// operations.

/// Forwards settings to the async type's method of the same name, and refers to its documentation.
macro_rules! settings {
    ($of:ident: $($(#[$summary:meta])* $name:ident($($argument:ident: $type:ty)?);)*) => {$(
        $(#[$summary])*
        #[doc = ""]
        #[doc = concat!("See [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$name($($argument)?), ..self }
        }
    )*};
}

/// Methods that set the options of an acquire.
macro_rules! lock_settings {
    ($of:ident) => {
        settings! { $of:
            /// Sets how long a node keeps the lock unless the lease is extended or released.
            ttl(ttl: Duration);
            /// Sets the total time that an acquire may take, including all attempts.
            wait(wait: Duration);
            /// Waits for the lock without a time limit.
            wait_forever();
            /// Sets the policy for retries after a refused attempt.
            retry(policy: RetryPolicy);
            /// Limits the number of attempts.
            max_attempts(attempts: u32);
            /// Fails an acquire as soon as the holder's remaining ttl exceeds the remaining wait time.
            give_up_early();
            /// Waits for the full wait time, even if the client's settings enable `give_up_early`.
            without_give_up_early();
            /// Enables background renewal of the lease, for at most `max_hold`.
            auto_extend(max_hold: Duration);
            /// Enables background renewal of the lease, without a limit.
            auto_extend_forever();
            /// Disables background renewal that the client's settings enable.
            without_auto_extend();
            /// Keeps the resource locked for at least `time`, even if the lease is released earlier.
            at_least(time: Duration);
            /// Sets the text that is stored with the lock and shown in its status.
            metadata(metadata: impl Into<String>);
            /// Gives the lease a fencing token.
            fenced();
            /// Disables fencing tokens that the client's settings enable.
            without_fencing();
            /// Sets the class of the lock for events and metrics.
            class(class: &'static str);
        }
    };
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
