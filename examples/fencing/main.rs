//! A holder that was stopped for too long comes back, and writes: `cargo run --example fencing`.
//!
//! What stands beside this file is to be copied: `cell.rs` guards a value in memory, `store.rs` and
//! `write.lua` one in Redis, the `.sql` files a row in `PostgreSQL`. See docs/FENCING.md.

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

    // The resources: each remembers the highest token that it has seen.
    let cell = FencedCell::new(0);
    let server = Server::builder().durable().start();
    let store = Store::open(&server.url(), "account/7").await?;

    let ann = redlock.acquire("account/7").await?;
    let first = ann.token().ok_or("the client asks for tokens")?;
    println!("ann holds the lock with token {first}");
    cell.with(first, |balance| *balance += 100)?;
    store.write(first, "100").await??;
    println!("ann writes 100");

    println!("ann is stopped for longer than her lease lasts…");
    let bob = redlock.acquire("account/7").await?;
    let second = bob.token().ok_or("the client asks for tokens")?;
    println!("bob holds the lock with token {second}");
    // He reads with his token first: from here on, ann is too late.
    let seen = cell.with(second, |balance| *balance)?;
    let stored = store.read(second).await??;
    println!("bob reads {seen} from memory and {stored} from Redis");

    println!("ann goes on, and does not know that her lease has ended");
    match cell.with(first, |balance| *balance -= 50) {
        Ok(()) => return Err("a stale write was accepted in memory".into()),
        Err(stale) => println!("  in memory she is refused: {stale}"),
    }
    match store.write(first, "50").await? {
        Ok(_) => return Err("a stale write was accepted by Redis".into()),
        Err(stale) => println!("  by Redis she is refused:  {stale}"),
    }
    cell.with(second, |balance| *balance += 1)?;
    store.write(second, "101").await??;
    println!("bob writes 101");
    bob.release().await?;
    Ok(())
}
