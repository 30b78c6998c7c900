//! The library's own runtime, for clients that have no other runtime.

use crate::sync::{PerProcess, lock};
use std::future::pending;
use std::process;
use std::sync::Mutex;
use std::thread;
use tokio::runtime::{Builder, Handle};

/// The library's runtime in this process, or `None` before it has started. A forked process starts its own runtime.
static RUNTIMES: PerProcess<Mutex<Option<Handle>>> = PerProcess::new();

/// Returns the library's runtime, which the first call starts. The runtime's thread runs until the process ends.
/// Returns `None` if the system refuses to start the runtime.
pub(super) fn own_runtime() -> Option<Handle> {
    let mut runtime = lock(RUNTIMES.get_or_init(process::id(), Mutex::default)?);
    if runtime.is_none() {
        *runtime = start();
    }
    runtime.clone()
}

pub(super) fn is_own(runtime: &Handle) -> bool {
    let own = RUNTIMES.get_or_init(process::id(), Mutex::default).map(lock);
    own.is_some_and(|own| own.as_ref().is_some_and(|own| own.id() == runtime.id()))
}

fn start() -> Option<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let thread = thread::Builder::new().name("quorlock-runtime".to_owned());
    thread.spawn(move || runtime.block_on(pending::<()>())).ok()?;
    Some(handle)
}
