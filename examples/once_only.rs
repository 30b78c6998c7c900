//! A job that every host starts at the same time, and that only one of them runs:
//! `cargo run --example once_only redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Run the program twice within 30 seconds: the second run skips the job, although the first run has already finished.

use quorlock::{Lease, Redlock, TryUsingError, UsingError};
use std::time::Duration;

/// The minimum time between two runs of the job. It must be longer than the hosts' clocks can differ, and shorter than
/// the interval of the job.
const PERIOD: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;

    // One attempt, without waiting. The ttl limits `at_least`, and `Builder::max_ttl` (60 s) limits the ttl.
    let job = redlock.try_acquire("daily-import").ttl(PERIOD).at_least(PERIOD);
    // The lease is renewed if the job takes longer than the ttl.
    let outcome = job.try_using(import).await;

    // Waits until every node has confirmed the release.
    redlock.close().await?;
    match outcome {
        Ok(rows) => println!("imported {rows} rows"),
        Err(TryUsingError::Lock(UsingError::NotAcquired(error))) if error.is_contended() => {
            println!("skipped: another host runs the job or has finished it");
        }
        // Even if the job fails, the lock stays until the end of the period.
        Err(TryUsingError::Work { error, .. }) => return Err(error.into()),
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

async fn import(lease: &Lease) -> Result<usize, std::num::ParseIntError> {
    println!("importing; the lock is valid for {:?}", lease.validity());
    let rows = ["7", "9", "12"].map(str::parse::<u64>);
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(rows.len())
}
