//! Tests of resources that reject stale fencing tokens. The resources use the code of the example `fencing`.

mod postgres;

#[path = "../../examples/fencing/cell.rs"]
mod cell;
#[path = "../../examples/fencing/store.rs"]
mod store;

use crate::{SOON, builder, ms, stale::Stale};
use cell::FencedCell;
use kit::{Cluster, Server};
use postgres::Postgres;
use quorlock::{FencingToken, Redlock};
use std::sync::Arc;
use std::thread;
use store::Store;
use tokio::time::{sleep, timeout};

const fn token(number: u64) -> FencingToken {
    FencingToken::new(number)
}

/// The greatest valid token.
const LAST: u64 = (1 << 53) - 1;

#[test]
fn cell_accepts_the_highest_token_and_refuses_lower_ones() {
    let cell = FencedCell::new(Vec::new());
    for (number, is_accepted) in
        [(5, true), (5, true), (4, false), (0, false), (9, true), (5, false)]
    {
        let written = cell.with(token(number), |value| value.push(number));
        let (token, highest) = (token(number), token(if number == 5 { 9 } else { 5 }));
        assert_eq!(written, if is_accepted { Ok(()) } else { Err(Stale { token, highest }) });
    }
    assert_eq!(cell.with(token(10), |value| value.clone()), Ok(vec![5, 5, 9]));
    let late = cell.with(token(9), |_| ()).expect_err("the read used a greater token");
    assert_eq!(late.to_string(), "token 9 is stale: 10 has been used");
}

#[test]
fn cell_stays_guarded_after_a_panic() {
    let cell = Arc::new(FencedCell::new(1));
    let other = cell.clone();
    let panicking = thread::spawn(move || other.with(token(7), |_| panic!("on purpose")));
    assert!(panicking.join().is_err());
    assert!(cell.with(token(6), |value| *value = 2).is_err());
    assert_eq!(cell.with(token(7), |value| *value), Ok(1));
}

#[tokio::test]
async fn store_accepts_the_highest_token_and_refuses_lower_ones() {
    let server = Server::start();
    let store = Store::open(&server.url(), "account").await.expect("the server is up");
    let write = |number: u64, value: &'static str| {
        let store = &store;
        async move { store.write(token(number), value).await.expect("the server is up") }
    };
    let done = |value: &str| Ok(value.to_owned());
    let stale = |number, highest| Err(Stale { token: token(number), highest: token(highest) });
    assert_eq!(write(9, "a").await, done("a"));
    assert_eq!(write(9, "b").await, done("b"), "a holder can write again");
    // Tokens are compared as numbers, not as text.
    assert_eq!(write(10, "c").await, done("c"));
    assert_eq!(write(9, "late").await, stale(9, 10));
    assert_eq!(store.read(token(LAST - 1)).await.expect("the server is up"), done("c"));
    assert_eq!(write(LAST - 2, "late").await, stale(LAST - 2, LAST - 1));
    assert_eq!(write(LAST, "d").await, done("d"), "the greatest tokens are distinguished");
    assert_eq!(write(LAST - 1, "late").await, stale(LAST - 1, LAST));
    assert_eq!(store.read(token(LAST)).await.expect("the server is up"), done("d"));
}

/// Force-releases a held lock and acquires it again. Returns the token of the first holder and the token of the next
/// holder.
async fn stale_and_fresh(redlock: &Redlock) -> [FencingToken; 2] {
    let stopped = redlock.acquire("account").await.expect("the lock is free");
    let first = stopped.token().expect("the lease is fenced");
    redlock.force_release("account").await.expect("the client is open");
    let fresh = redlock.acquire("account").await.expect("the lock is free");
    [first, fresh.token().expect("the lease is fenced")]
}

#[tokio::test]
async fn late_writer_is_refused_by_every_resource() {
    let nodes = Cluster::start(3);
    let redlock = builder(&nodes).fenced().build().expect("valid settings");
    let [first, second] = stale_and_fresh(&redlock).await;
    let server = Server::start();
    let store = Store::open(&server.url(), "account").await.expect("the server is up");
    let cell = FencedCell::new(0);
    let written = store.write(first, "100").await.expect("the server is up");
    assert!(written.is_ok() && cell.with(first, |value| *value = 100).is_ok());
    // A limit of fencing: a stale holder can write until the resource has received a greater token.
    let written = store.write(first, "late").await.expect("the server is up");
    assert_eq!((written, cell.with(first, |value| *value)), (Ok("late".to_owned()), Ok(100)));
    assert_eq!(store.read(second).await.expect("the server is up"), Ok("late".to_owned()));
    assert_eq!(cell.with(second, |value| *value), Ok(100));
    let stale = Stale { token: first, highest: second };
    assert_eq!(store.write(first, "50").await.expect("the server is up"), Err(stale));
    assert_eq!(cell.with(first, |value| *value = 50), Err(stale));
    assert_eq!(store.read(second).await.expect("the server is up"), Ok("late".to_owned()));
}

#[tokio::test]
async fn row_accepts_the_highest_token_and_refuses_lower_ones() {
    let Some(postgres) = Postgres::start() else { return };
    for (balance, number, rows) in
        [(100, 9, 1), (110, 9, 1), (120, 10, 1), (1, 9, 0), (130, LAST, 1), (1, LAST - 1, 0)]
    {
        let inserted = postgres.run(&format!("EXECUTE put({balance}, {number}, 'new')"));
        let expected = format!("INSERT 0 {rows}");
        assert_eq!(inserted, expected, "{balance} with {number}");
        let written = postgres.run(&format!("EXECUTE write({balance}, {number}, 'old')"));
        assert_eq!(written, format!("UPDATE {rows}"), "{balance} with {number}");
    }
    for id in ["new", "old"] {
        let read = |number| postgres.run(&format!("EXECUTE read({number}, '{id}')"));
        assert_eq!(read(LAST - 1), "UPDATE 0", "the token is stale");
        assert_eq!(read(LAST), "130\nUPDATE 1");
    }
    assert_eq!(postgres.run("EXECUTE write(1, 1, 'none')"), "UPDATE 0");
}

#[tokio::test]
async fn row_compares_tokens_after_waiting_for_its_lock() {
    let Some(postgres) = Postgres::start() else { return };
    let postgres = Arc::new(postgres);
    let mut fresh = postgres.session();
    fresh.execute("BEGIN; EXECUTE write(200, 8, 'old');");
    let is_written = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND granted";
    let is_one = |query: &'static str| {
        let postgres = postgres.clone();
        async move {
            while postgres.run(query) != "1" {
                sleep(ms(20)).await;
            }
        }
    };
    timeout(SOON, is_one(is_written)).await.expect("the first session has written the row");
    let late = postgres.clone();
    let late = tokio::task::spawn_blocking(move || late.run("EXECUTE write(1, 7, 'old')"));
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    timeout(SOON, is_one(waits)).await.expect("the second session waits");
    fresh.execute("COMMIT;");
    assert_eq!(late.await.expect("no panic"), "UPDATE 0", "the token is compared after the wait");
    assert_eq!(postgres.run("SELECT balance, token FROM accounts WHERE id = 'old'"), "200|8");
}
