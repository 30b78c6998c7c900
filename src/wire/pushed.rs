//! What a server has pushed and nobody has looked at yet.

use redis::{PushKind, Value};

/// So many keys, and so many of their bytes, are kept (I12). Beyond, it is only known that keys have
/// changed.
const MAX_KEYS: usize = 1 << 10;
const MAX_BYTES: usize = 1 << 18;

/// What has happened to keys on the server since this was last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Any key may have changed: more was told than is kept.
    pub(crate) has_lost: bool,
    /// Keys were flushed.
    pub(crate) is_flush: bool,
}

/// Gathers what is pushed, however much that is.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    pushed: Pushed,
    bytes: usize,
}

impl Pushes {
    /// Takes a push.
    pub(super) fn note(&mut self, kind: &PushKind, data: Vec<Value>) {
        if *kind != PushKind::Invalidate {
            // It tells nothing of keys.
            return;
        }
        match data.into_iter().next() {
            Some(Value::Array(keys)) => keys.into_iter().for_each(|key| self.note_key(key)),
            Some(Value::Nil) => self.pushed.is_flush = true,
            // Whatever it is, it says that something changed.
            _ => self.lose(),
        }
    }

    /// True if there is nothing to be looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.pushed == Pushed::default()
    }

    /// All that was pushed, if there is something.
    pub(super) fn take(&mut self) -> Option<Pushed> {
        self.bytes = 0;
        Some(std::mem::take(&mut self.pushed)).filter(|pushed| *pushed != Pushed::default())
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

    fn key(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn keys_are_told_until_they_are_too_many_and_then_that_any_may_have_changed() {
        let mut pushes = Pushes::default();
        assert_eq!((pushes.is_empty(), pushes.take()), (true, None));
        pushes.note(&PushKind::Invalidate, vec![Value::Array(vec![key("a"), key("b")])]);
        pushes.note(&PushKind::Message, vec![key("c")]);
        assert!(!pushes.is_empty());
        let keys = vec![b"a".to_vec(), b"b".to_vec()];
        assert_eq!(pushes.take(), Some(Pushed { keys, ..Pushed::default() }));
        assert_eq!(pushes.take(), None);
        let lost = || Pushed { has_lost: true, ..Pushed::default() };
        let long = "k".repeat(MAX_BYTES / 4);
        for (name, count) in [("short", MAX_KEYS + 1), (&*long, 5)] {
            for _ in 0..count * 3 {
                pushes.note(&PushKind::Invalidate, vec![Value::Array(vec![key(name)])]);
                let bytes: usize = pushes.pushed.keys.iter().map(Vec::len).sum();
                assert!(pushes.pushed.keys.len() <= MAX_KEYS && bytes <= MAX_BYTES);
            }
            assert_eq!(pushes.take(), Some(lost()));
        }
        pushes.note(&PushKind::Invalidate, vec![Value::Int(7)]);
        assert_eq!(pushes.take(), Some(lost()), "no flush");
    }

    #[test]
    fn what_was_told_makes_room_for_more() {
        let mut pushes = Pushes::default();
        let long = "k".repeat(MAX_BYTES / 2 + 1);
        for _ in 0..3 {
            pushes.note(&PushKind::Invalidate, vec![Value::Array(vec![key(&long)])]);
            let told = pushes.take().expect("it was pushed");
            assert!(told.keys.len() == 1 && !told.has_lost);
        }
    }

    #[test]
    fn a_null_is_a_flush() {
        let mut pushes = Pushes::default();
        pushes.note(&PushKind::Invalidate, vec![Value::Nil]);
        assert_eq!(pushes.take(), Some(Pushed { is_flush: true, ..Pushed::default() }));
    }
}
