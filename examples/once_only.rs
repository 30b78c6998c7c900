//! A job that every host starts at the same time each day, and that only one of them runs:
//! `cargo run --example once_only redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! Run the program twice on the same day: the second run skips the job, although the first run has already finished.

use quorlock::{JobOutcome, Lease, Redlock};
use std::num::ParseIntError;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).owner().build()?;

    // A crash or an error does not end the day's job: the next call runs it again. Without `take_over`, the job runs at
    // most once a day, whatever happens.
    let job = redlock.once("daily-import").every(PERIOD).take_over();
    // Longer than the hosts' clocks can differ: hosts whose clocks show different days at midnight run one job.
    let job = job.at_least(Duration::from_secs(30)).at_most(Duration::from_secs(3_600));
    let outcome = job.try_run(import).await;

    // Waits until every node has confirmed the release.
    redlock.close().await?;
    match outcome? {
        JobOutcome::Ran(rows) => println!("imported {} rows", rows?),
        JobOutcome::Skipped { since: Some(since), .. } => println!("skipped: done {since:?} ago"),
        JobOutcome::Skipped { holder, .. } => println!("skipped: {holder:?}"),
    }
    Ok(())
}

async fn import(lease: &Lease) -> Result<usize, ParseIntError> {
    println!("importing; the lock is valid for {:?}", lease.validity());
    let rows = ["7", "9", "12"].map(str::parse::<u64>);
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(rows.len())
}
