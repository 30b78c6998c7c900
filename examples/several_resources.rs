//! Transfers money between accounts. Each transfer locks both accounts or neither, under one lease. The order of the
//! names does not matter, so transfers in opposite directions cannot deadlock:
//! `cargo run --example several_resources redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`

use quorlock::{AcquireError, Redlock};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const TRANSFERS: usize = 20;

type Accounts = [AtomicI64; 3];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let redlock = Redlock::builder().nodes(nodes).wait(Duration::from_secs(30)).build()?;
    let accounts: Arc<Accounts> = Arc::new([100, 100, 100].map(AtomicI64::new));

    let mut transfers = JoinSet::new();
    for turn in 0..TRANSFERS {
        let (from, to) = [(0, 1), (1, 0), (1, 2), (2, 0)][turn % 4];
        transfers.spawn(transfer(redlock.clone(), accounts.clone(), from, to));
    }
    let finished = transfers.join_all().await;
    redlock.close().await?; // Closes the client even after a failed transfer.
    finished.into_iter().collect::<Result<(), _>>()?;
    let balances = accounts.each_ref().map(|account| account.load(Ordering::Relaxed));
    println!("{TRANSFERS} transfers: {balances:?}, total {}", balances.iter().sum::<i64>());
    Ok(())
}

async fn transfer(
    redlock: Redlock,
    accounts: Arc<Accounts>,
    from: usize,
    to: usize,
) -> Result<(), AcquireError> {
    // If the nodes run in cluster mode, the names need a common hash tag: {accounts}/7.
    let both = redlock.acquire_all([from, to].map(|account| format!("account/{account}"))).await?;
    // Reads, yields and writes. Without the locks, concurrent transfers would overwrite each other's balances.
    let (source, target) =
        (accounts[from].load(Ordering::Relaxed), accounts[to].load(Ordering::Relaxed));
    tokio::task::yield_now().await;
    accounts[from].store(source - 10, Ordering::Relaxed);
    accounts[to].store(target + 10, Ordering::Relaxed);
    drop(both); // The release runs in the background, and `close` waits for it.
    Ok(())
}
