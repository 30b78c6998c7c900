//! A job that every host starts at the same time each day, and that only one of them runs:
//! `cargo run --example once_only redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Run the program twice on the same day: the second run skips the job, although the first run has already finished.

use quorlock::{JobOutcome, Lease, Redlock};
use std::num::ParseIntError;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST: Duration = Duration::from_secs(60 * 60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).owner().build()?;

    // A crash or an error does not end the day's job: the next call runs it again. Without `take_over`, a call that has
    // started the job is the last one of the day that does.
    let job = redlock.once("daily-import").every(PERIOD).take_over();
    // If all hosts call at the same time, no call follows a crash. The other hosts therefore wait until the job is done,
    // or until the lock of a crashed host has expired.
    let job = job.at_most(LONGEST).wait(LONGEST + Duration::from_secs(60));
    // Longer than the hosts' clocks can differ: hosts whose clocks show different days at midnight run one job.
    let job = job.at_least(Duration::from_secs(30));
    let outcome = job.try_run(import).await;

    // Waits until every node has confirmed the release.
    redlock.close().await?;
    match outcome? {
        JobOutcome::Ran(rows) => println!("imported {} rows", rows?),
        JobOutcome::Skipped { since: Some(since), holder } => {
            println!("skipped: done {since:?} ago by {holder:?}");
        }
        JobOutcome::Skipped { holder, .. } => println!("skipped: {holder:?} holds the lock"),
    }
    Ok(())
}

async fn import(lease: &Lease) -> Result<usize, ParseIntError> {
    println!("importing; the lock is valid for {:?}", lease.validity());
    let rows = ["7", "9", "12"].map(str::parse::<u64>);
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(rows.len())
}
