//! Leader election. A process leads as long as it can renew its lease. When the leader exits or loses its nodes,
//! another process takes over with a higher fencing token:
//! `cargo run --example leader redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! A process that was paused for longer than its lease does not know that it is no longer the leader. Send the token
//! with every write, so that the resource rejects a former leader (see the example `fenced`).

use quorlock::{Election, Leadership, Redlock};
use std::process;
use std::time::Duration;
use tokio::time::interval;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let redlock = Redlock::builder().nodes(nodes).owner().build()?;
    // If the leader crashes, another process can lead after this ttl.
    let election = redlock.election("leader").ttl(Duration::from_secs(2)).build()?;
    println!("process {} is a candidate; press Ctrl-C to stop", process::id());

    let outcome = tokio::select! {
        led = election.run(lead) => led.map_err(Into::into),
        () = watch(&election) => Ok(()),
        signal = tokio::signal::ctrl_c() => signal.map_err(Into::into),
    };
    // Waits until the leader has resigned, so that the next leader does not have to wait for the ttl.
    redlock.close().await?;
    println!("process {} has stopped", process::id());
    outcome
}

/// The leader's work. It is dropped if the leadership is lost, and starts again after the next election.
async fn lead(leadership: &Leadership) {
    println!("process {} leads with token {}", process::id(), leadership.token());
    let mut beat = interval(Duration::from_millis(500));
    loop {
        beat.tick().await; // The leader's work, with the token in every write.
    }
}

/// Prints each change of the leader.
async fn watch(election: &Election) {
    let mut leaders = election.observe();
    while let Some(leader) = leaders.next().await {
        let name = leader.as_ref().and_then(|leader| leader.metadata());
        println!("process {} sees the leader: {}", process::id(), name.unwrap_or("none"));
    }
}
