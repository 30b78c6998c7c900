//! A service whose workers hold locks, and which leaves none behind when it is told to end (Ctrl-C):
//! `cargo run --example graceful_shutdown redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{AcquireError, Redlock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long work that has begun may go on.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    // The first acquires need not wait for the connections then.
    timeout(Duration::from_secs(5), redlock.ready()).await??;

    let (stop, is_stopping) = watch::channel(false);
    let mut workers = JoinSet::new();
    for name in ["ann", "bob", "cyd"] {
        workers.spawn(work(name, redlock.clone(), is_stopping.clone()));
    }
    println!("process {} works; Ctrl-C ends it", std::process::id());
    tokio::signal::ctrl_c().await?;

    // First nothing new is begun, then what was begun may end, and what does not is dropped: with its
    // futures go its locks, also those that are being acquired.
    stop.send(true)?;
    let ended = timeout(GRACE, async { while workers.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        println!("some work takes too long: it is dropped");
        workers.shutdown().await;
    }

    // Waits until each node has said that nothing of ours stands there, or says which has not.
    match redlock.close().await {
        Ok(()) => println!("ended, nothing is left"),
        Err(owed) => println!("ended, but {owed}"),
    }
    Ok(())
}

async fn work(name: &str, redlock: Redlock, mut is_stopping: watch::Receiver<bool>) {
    while !*is_stopping.borrow_and_update() {
        // Waiting for a lock is no work: it ends at once.
        let won = tokio::select! {
            won = redlock.acquire("queue/7") => won,
            _ = is_stopping.changed() => continue,
        };
        match won {
            Ok(lease) => {
                sleep(Duration::from_millis(50)).await; // …the work…
                println!("{name} has done something");
                drop(lease);
            }
            Err(AcquireError::Closed) => return,
            Err(error) => println!("{name}: {error}"),
        }
    }
}
