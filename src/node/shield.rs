//! Panics of the application's code, which do not end a task of the client.

use crate::sync::discard;
use crate::wire::NodeFailure;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// Maximum number of characters of a panic message in an error.
const MAX_TOLD: usize = 200;

/// Awaits `future`. A panic in it becomes the error that `failure` makes of its message.
pub(crate) async fn shield<T>(
    future: impl Future<Output = Result<T, NodeFailure>>,
    failure: impl FnOnce(String) -> NodeFailure,
) -> Result<T, NodeFailure> {
    let done = AssertUnwindSafe(future).catch_unwind().await;
    done.unwrap_or_else(|thrown| {
        let message = message(&*thrown);
        discard(thrown);
        Err(failure(message))
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.and_then(first_line).unwrap_or("no message"))
}

/// The first line of a text from the application that is not empty, cut to [`MAX_TOLD`] characters; `None` if there is
/// none.
pub(super) fn first_line(text: &str) -> Option<&str> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.char_indices().nth(MAX_TOLD).map_or(line, |(end, _)| &line[..end]))
}

#[cfg(test)]
#[path = "shield_tests.rs"]
mod tests;
