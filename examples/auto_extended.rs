//! A job of unknown length, in steps, under a lock that is renewed for as long as it takes. If renewal fails, the job is told
//! while the lock still holds, and stops between two steps:
//! `cargo run --example auto_extended redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{Lease, Redlock, UsingError};
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

const STEPS: usize = 30;

/// What is to be left of the lock when the job is told to stop: enough for a step and for cleaning up.
const MARGIN: Duration = Duration::from_millis(800);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let redlock = Redlock::builder().nodes(nodes).ttl(Duration::from_secs(2)).build()?;

    // Renewed until it is done, and for ten minutes at the most: work that hangs must not keep the lock.
    let job = redlock.acquire("rebuild-index").auto_extend(Duration::from_secs(600));
    match job.stop_before(MARGIN).using(rebuild).await {
        Ok(STEPS) => println!("done: {STEPS} steps"),
        Ok(steps) => println!("stopped in order after {steps} steps"),
        Err(UsingError::NotAcquired(error)) => println!("not begun: {error}"),
        // It ended under a lock that was lost by then, or was dropped at the loss.
        Err(other) => println!("not done alone: {other}"),
    }
    if let Err(owed) = redlock.close().await {
        println!("{owed}"); // Such as: a node that hangs is still to be told of the release.
    }
    Ok(())
}

/// Returns how many steps it did.
async fn rebuild(lease: &Lease) -> usize {
    // One future for all steps: it must not begin anew with each.
    let mut stopping = pin!(lease.stopping());
    for step in 1..=STEPS {
        tokio::select! {
            biased;
            left = &mut stopping => {
                println!("{left:?} are left to clean up");
                return step - 1;
            }
            () = do_step(step) => {}
        }
    }
    STEPS
}

async fn do_step(step: usize) {
    sleep(Duration::from_millis(100)).await;
    println!("step {step}");
}
