//! Readers share a catalog, and a writer changes it alone, with a reader-writer lock across all processes:
//! `cargo run --example readers redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{AcquireError, Redlock};
use std::time::Duration;
use tokio::time::sleep;

const WAIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    let catalog = redlock.rw_lock("catalog")?;

    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(catalog.read().wait(WAIT).await?);
    }
    let refused = catalog.try_write().await;
    println!("{} readers, and a writer: {}", readers.len(), outcome(&refused));
    tokio::spawn(async move {
        sleep(Duration::from_millis(100)).await; // A placeholder for the work of the readers.
        drop(readers);
    });

    // Makes new readers wait, so that a stream of readers cannot keep the writer out.
    let writer = catalog.write().wait(WAIT).await?;
    let refused = catalog.try_read().await;
    println!("a writer, and a reader: {}", outcome(&refused));

    // The writer continues as a reader. No other writer can acquire the lock in between.
    writer.downgrade().await?;
    let reader = catalog.read().wait(WAIT).await;
    println!("a former writer, and a reader: {}", outcome(&reader));
    drop((reader, writer));
    redlock.close().await?; // Waits until every lock is released.
    Ok(())
}

fn outcome<T>(attempt: &Result<T, AcquireError>) -> &'static str {
    match attempt {
        Ok(_) => "acquired",
        Err(error) if error.is_contended() => "must wait",
        Err(_) => "failed", // Such as no quorum.
    }
}
