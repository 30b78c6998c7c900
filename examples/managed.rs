//! One managed Redis behind one address: `cargo run --example managed redis://redis.example.com`
//!
//! A managed endpoint fails over to a replica, which may lack the newest locks. A client that was connected before the
//! failover ignores the endpoint until those locks have expired, for `max_ttl` x 1.02 + 1 s. A small `max_ttl` shortens
//! this time.

use quorlock::{Lease, Redlock, RestartGuard, UsingError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The longest ttl that any client uses. Set the same `max_ttl` on all clients.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder()
        .nodes(std::env::args().skip(1))
        .ttl(TTL)
        .max_ttl(TTL)
        // Enough for several round trips to the endpoint.
        .node_timeout(Duration::from_millis(200))
        // The default guard, which ignores a server after this client has observed its restart or failover.
        .restart_guard(RestartGuard::Observed)
        .build()?;

    let mut outage: Option<Instant> = None;
    loop {
        match redlock.try_acquire("report").using(work).await {
            Ok(()) => {
                if let Some(since) = outage.take() {
                    println!("locked again after {:?}", since.elapsed());
                }
            }
            Err(UsingError::NotAcquired(error)) if error.is_unavailable() => {
                outage.get_or_insert_with(Instant::now);
                println!("outage: {error}");
                sleep(Duration::from_millis(500)).await;
            }
            Err(other) => println!("{other}"),
        }
    }
}

async fn work(lease: &Lease) {
    sleep(Duration::from_millis(200)).await; // A placeholder for the work.
    println!("worked; the lock is valid for {:?}", lease.validity());
}
