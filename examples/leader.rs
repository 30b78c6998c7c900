//! One of several processes leads, for as long as it can renew its lease; when it ends or is cut off, another takes over,
//! with a higher token: `cargo run --example leader redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Two may believe that they lead for a moment, if one sleeps past its lease. So whatever the leader does outside
//! carries its token, and is refused where a higher one was seen (see the example `fenced`).

use quorlock::{AcquireError, FencingToken, Lease, Redlock};
use std::process;
use std::time::Duration;
use tokio::time::interval;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    // The ttl is how long nobody leads after a leader was killed.
    let redlock = Redlock::builder().nodes(nodes).ttl(Duration::from_secs(2)).owner().build()?;
    println!("process {} wants to lead; Ctrl-C ends it", process::id());

    let outcome = tokio::select! {
        outcome = campaign(&redlock) => outcome,
        signal = tokio::signal::ctrl_c() => signal.map_err(Into::into),
    };
    // What was held is released by now, or with this: the next one need not wait for the ttl.
    redlock.close().await?;
    println!("process {} has ended", process::id());
    outcome
}

async fn campaign(redlock: &Redlock) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        let candidate = redlock.acquire("leader").wait(Duration::from_secs(3_600));
        match candidate.fenced().auto_extend_forever().await {
            Ok(lease) => {
                let token = lease.token().ok_or("a fenced lease has a token")?;
                lead(&lease, token).await;
            }
            // Others lead, or the nodes cannot be reached: both may change.
            Err(error) if error.is_contended() || error.is_unavailable() => println!("{error}"),
            Err(AcquireError::Closed) => return Ok(()),
            Err(other) => return Err(other.into()),
        }
    }
}

/// Leads until the lease is lost.
async fn lead(lease: &Lease, token: FencingToken) {
    println!("process {} leads with token {token}", process::id());
    let mut beat = interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            biased;
            why = lease.lost() => return println!("process {} leads no more: {why}", process::id()),
            _ = beat.tick() => {} // …what only a leader does, with its token…
        }
    }
}
