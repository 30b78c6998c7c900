//! Leader election. A process leads as long as it can renew its lease. When the leader exits or loses its nodes,
//! another process takes over with a higher fencing token:
//! `cargo run --example leader redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! A process that was paused for longer than its lease does not know that it is no longer the leader. Send the token
//! with every write, so that the resource rejects a former leader (see the example `fenced`).

use quorlock::{AcquireError, FencingToken, Lease, Redlock};
use std::process;
use std::time::Duration;
use tokio::time::interval;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    // If the leader crashes, its lock expires within this ttl.
    let redlock = Redlock::builder().nodes(nodes).ttl(Duration::from_secs(2)).owner().build()?;
    println!("process {} is a candidate; press Ctrl-C to stop", process::id());

    let outcome = tokio::select! {
        outcome = campaign(&redlock) => outcome,
        signal = tokio::signal::ctrl_c() => signal.map_err(Into::into),
    };
    // Waits until the lock is released, so that the next leader does not have to wait for the ttl.
    redlock.close().await?;
    println!("process {} has stopped", process::id());
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
            // Another process leads, or the nodes are unreachable: try again.
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
            loss = lease.lost() => return println!("process {} lost the lead: {loss}", process::id()),
            _ = beat.tick() => {} // The leader's work, with the token in every write.
        }
    }
}
