//! The library's own runtime, for clients that have no other runtime.

use crate::sync::{PerProcess, catch_panic, lock, threads};
use std::future::pending;
use std::io::{self, PipeReader, PipeWriter};
use std::process;
use std::sync::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

/// The library's runtime in this process, or `None` before it has started. A forked process starts its own runtime.
static RUNTIMES: PerProcess<Mutex<Option<Handle>>> = PerProcess::new();

/// Number of pipes whose descriptors suffice to create a runtime.
const SPARE_PIPES: usize = 4;

/// Returns the library's runtime, which the first call starts. The runtime's thread runs until the process ends. After
/// an error, the next call tries again.
pub(super) fn own_runtime() -> io::Result<Handle> {
    let runtime = RUNTIMES.get_or_init(process::id(), Mutex::default);
    let runtime = runtime.ok_or_else(|| io::Error::other("more than 64 nested forks"))?;
    let mut runtime = lock(runtime);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    let started = start()?;
    *runtime = Some(started.clone());
    Ok(started)
}

fn start() -> io::Result<Handle> {
    let runtime = build()?;
    let handle = runtime.handle().clone();
    threads::spawn_shared("quorlock-runtime", move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

fn build() -> io::Result<Runtime> {
    // If the program enables tokio's `signal` feature, tokio panics when it lacks a descriptor. So the descriptors are
    // reserved first.
    let spare: io::Result<Vec<(PipeReader, PipeWriter)>> =
        (0..SPARE_PIPES).map(|_| io::pipe()).collect();
    drop(spare?);
    let built = catch_panic(|| Builder::new_current_thread().enable_all().build());
    built.unwrap_or_else(|| Err(io::Error::other("tokio panicked")))
}
