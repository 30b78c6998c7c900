//! A job that every host starts at the same time of day, and one of them does:
//! `cargo run --example once_only redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Run it twice within 30 seconds: the second says that it was not done here, however soon the first was done.

use quorlock::{Lease, Redlock, TryUsingError, UsingError};
use std::time::Duration;

/// How far the clocks of the hosts are apart, with room to spare: nobody has the lock for so long.
const KEPT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;

    // One attempt, and no waiting: who comes second has nothing to do.
    let job = redlock.try_acquire("daily-import").ttl(KEPT).at_least(KEPT);
    // It is renewed if the work takes longer than that.
    let outcome = job.try_using(import).await;

    // A process that ends waits until all is said to the nodes.
    redlock.close().await?;
    match outcome {
        Ok(rows) => println!("done here: {rows} rows"),
        Err(TryUsingError::Lock(UsingError::NotAcquired(error))) if error.is_contended() => {
            println!("not done here: another host does it, or has done it");
        }
        // The lock is kept also then: decide whether somebody has to look at it.
        Err(TryUsingError::Work { error, .. }) => return Err(error.into()),
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

async fn import(lease: &Lease) -> Result<usize, std::num::ParseIntError> {
    let rows = ["7", "9", "12"].map(str::parse::<u64>);
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("importing, and nobody else for {:?}", lease.validity());
    Ok(rows.len())
}
