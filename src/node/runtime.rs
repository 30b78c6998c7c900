//! Detection of tokio runtimes that cannot run a client's tasks.

use crate::sync::lock;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
#[cfg(feature = "test-util")]
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::{Handle, Id};

/// A driver of a tokio runtime. A runtime has only the drivers that its builder enables.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Driver {
    Io,
    #[cfg(feature = "test-util")]
    Time,
}

/// Reason why no runtime can serve a client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoRuntime {
    /// The runtime was shut down. A client that was built with [`Builder::runtime`](crate::Builder::runtime) uses no
    /// other runtime.
    #[error("the tokio runtime was shut down")]
    ShutDown,
    /// The runtime that was set with [`Builder::runtime`](crate::Builder::runtime) was built without `enable_all()`
    /// or `enable_io()`.
    #[error("the runtime of Builder::runtime() has no I/O driver: build it with enable_all()")]
    MissingDriver,
    /// The system refused to start a thread, or to open a descriptor, that the client needs. The next call tries again.
    #[error("the system refused a thread or a descriptor: {message}")]
    Refused {
        /// Kind of the system's error.
        kind: io::ErrorKind,
        /// The system's error. Typical causes are limits of the user (`ulimit -u`, `ulimit -n`) or of the container
        /// (`pids.max`).
        message: Arc<str>,
    },
}

impl NoRuntime {
    #[allow(clippy::needless_pass_by_value)] // Passed to `map_err`.
    pub(super) fn refused(error: io::Error) -> Self {
        Self::Refused { kind: error.kind(), message: error.to_string().into() }
    }
}

pub(crate) enum Unready {
    Closed,
    NoRuntime(NoRuntime),
}

/// Runtimes that were found to lack a driver, oldest first. tokio offers no query for drivers. The client probes a
/// runtime with a call that panics and prints if a driver is missing, so the results are cached.
static LACKING: Mutex<Vec<(Id, Driver)>> = Mutex::new(Vec::new());

/// The maximum length of [`LACKING`] (I12: every list has a bound).
const MAX_LACKING: usize = 64;

thread_local! {
    /// The runtime and the driver that this thread last found in it.
    static FOUND: Cell<Option<(Id, Driver)>> = const { Cell::new(None) };
}

/// Returns true if `runtime` has `driver`. The library itself needs no driver for time, because it has its own timer
/// thread.
pub(crate) fn has_driver(runtime: &Handle, driver: Driver) -> bool {
    let asked = (runtime.id(), driver);
    if FOUND.get() == Some(asked) {
        return true;
    }
    if lock(&LACKING).contains(&asked) {
        return false;
    }
    let is_found = probe(runtime, driver);
    if is_found {
        FOUND.set(Some(asked));
    } else {
        let mut lacking = lock(&LACKING);
        lacking.push(asked);
        if lacking.len() > MAX_LACKING {
            lacking.remove(0);
        }
    }
    is_found
}

fn probe(runtime: &Handle, driver: Driver) -> bool {
    let _entered = runtime.enter();
    match driver {
        Driver::Io => catch_unwind(AssertUnwindSafe(register)).is_ok(),
        #[cfg(feature = "test-util")]
        Driver::Time => catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok(),
    }
}

/// Registers a socket with the current runtime. Panics if the runtime has no I/O driver. Ignores other failures,
/// because they do not depend on the runtime.
#[cfg(unix)]
fn register() {
    let socket = std::os::unix::net::UnixDatagram::unbound();
    let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    drop(socket.and_then(tokio::net::UnixDatagram::from_std));
}

#[cfg(not(unix))]
fn register() {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0));
    let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    drop(socket.and_then(tokio::net::UdpSocket::from_std));
}
