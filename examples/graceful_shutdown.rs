//! A service whose workers hold locks. On Ctrl-C, the service finishes the work in progress and releases every lock:
//! `cargo run --example graceful_shutdown redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{AcquireError, Redlock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long the work in progress may take to finish.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    // Connects to the nodes first, so that the first acquire is fast.
    timeout(Duration::from_secs(5), redlock.ready()).await??;

    let (stop, stopping) = watch::channel(false);
    let mut workers = JoinSet::new();
    for name in ["ann", "bob", "cyd"] {
        workers.spawn(work(name, redlock.clone(), stopping.clone()));
    }
    println!("process {} is running; press Ctrl-C to stop", std::process::id());
    tokio::signal::ctrl_c().await?;

    // 1. Workers start no new work.
    // 2. Work in progress has `GRACE` to finish.
    // 3. The remaining work is aborted. Dropping its futures releases its locks, including locks that are still being
    //    acquired.
    stop.send(true)?;
    let finished = timeout(GRACE, async { while workers.join_next().await.is_some() {} }).await;
    if finished.is_err() {
        println!("aborting work that takes longer than {GRACE:?}");
        workers.shutdown().await;
    }

    // Waits until every node has confirmed the releases. An error names the nodes that have not.
    match redlock.close().await {
        Ok(()) => println!("stopped, every lock is released"),
        Err(pending) => println!("stopped, but {pending}"),
    }
    Ok(())
}

async fn work(name: &str, redlock: Redlock, mut stopping: watch::Receiver<bool>) {
    while !*stopping.borrow_and_update() {
        // A worker that is only waiting for the lock stops at once.
        let acquired = tokio::select! {
            acquired = redlock.acquire("queue/7") => acquired,
            _ = stopping.changed() => continue,
        };
        match acquired {
            Ok(lease) => {
                sleep(Duration::from_millis(50)).await; // A placeholder for the work.
                println!("{name} finished a task");
                drop(lease);
            }
            Err(AcquireError::Closed) => return,
            Err(error) => println!("{name}: {error}"),
        }
    }
}
