//! Processes a batch of 200 orders, 32 at a time, each under its own lock. Orders that another process has locked are
//! skipped: `cargo run --example batch redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{Lease, Redlock, UsingError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

const ORDERS: usize = 200;

/// The maximum number of locks that this process holds or acquires at the same time.
const CONCURRENCY: usize = 32;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    let permits = Arc::new(Semaphore::new(CONCURRENCY));

    let mut batch = JoinSet::new();
    for order in 0..ORDERS {
        let permit = permits.clone().acquire_owned().await?;
        let lock = redlock.try_acquire(format!("orders/{order}"));
        batch.spawn(async move {
            let outcome = lock.using(async |lease| bill(order, lease).await).await;
            drop(permit);
            outcome
        });
    }

    let (mut billed, mut skipped, mut failure) = (0, 0, None);
    while let Some(outcome) = batch.join_next().await {
        match outcome? {
            Ok(()) => billed += 1,
            Err(UsingError::NotAcquired(error)) if error.is_contended() => skipped += 1,
            // No quorum, or a lock that was lost during the work.
            Err(other) => failure = Some(other),
        }
    }
    // Closes the client even after a failure. Otherwise, locks may remain until they expire.
    redlock.close().await?;
    println!("billed {billed}, skipped {skipped}");
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Bills an order. Real code must first check whether another process has already billed the order.
async fn bill(_order: usize, _lease: &Lease) {
    sleep(Duration::from_millis(5)).await;
}
