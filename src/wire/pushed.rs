//! Buffer for invalidation pushes.

use redis::{PushKind, Value};

/// Limits of the buffer, in keys and bytes (I12). Beyond them, only the fact that keys have changed is kept.
const MAX_KEYS: usize = 1 << 10;
const MAX_BYTES: usize = 1 << 18;

/// Key changes that the server has pushed since the last poll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    pub(crate) keys: Vec<Vec<u8>>,
    /// The buffer overflowed: any key may have changed.
    pub(crate) has_lost: bool,
    pub(crate) is_flush: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pushes {
    pushed: Pushed,
    bytes: usize,
}

impl Pushes {
    pub(super) fn note(&mut self, kind: &PushKind, data: Vec<Value>) {
        if *kind != PushKind::Invalidate {
            // No key changed.
            return;
        }
        match data.into_iter().next() {
            Some(Value::Array(keys)) => keys.into_iter().for_each(|key| self.note_key(key)),
            Some(Value::Nil) => self.pushed.is_flush = true,
            // An unknown format: assume that any key has changed.
            _ => self.lose(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pushed == Pushed::default()
    }

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
    fn invalidation_buffer_overflows_at_its_limits() {
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
    fn polling_empties_the_buffer() {
        let mut pushes = Pushes::default();
        let long = "k".repeat(MAX_BYTES / 2 + 1);
        for _ in 0..3 {
            pushes.note(&PushKind::Invalidate, vec![Value::Array(vec![key(&long)])]);
            let told = pushes.take().expect("an invalidation");
            assert!(told.keys.len() == 1 && !told.has_lost);
        }
    }

    #[test]
    fn null_invalidation_is_a_flush() {
        let mut pushes = Pushes::default();
        pushes.note(&PushKind::Invalidate, vec![Value::Nil]);
        assert_eq!(pushes.take(), Some(Pushed { is_flush: true, ..Pushed::default() }));
    }
}
