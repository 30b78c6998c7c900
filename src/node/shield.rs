//! Converts panics in application code to errors, so that a panic does not end a task of the client.

use crate::sync::drop_panic_payload;
use crate::wire::NodeFailure;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// The maximum length of a panic message in an error, in characters.
const MAX_TOLD: usize = 200;

/// Awaits `future`. If it panics, returns the error that `failure` creates from the panic message.
pub(crate) async fn shield<T>(
    future: impl Future<Output = Result<T, NodeFailure>>,
    failure: impl FnOnce(String) -> NodeFailure,
) -> Result<T, NodeFailure> {
    let done = AssertUnwindSafe(future).catch_unwind().await;
    done.unwrap_or_else(|thrown| {
        let message = message(&*thrown);
        drop_panic_payload(thrown);
        Err(failure(message))
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.and_then(first_line).unwrap_or("no message"))
}

/// Returns the first line of `text` that is not blank, truncated to [`MAX_TOLD`] characters. Returns `None` if all
/// lines are blank.
pub(super) fn first_line(text: &str) -> Option<&str> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.char_indices().nth(MAX_TOLD).map_or(line, |(end, _)| &line[..end]))
}

#[cfg(test)]
#[path = "shield_tests.rs"]
mod tests;
