//! An HTTP handler that works under a lock. The handler replies 409 while another request holds the lock, and 503 while
//! too few nodes reply, with `Retry-After`:
//! `cargo run -p quorlock-http -- redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3`, then
//! `curl -X POST localhost:PORT/orders/42/pay`

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use quorlock::{AcquireError, Lease, Redlock, UsingError};
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::builder().nodes(std::env::args().skip(1)).build()?;
    let router = Router::new().route("/orders/{id}/pay", post(pay)).with_state(redlock);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// Charges an order under its lock. If the client disconnects, this future is dropped, which releases the lock.
async fn pay(State(redlock): State<Redlock>, Path(id): Path<u64>) -> Response {
    // One attempt, so that a request does not wait for another request. Unlike `try_acquire`, `acquire` also reads the
    // remaining ttl of a held lock.
    let lock = redlock.acquire(format!("orders/{id}")).max_attempts(1);
    match lock.using(charge).await {
        Ok(receipt) => (StatusCode::OK, receipt).into_response(),
        Err(UsingError::NotAcquired(error)) => refusal(&error),
        // The order may have been paid: check the order before you retry.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn refusal(error: &AcquireError) -> Response {
    let status = if error.is_contended() {
        StatusCode::CONFLICT
    } else if error.is_unavailable() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let seconds = error.retry_after().map_or(1, |time| time.as_secs() + 1);
    // The report names the nodes: log the report, but do not send it to the client.
    eprintln!("{error}");
    (status, [(RETRY_AFTER, seconds.to_string())]).into_response()
}

async fn charge(lease: &Lease) -> &'static str {
    println!("charging; the lock is valid for {:?}", lease.validity());
    tokio::time::sleep(Duration::from_secs(1)).await;
    "paid\n"
}
