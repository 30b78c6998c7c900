//! Whether a runtime can run a client's task.

use crate::sync::lock;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;
use tokio::runtime::{Handle, Id};

/// Driver of a tokio runtime. A runtime has only the drivers that its builder enables.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Driver {
    Io,
    Time,
}

/// There is no runtime for a client's task: the pinned one has ended or lacks a driver, or the library's own could not be
/// started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRuntime;

/// The reason why the client can reach no node.
pub(crate) enum Unready {
    /// The client was closed.
    Closed,
    NoRuntime(NoRuntime),
}

/// Runtimes known to lack a driver, oldest first. tokio offers no query, and probing panics and
/// prints, so results are cached.
static LACKING: Mutex<Vec<(Id, Driver)>> = Mutex::new(Vec::new());

/// Maximum length of [`LACKING`] (I12).
const MAX_LACKING: usize = 64;

thread_local! {
    /// The complete runtime that this thread checked last.
    static SOUND: Cell<Option<Id>> = const { Cell::new(None) };
}

/// The driver that `runtime` was built without.
pub(crate) fn lack(runtime: &Handle) -> Option<Driver> {
    let id = runtime.id();
    if SOUND.get() == Some(id) {
        return None;
    }
    let known = lock(&LACKING).iter().find(|(lacking, _)| *lacking == id).map(|(_, lack)| *lack);
    let lack = known.or_else(|| probe(runtime));
    match lack {
        None => SOUND.set(Some(id)),
        Some(lack) if known.is_none() => {
            let mut lacking = lock(&LACKING);
            lacking.push((id, lack));
            if lacking.len() > MAX_LACKING {
                lacking.remove(0);
            }
        }
        Some(_) => {}
    }
    lack
}

fn probe(runtime: &Handle) -> Option<Driver> {
    let _entered = runtime.enter();
    // Only the first missing driver is reported.
    let has_time = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
    if !has_time {
        return Some(Driver::Time);
    }
    let has_io = catch_unwind(AssertUnwindSafe(register)).is_ok();
    (!has_io).then_some(Driver::Io)
}

/// Registers a socket with the runtime, which panics if the runtime has no I/O driver. Other failures
/// are ignored: they do not depend on the runtime.
#[cfg(unix)]
fn register() {
    let socket = std::os::unix::net::UnixDatagram::unbound();
    let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    drop(socket.and_then(tokio::net::UnixDatagram::from_std));
}

/// Registers a socket with the runtime, which panics if the runtime has no I/O driver. Other failures
/// are ignored: they do not depend on the runtime.
#[cfg(not(unix))]
fn register() {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0));
    let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    drop(socket.and_then(tokio::net::UdpSocket::from_std));
}
