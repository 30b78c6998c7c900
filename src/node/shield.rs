//! Panics of other people's code, which end neither a node's task nor what it has under way.

use crate::wire::NodeFailure;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// So much of a panic's message is told.
const MAX_TOLD: usize = 200;

/// What `future` comes to; a panic in it is a failure too, told as what `failure` makes of it.
pub(super) async fn shield<T>(
    future: impl Future<Output = Result<T, NodeFailure>>,
    failure: impl FnOnce(String) -> NodeFailure,
) -> Result<T, NodeFailure> {
    let done = AssertUnwindSafe(future).catch_unwind().await;
    done.unwrap_or_else(|panic| Err(failure(message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let line = text.and_then(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
    let line = line.unwrap_or("for no known reason");
    format!("panicked: {}", line.chars().take(MAX_TOLD).collect::<String>())
}

#[cfg(test)]
#[path = "shield_tests.rs"]
pub(super) mod tests;
