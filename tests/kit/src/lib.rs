//! Real `redis-server` processes and a faulty TCP proxy, for tests, examples and benchmarks.
//!
//! ```
//! use std::time::Duration;
//!
//! let cluster = kit::Cluster::start(3);
//! let proxy = kit::Proxy::start(cluster[0].addr());
//! proxy.hold(kit::Direction::Replies); // commands run, but their replies are withheld
//! cluster[1].stop(); // SIGSTOP: accepts connections, sends no replies
//! cluster[2].kill(); // SIGKILL: refuses connections
//! cluster[2].restart(); // the same port; empty, as it was not durable
//! kit::eventually(Duration::from_secs(5), "no key is left", || cluster.is_empty());
//! ```
//!
//! - [`Server`]: one `redis-server` process with its own port and directory. [`ServerBuilder`] has
//!   the settings.
//! - [`Cluster`]: several independent servers, started in parallel.
//! - [`Proxy`]: a TCP proxy that delays, withholds, discards, cuts and resets data, by
//!   [`Direction`].
//! - [`Child`]: a process that a test starts, such as a client of the servers.
//! - [`Clock`]: the wall clock of one server, which can drift and jump.
//! - [`Rerun`]: the running program, started again in another process.
//! - [`forked`]: work in a process that is forked from this one.
//! - [`eventually`]: polls a condition, so that no test needs to sleep.
//! - [`unless_stalled`]: repeats a check that failed because the machine was busy. [`Gauge`] measures
//!   that.
//!
//! All functions are synchronous and can be used with any async runtime. A call usually blocks for
//! microseconds. Starting, stopping and restarting a process takes milliseconds (at most 20 s), and
//! inspecting a server takes at most 5 s. All methods take `&self`, so one thread can inject faults
//! while others work. The kit is a test tool: it panics with a message instead of returning errors.
//!
//! # Requirements
//!
//! Linux or macOS, `sh`, and Redis 6.2 or later (or Valkey): `redis-server` on the `PATH`, or the
//! program in the environment variable `REDIS_SERVER`. Neither root nor Docker is needed, and
//! concurrent test runs do not disturb each other. [`ServerBuilder::clock`] also requires 64-bit
//! Linux and a C compiler.
//!
//! # Cleanup
//!
//! Dropping a [`Server`] or a [`Child`] kills its process and removes its directory. A test process
//! may end without drops, because it aborted, called `exit`, or was killed with SIGKILL. In this
//! case, a small `sh` process, the reaper, notices the end of the test process. The reaper kills the
//! remaining processes, including stopped ones, and removes their directories. The kit only touches
//! processes and directories that it created.

#![allow(
    clippy::missing_panics_doc,
    reason = "panics on system errors are not documented one by one"
)]

mod builder;
mod child;
mod clock;
mod cluster;
mod connection;
mod eventually;
mod flow;
mod fork;
mod frames;
mod gauge;
mod inspect;
mod port;
mod preload;
mod process;
mod proxy;
mod reaper;
mod relay;
mod rerun;
mod scratch;
mod server;

pub use builder::{ServerBuilder, TlsFiles};
pub use child::{Child, Pipes};
pub use clock::Clock;
pub use cluster::Cluster;
pub use eventually::eventually;
pub use fork::forked;
pub use gauge::{Gauge, unless_stalled};
pub use proxy::{Direction, Proxy};
pub use rerun::Rerun;
pub use server::Server;
