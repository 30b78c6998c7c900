//! A holder that sleeps for longer than its lock, wakes and writes; the resource refuses it, because it has seen a
//! higher token: `cargo run --example fenced redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! No lock with an end can prevent the late write; the resource has to. The directory `examples/fencing` of the
//! repository has such resources in memory, in Redis and in `PostgreSQL`.

use quorlock::{FencingToken, Lease, Redlock};
use std::time::Duration;
use tokio::time::sleep;

/// A value that knows the highest token by which it was read or written.
#[derive(Default)]
struct Account {
    balance: i64,
    highest: Option<FencingToken>,
}

impl Account {
    /// Compares and writes as one: in a database, in one statement or one transaction.
    fn add(&mut self, token: FencingToken, amount: i64) -> Result<i64, String> {
        if let Some(highest) = self.highest.filter(|highest| token < *highest) {
            return Err(format!("token {token} is too late: {highest} was here"));
        }
        self.highest = Some(token);
        self.balance += amount;
        Ok(self.balance)
    }
}

fn token(lease: &Lease) -> Result<FencingToken, &'static str> {
    lease.token().ok_or("a fenced lease has one")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    // All leases of this client have tokens: a resource that is fenced has to be so for everybody.
    let redlock =
        Redlock::builder().nodes(nodes).ttl(Duration::from_millis(500)).fenced().build()?;
    let mut account = Account::default();

    let ann = redlock.acquire("account/7").await?;
    println!("ann has token {}: balance {}", token(&ann)?, account.add(token(&ann)?, 100)?);
    sleep(ann.validity() + Duration::from_millis(200)).await; // …a long pause of her process…

    let bob = redlock.acquire("account/7").await?;
    println!("bob has token {}: balance {}", token(&bob)?, account.add(token(&bob)?, -30)?);

    match account.add(token(&ann)?, 100) {
        Ok(balance) => return Err(format!("a late write came through: {balance}").into()),
        Err(refusal) => println!("ann is refused: {refusal}"),
    }
    bob.release().await?;
    redlock.close().await?;
    println!("balance {}", account.balance);
    Ok(())
}
