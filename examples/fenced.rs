//! Simulates a holder that sleeps until its lease has expired and then writes. The resource rejects the write, because
//! it has recorded a higher token:
//! `cargo run --example fenced redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`
//!
//! A lock that expires cannot prevent late writes; only the resource can reject them. The directory `examples/fencing`
//! of the repository contains resources in memory, in Redis and in `PostgreSQL`.

use quorlock::{FencingToken, Lease, Redlock};
use std::time::Duration;
use tokio::time::sleep;

/// A balance, with the highest token that was used to change it.
#[derive(Default)]
struct Account {
    balance: i64,
    highest: Option<FencingToken>,
}

impl Account {
    /// Adds `amount` to the balance, and returns the new balance. Fails if the account has recorded a higher token. A
    /// database must check the token and change the balance in one statement or one transaction.
    fn add(&mut self, token: FencingToken, amount: i64) -> Result<i64, String> {
        if let Some(highest) = self.highest.filter(|highest| token < *highest) {
            return Err(format!("token {token} is stale: {highest} has been used"));
        }
        self.highest = Some(token);
        self.balance += amount;
        Ok(self.balance)
    }
}

fn token(lease: &Lease) -> Result<FencingToken, &'static str> {
    lease.token().ok_or("a fenced lease has a token")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    // Every lease of this client gets a token, because fencing works only if all holders use tokens.
    let redlock =
        Redlock::builder().nodes(nodes).ttl(Duration::from_millis(500)).fenced().build()?;
    let mut account = Account::default();

    let ann = redlock.acquire("account/7").await?;
    println!("ann has token {}: balance {}", token(&ann)?, account.add(token(&ann)?, 100)?);
    sleep(ann.validity() + Duration::from_millis(200)).await; // Simulates a long pause of ann's process.

    let bob = redlock.acquire("account/7").await?;
    println!("bob has token {}: balance {}", token(&bob)?, account.add(token(&bob)?, -30)?);

    match account.add(token(&ann)?, 100) {
        Ok(balance) => return Err(format!("a stale write succeeded: balance {balance}").into()),
        Err(rejection) => println!("ann's write is rejected: {rejection}"),
    }
    println!("bob's lock: {}", bob.release().await?);
    redlock.close().await?;
    println!("balance {}", account.balance);
    Ok(())
}
