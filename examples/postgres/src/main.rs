//! Deposits money into an account in `PostgreSQL`. Each transaction first checks the fencing token of the lock, so a
//! holder whose lease has expired cannot change the account:
//! `cargo run -p quorlock-postgres -- "host=localhost user=postgres" redis://10.0.0.1 ...`

use quorlock::{FencingToken, Lease, Redlock};
use std::error::Error;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().ok_or("the first argument is the database")?;
    let (mut database, connection) = tokio_postgres::connect(&database, NoTls).await?;
    tokio::spawn(connection);
    database.batch_execute(include_str!("schema.sql")).await?;
    let redlock =
        Redlock::builder().nodes(arguments).ttl(Duration::from_millis(500)).fenced().build()?;

    let ann = redlock.acquire("account/7").await?;
    println!("ann deposits 100: balance {}", deposit(&mut database, &ann, 100).await?);
    tokio::time::sleep(ann.validity() + Duration::from_millis(200)).await; // Simulates a pause of ann's process.

    let bob = redlock.acquire("account/7").await?;
    println!("bob deposits 10: balance {}", deposit(&mut database, &bob, 10).await?);
    match deposit(&mut database, &ann, 100).await {
        Ok(_) => return Err("a stale holder has changed the account".into()),
        Err(rejection) => println!("ann's second deposit fails: {rejection}"),
    }
    println!("bob's lock: {}", bob.release().await?);
    redlock.close().await?;
    Ok(())
}

/// Deposits `amount` in one transaction that first checks the lease's token. Returns the new balance.
async fn deposit(database: &mut Client, lease: &Lease, amount: i64) -> Result<i64, Box<dyn Error>> {
    let token: FencingToken = lease.token().ok_or("a fenced lease has a token")?;
    let transaction = database.transaction().await?;
    // The first statement records the token and locks the row until the commit. If the row has a higher token, the
    // statement returns no row, and dropping the transaction rolls it back.
    let claim = "UPDATE accounts SET token = $1 WHERE id = '7' AND token <= $1 RETURNING balance";
    let row = transaction.query_opt(claim, &[&i64::try_from(token)?]).await?;
    let row = row.ok_or_else(|| format!("token {token} is stale"))?;

    let balance = row.get::<_, i64>(0) + amount;
    let entry = "INSERT INTO entries (account, amount) VALUES ('7', $1)";
    transaction.execute(entry, &[&amount]).await?;
    let update = "UPDATE accounts SET balance = $1 WHERE id = '7'";
    transaction.execute(update, &[&balance]).await?;
    transaction.commit().await?;
    Ok(balance)
}
