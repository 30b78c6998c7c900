//! Values that only the process that created them may drop.

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::process;
use std::task::{Context, Poll};

/// A value that is leaked instead of dropped in a forked process. The destructor of a tokio stream removes the stream
/// from the runtime's epoll instance, which a forked process shares with its parent: the parent would no longer be
/// notified of replies.
pub(crate) struct ProcessBound<T> {
    /// `Some` until this value is dropped.
    value: Option<T>,
    process: u32,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: process::id() }
    }
}

impl<T> Deref for ProcessBound<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is taken only when it is dropped")
    }
}

impl<T> DerefMut for ProcessBound<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is taken only when it is dropped")
    }
}

impl<F: Future + Unpin> Future for ProcessBound<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut **self).poll(cx)
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn value_is_dropped_only_in_its_own_process() {
        let value = Arc::new(());
        drop(ProcessBound::new(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
        drop(ProcessBound { value: Some(value.clone()), process: process::id() + 1 });
        assert_eq!(Arc::strong_count(&value), 2, "the copy is leaked");
    }
}
