//! Runs a job of unknown length in steps, under a lock that is renewed in the background. If renewal fails, the job is
//! notified while the lock is still valid, and stops between two steps:
//! `cargo run --example auto_extended redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{Lease, Redlock, UsingError};
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

const STEPS: usize = 30;

/// The remaining validity at which the job must stop. It is enough for one step and for cleaning up.
const MARGIN: Duration = Duration::from_millis(800);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let redlock = Redlock::builder().nodes(nodes).ttl(Duration::from_secs(2)).build()?;

    // The lease is renewed for at most ten minutes, so that a stuck job does not keep the lock.
    let job = redlock.acquire("rebuild-index").auto_extend(Duration::from_secs(600));
    match job.stop_before(MARGIN).using(rebuild).await {
        Ok(STEPS) => println!("finished {STEPS} steps"),
        Ok(steps) => println!("stopped after {steps} steps, with the lock still held"),
        Err(UsingError::NotAcquired(error)) => println!("not started: {error}"),
        // The lock was lost before the job ended.
        Err(other) => println!("failed: {other}"),
    }
    if let Err(pending) = redlock.close().await {
        println!("{pending}"); // Names the nodes that have not confirmed the release.
    }
    Ok(())
}

/// Rebuilds the index step by step, until it is complete or the lease is about to end. Returns the number of finished
/// steps.
async fn rebuild(lease: &Lease) -> usize {
    // All steps share one future: `select!` must not create a new one for each step.
    let mut stopping = pin!(lease.stopping());
    for step in 1..=STEPS {
        tokio::select! {
            biased;
            remaining = &mut stopping => {
                println!("stopping: the lock is valid for another {remaining:?}");
                return step - 1;
            }
            () = run_step(step) => {}
        }
    }
    STEPS
}

async fn run_step(step: usize) {
    sleep(Duration::from_millis(100)).await;
    println!("step {step}");
}
