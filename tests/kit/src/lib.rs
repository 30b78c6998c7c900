//! Real `redis-server` processes and a faulty TCP proxy, for tests, examples and benchmarks.
//!
//! ```
//! use std::time::Duration;
//!
//! let cluster = kit::Cluster::start(3);
//! let proxy = kit::Proxy::start(cluster[0].addr());
//! proxy.hold(kit::Direction::Replies); // commands run, their replies are withheld
//! cluster[1].stop(); // SIGSTOP: accepts connections, answers nothing
//! cluster[2].kill(); // SIGKILL: refuses connections
//! cluster[2].restart(); // the same port; empty, as it was not durable
//! kit::eventually(Duration::from_secs(5), "no key is left", || cluster.is_empty());
//! ```
//!
//! - [`Server`] is one `redis-server` process on a free port with a directory of its own;
//!   [`ServerBuilder`] sets it up.
//! - [`Cluster`] is several independent servers, started in parallel.
//! - [`Proxy`] stands before a server and delays, withholds, loses, cuts and resets what passes, by
//!   [`Direction`].
//! - [`Child`] is a process of the caller's own, such as a client of the servers.
//! - [`Clock`] is the wall clock of one server, which drifts and jumps as a test wants it.
//! - [`Rerun`] is the running program, run again in a process of its own.
//! - [`forked`] does something in a process that is forked from this one.
//! - [`eventually`] polls a condition, so that no test needs to sleep.
//!
//! Everything is synchronous and can be used from any async runtime; a call blocks for
//! microseconds, except those which start, stop or restart a process (milliseconds, bounded by
//! 20 s) and those which look inside a server (bounded by 5 s). All methods take `&self`, so that
//! one thread may inject faults while others work. The kit is a test tool: it panics, with a
//! message, instead of returning errors.
//!
//! # What it needs
//!
//! Linux or macOS, `sh`, and Redis 6.2 or later (or Valkey): `redis-server` on the `PATH`, or the
//! program named by the environment variable `REDIS_SERVER`. Neither root nor Docker is needed, and
//! test runs do not disturb each other. Only [`ServerBuilder::clock`] needs more: 64-bit Linux and
//! a C compiler.
//!
//! # What it leaves behind
//!
//! Nothing. Dropping a [`Server`] or a [`Child`] kills its process and removes its directory. A test
//! process that cannot drop (it aborted, called `exit`, or was killed with SIGKILL) is cleaned up
//! after by a small `sh` process, the reaper, which sees the test process end and then kills its
//! processes, also stopped ones, and removes their directories. Only processes and directories which the kit itself
//! made are ever touched, the processes by their id.

#![allow(
    clippy::missing_panics_doc,
    reason = "panics because the system refuses something are not documented one by one"
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
pub use proxy::{Direction, Proxy};
pub use rerun::Rerun;
pub use server::Server;
