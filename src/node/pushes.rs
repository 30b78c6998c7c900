//! What a server has pushed and nobody has looked at yet.

use crate::sync::lock;
use futures::task::AtomicWaker;
use redis::{PushInfo, PushKind, Value};
use std::sync::Mutex;
use std::task::{Context, Poll};

/// So many keys, and so many of their bytes, are kept (I12). Beyond, it is only known that keys have
/// changed.
const MAX_KEYS: usize = 1 << 10;
const MAX_BYTES: usize = 1 << 18;

/// Filled by the connection, which must not wait, and emptied by the node's task.
#[derive(Default)]
pub(super) struct PushQueue {
    state: Mutex<State>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    pushed: Pushed,
    bytes: usize,
    is_closed: bool,
}

/// What has happened to keys on the server since this was last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pushed {
    pub(super) keys: Vec<Vec<u8>>,
    /// Any key may have changed: more was told than is kept.
    pub(super) has_lost: bool,
    /// Keys were flushed.
    pub(super) is_flush: bool,
}

impl PushQueue {
    /// Takes a push from the connection.
    pub(super) fn put(&self, push: PushInfo) {
        let mut state = lock(&self.state);
        match push.kind {
            PushKind::Disconnection => state.is_closed = true,
            PushKind::Invalidate => state.note(push.data),
            // It tells nothing of keys.
            _ => return,
        }
        drop(state);
        self.waker.wake();
    }

    /// All that was pushed, once there is something; `None` if the server has closed the connection.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Pushed>> {
        self.waker.register(cx.waker());
        let mut state = lock(&self.state);
        if state.pushed != Pushed::default() {
            state.bytes = 0;
            return Poll::Ready(Some(std::mem::take(&mut state.pushed)));
        }
        if state.is_closed { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl State {
    fn note(&mut self, data: Vec<Value>) {
        match data.into_iter().next() {
            Some(Value::Array(keys)) => keys.into_iter().for_each(|key| self.note_key(key)),
            Some(Value::Nil) => self.pushed.is_flush = true,
            // Whatever it is, it says that something changed.
            _ => self.lose(),
        }
    }

    fn note_key(&mut self, key: Value) {
        let Value::BulkString(key) = key else { return };
        self.bytes += key.len();
        if self.pushed.keys.len() >= MAX_KEYS || self.bytes > MAX_BYTES {
            self.lose();
        }
        if !self.pushed.has_lost {
            self.pushed.keys.push(key);
        }
    }

    fn lose(&mut self) {
        self.pushed.has_lost = true;
        self.pushed.keys = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::tests::Count;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::Waker;

    fn invalidate(data: Value) -> PushInfo {
        PushInfo { kind: PushKind::Invalidate, data: vec![data] }
    }

    fn key(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn take(queue: &PushQueue) -> Poll<Option<Pushed>> {
        queue.poll(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn keys_are_told_until_they_are_too_many_and_then_that_any_may_have_changed() {
        let queue = PushQueue::default();
        assert_eq!(take(&queue), Poll::Pending);
        queue.put(invalidate(Value::Array(vec![key("a"), key("b")])));
        queue.put(PushInfo { kind: PushKind::Message, data: vec![key("c")] });
        let keys = vec![b"a".to_vec(), b"b".to_vec()];
        let told = Pushed { keys, ..Pushed::default() };
        assert_eq!(take(&queue), Poll::Ready(Some(told)));
        assert_eq!(take(&queue), Poll::Pending);
        let lost = Pushed { has_lost: true, ..Pushed::default() };
        let long = "k".repeat(MAX_BYTES / 4);
        for (name, count) in [("short", MAX_KEYS + 1), (&*long, 5)] {
            for _ in 0..count * 3 {
                queue.put(invalidate(Value::Array(vec![key(name)])));
                let state = lock(&queue.state);
                let bytes: usize = state.pushed.keys.iter().map(Vec::len).sum();
                assert!(state.pushed.keys.len() <= MAX_KEYS && bytes <= MAX_BYTES);
            }
            assert_eq!(
                take(&queue),
                Poll::Ready(Some(Pushed { has_lost: true, ..<_>::default() }))
            );
        }
        queue.put(invalidate(Value::Int(7)));
        assert_eq!(take(&queue), Poll::Ready(Some(lost)), "no flush");
    }

    #[test]
    fn what_was_told_makes_room_for_more() {
        let queue = PushQueue::default();
        let long = "k".repeat(MAX_BYTES / 2 + 1);
        for _ in 0..3 {
            queue.put(invalidate(Value::Array(vec![key(&long)])));
            let Poll::Ready(Some(told)) = take(&queue) else { panic!("it was pushed") };
            assert!(told.keys.len() == 1 && !told.has_lost);
        }
    }

    #[test]
    fn keys_and_the_end_wake_the_task_that_waits_and_nothing_else_does() {
        for (kind, wakes) in [
            (PushKind::Invalidate, true),
            (PushKind::Disconnection, true),
            (PushKind::Message, false),
        ] {
            let (queue, count) = (PushQueue::default(), Arc::<Count>::default());
            let waker = Waker::from(count.clone());
            assert_eq!(queue.poll(&Context::from_waker(&waker)), Poll::Pending);
            queue.put(PushInfo { kind: kind.clone(), data: vec![Value::Nil] });
            assert_eq!(count.0.load(Ordering::Relaxed) > 0, wakes, "{kind:?}");
        }
    }

    #[test]
    fn a_null_is_a_flush_and_the_end_comes_last() {
        let queue = PushQueue::default();
        queue.put(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        queue.put(invalidate(Value::Nil));
        let flush = Pushed { is_flush: true, ..Pushed::default() };
        assert_eq!(take(&queue), Poll::Ready(Some(flush)));
        assert_eq!(take(&queue), Poll::Ready(None));
        assert_eq!(take(&queue), Poll::Ready(None));
    }
}
