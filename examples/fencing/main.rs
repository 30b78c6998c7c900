//! Demonstrates fencing. A holder that was paused for longer than its lease writes late, and the resources reject the
//! write: `cargo run --example fencing`.
//!
//! The other files are meant for copying: `cell.rs` protects a value in memory, `store.rs` and `write.lua` protect a
//! value in Redis, and the `.sql` files protect a row in `PostgreSQL`. See docs/FENCING.md.

mod cell;
mod stale;
mod store;

use cell::FencedCell;
use kit::{Cluster, Server};
use quorlock::Redlock;
use std::error::Error;
use std::time::Duration;
use store::Store;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = Cluster::start(3);
    let redlock = Redlock::builder().nodes(nodes.urls()).ttl(Duration::from_secs(1)).fenced();
    let redlock = redlock.build()?;

    // Both resources record the highest token that a client has used.
    let cell = FencedCell::new(0);
    let server = Server::builder().durable().start();
    let store = Store::open(&server.url(), "account/7").await?;

    let ann = redlock.acquire("account/7").await?;
    let first = ann.token().ok_or("a fenced lease has a token")?;
    println!("ann holds the lock with token {first}");
    cell.with(first, |balance| *balance += 100)?;
    store.write(first, "100").await??;
    println!("ann writes 100");

    println!("ann is paused for longer than her lease lasts");
    let bob = redlock.acquire("account/7").await?;
    let second = bob.token().ok_or("a fenced lease has a token")?;
    println!("bob holds the lock with token {second}");
    // The read records bob's token. From here on, ann's token is stale.
    let seen = cell.with(second, |balance| *balance)?;
    let stored = store.read(second).await??;
    println!("bob reads {seen} from memory and {stored} from Redis");

    println!("ann continues without knowing that her lease has ended");
    match cell.with(first, |balance| *balance -= 50) {
        Ok(()) => return Err("a stale write was accepted in memory".into()),
        Err(stale) => println!("  rejected in memory: {stale}"),
    }
    match store.write(first, "50").await? {
        Ok(_) => return Err("a stale write was accepted by Redis".into()),
        Err(stale) => println!("  rejected by Redis:  {stale}"),
    }
    cell.with(second, |balance| *balance += 1)?;
    store.write(second, "101").await??;
    println!("bob writes 101");
    println!("bob's lock: {}", bob.release().await?);
    Ok(())
}
