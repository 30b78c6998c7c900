//! Buffer for the invalidations that a server pushes.

use redis::{PushKind, Value};

/// The maximum number of buffered keys. If this limit or [`MAX_BYTES`] is exceeded, the buffer discards the keys and
/// records only that some keys have changed. Every buffer has such a limit (I12).
const MAX_KEYS: usize = 1 << 10;
const MAX_BYTES: usize = 1 << 18;

/// The key changes that the server has pushed since the last call of [`InvalidationBuffer::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Invalidations {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Whether the buffer has overflowed, so that any key may have changed.
    pub(crate) overflowed: bool,
    pub(crate) flushed: bool,
}

#[derive(Debug, Default)]
pub(super) struct InvalidationBuffer {
    pushed: Invalidations,
    bytes: usize,
}

impl InvalidationBuffer {
    pub(super) fn record(&mut self, kind: &PushKind, data: Vec<Value>) {
        if *kind != PushKind::Invalidate {
            return;
        }
        match data.into_iter().next() {
            Some(Value::Array(keys)) => keys.into_iter().for_each(|key| self.record_key(key)),
            Some(Value::Nil) => self.pushed.flushed = true,
            // The format is unknown, so any key may have changed.
            _ => self.overflow(),
        }
    }

    pub(super) fn take(&mut self) -> Option<Invalidations> {
        self.bytes = 0;
        Some(std::mem::take(&mut self.pushed)).filter(|pushed| *pushed != Invalidations::default())
    }

    fn record_key(&mut self, key: Value) {
        let Value::BulkString(key) = key else { return };
        self.bytes += key.len();
        if self.pushed.keys.len() >= MAX_KEYS || self.bytes > MAX_BYTES {
            self.overflow();
        }
        if !self.pushed.overflowed {
            self.pushed.keys.push(key);
        }
    }

    fn overflow(&mut self) {
        self.pushed.overflowed = true;
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
        let mut pushes = InvalidationBuffer::default();
        assert_eq!(pushes.take(), None);
        pushes.record(&PushKind::Invalidate, vec![Value::Array(vec![key("a"), key("b")])]);
        pushes.record(&PushKind::Message, vec![key("c")]);
        let keys = vec![b"a".to_vec(), b"b".to_vec()];
        assert_eq!(pushes.take(), Some(Invalidations { keys, ..Invalidations::default() }));
        assert_eq!(pushes.take(), None);
        let lost = || Invalidations { overflowed: true, ..Invalidations::default() };
        let long = "k".repeat(MAX_BYTES / 4);
        for (name, count) in [("short", MAX_KEYS + 1), (&*long, 5)] {
            for _ in 0..count * 3 {
                pushes.record(&PushKind::Invalidate, vec![Value::Array(vec![key(name)])]);
                let bytes: usize = pushes.pushed.keys.iter().map(Vec::len).sum();
                assert!(pushes.pushed.keys.len() <= MAX_KEYS && bytes <= MAX_BYTES);
            }
            assert_eq!(pushes.take(), Some(lost()));
        }
        pushes.record(&PushKind::Invalidate, vec![Value::Int(7)]);
        assert_eq!(pushes.take(), Some(lost()), "no flush");
    }

    #[test]
    fn polling_empties_the_buffer() {
        let mut pushes = InvalidationBuffer::default();
        let long = "k".repeat(MAX_BYTES / 2 + 1);
        for _ in 0..3 {
            pushes.record(&PushKind::Invalidate, vec![Value::Array(vec![key(&long)])]);
            let told = pushes.take().expect("an invalidation");
            assert!(told.keys.len() == 1 && !told.overflowed);
        }
    }

    #[test]
    fn null_invalidation_is_a_flush() {
        let mut pushes = InvalidationBuffer::default();
        pushes.record(&PushKind::Invalidate, vec![Value::Nil]);
        assert_eq!(
            pushes.take(),
            Some(Invalidations { flushed: true, ..Invalidations::default() })
        );
    }
}
