//! A process that crashes and regains its lock after a restart, without waiting for the ttl. The process stores the
//! value of its lease, and adopts the lock with this value:
//! `cargo run --example resume redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Kill the process with `kill -9`, and start it again within the ttl (60 s). Only one process at a time may use the
//! file `importer.lock` in the current directory: start the process from a supervisor that waits for the old process to
//! end.

use quorlock::{AcquireError, Lease, Redlock};
use std::fs;
use std::time::Duration;

const FILE: &str = "importer.lock";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let redlock = Redlock::builder().nodes(nodes).ttl(Duration::from_secs(60)).build()?;
    let lease = adopt_or_acquire(&redlock).await?;
    // The adopted lease has a new value. A process that knows the value can take over the lock: protect the file.
    fs::write(FILE, lease.value())?;
    println!("process {} is running; press Ctrl-C to stop", std::process::id());

    tokio::select! {
        loss = lease.lost() => println!("lost the lock: {loss}"),
        signal = tokio::signal::ctrl_c() => signal?, // A placeholder for the work.
    }
    println!("at the end, the lock was {}", lease.release().await?);
    fs::remove_file(FILE)?;
    redlock.close().await?;
    Ok(())
}

async fn adopt_or_acquire(redlock: &Redlock) -> Result<Lease, AcquireError> {
    if let Ok(value) = fs::read_to_string(FILE) {
        match redlock.adopt("importer", value).auto_extend_forever().await {
            // The lock has expired, or another process holds it.
            Err(AcquireError::NotHeld { .. }) => println!("not held any more"),
            Ok(lease) => {
                println!("got the lock back");
                return Ok(lease);
            }
            Err(other) => return Err(other),
        }
    }
    // The wait is longer than the ttl: if the process crashed before it stored the value, the lock must first expire.
    let lock = redlock.acquire("importer").wait(Duration::from_secs(70));
    let lease = lock.auto_extend_forever().await?;
    println!("acquired the lock");
    Ok(lease)
}
