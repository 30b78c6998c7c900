//! Limits the number of holders to N at a time, in all processes together, with a semaphore:
//! `cargo run --example at_most_n redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{AcquireError, Redlock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The number of permits. It must be the same in every process.
const PERMITS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    let semaphore = redlock.semaphore("downloads", PERMITS)?;
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));

    let mut downloads = JoinSet::new();
    for _ in 0..12 {
        let (semaphore, running, peak) = (semaphore.clone(), running.clone(), peak.clone());
        downloads.spawn(async move {
            let permit = semaphore.acquire().wait(Duration::from_secs(30)).await?;
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(50)).await; // A placeholder for the work.
            running.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
            Ok::<_, AcquireError>(())
        });
    }
    let finished = downloads.join_all().await;
    redlock.close().await?; // Releases the remaining locks, even after a failed download.
    finished.into_iter().collect::<Result<(), _>>()?;
    println!("12 downloads, at most {} at a time", peak.load(Ordering::SeqCst));
    Ok(())
}
