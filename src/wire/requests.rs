//! Encoding of commands in RESP, the Redis serialization protocol.

use super::buffer::clear_buffer;

/// Encoded commands in sending order, each an array of bulk strings.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    len: usize,
    /// Maximum length of a reply to the commands that `len` counts, in bytes; 0 unless
    /// [`allow_reply`](Self::allow_reply) was called.
    longest_reply: usize,
}

/// Maximum length of a reply to a lock's command, in bytes. The reply contains a value and some numbers.
pub(super) const LOCK_REPLY: usize = 8 << 10;

/// Maximum length of a reply to `INFO` or `HELLO`, in bytes. These replies list modules, databases and replicas.
pub(super) const INFO_REPLY: usize = 1 << 20;

impl Requests {
    /// Starts a command. The caller must append exactly `arguments` arguments. Otherwise, the server would misinterpret
    /// the following commands.
    pub(crate) fn command(&mut self, name: &str, arguments: usize) -> Arguments<'_> {
        self.len += 1;
        put_length(&mut self.bytes, b'*', arguments + 1);
        Arguments { bytes: &mut self.bytes, missing: arguments + 1 }.arg(name)
    }

    /// Starts a command with precomputed words. The caller must append exactly `arguments` further arguments.
    pub(super) fn command_of(&mut self, words: Words<'_>, arguments: usize) -> Arguments<'_> {
        self.len += 1;
        let missing = words.count + arguments;
        put_length(&mut self.bytes, b'*', missing);
        Arguments { bytes: &mut self.bytes, missing }.words(words)
    }

    pub(super) fn allow_reply(&mut self, bytes: usize) {
        self.longest_reply = self.longest_reply.max(bytes);
    }

    /// Returns the maximum length of a reply to the current commands, in bytes. Resets the limit to [`LOCK_REPLY`].
    pub(super) fn take_longest_reply(&mut self) -> usize {
        std::mem::take(&mut self.longest_reply).max(LOCK_REPLY)
    }

    /// Appends `count` commands that are already encoded. No reply to these commands may be longer than [`LOCK_REPLY`].
    pub(crate) fn append_encoded(&mut self, bytes: &[u8], count: usize) {
        self.bytes.extend_from_slice(bytes);
        self.len += count;
    }

    /// Returns the number of commands since the last call of [`take_len`](Self::take_len). The server sends one reply
    /// to each command.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the bytes after they were sent, but keeps the number of commands.
    pub(super) fn clear_sent_bytes(&mut self) {
        let most = MAX_IDLE_CAPACITY.max(2 * self.bytes.len());
        clear_buffer(&mut self.bytes, most);
    }

    /// Frees the memory of the buffer, which must be empty.
    pub(super) fn free(&mut self) {
        debug_assert!(self.bytes.is_empty(), "bytes to send");
        self.bytes.shrink_to(0);
    }

    pub(super) fn take_len(&mut self) -> usize {
        std::mem::take(&mut self.len)
    }
}

/// Buffer capacity that is kept after long pipelines, in bytes, unless the pipelines are much longer.
const MAX_IDLE_CAPACITY: usize = 1 << 16;

/// The precomputed encoding of a command's constant words.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Words<'a> {
    /// Creates words from `bytes`, which must encode `count` bulk strings.
    pub(super) const fn new(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes, count }
    }
}

#[must_use = "a command lacks its arguments"]
pub(crate) struct Arguments<'a> {
    bytes: &'a mut Vec<u8>,
    missing: usize,
}

impl Arguments<'_> {
    pub(crate) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        let argument = argument.as_ref();
        debug_assert!(self.missing > 0, "too many arguments");
        self.missing = self.missing.wrapping_sub(1);
        self.bytes.reserve(argument.len() + MAX_DIGITS + 5);
        put_length(self.bytes, b'$', argument.len());
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn words(mut self, words: Words<'_>) -> Self {
        debug_assert!(self.missing >= words.count, "too many arguments");
        self.missing = self.missing.wrapping_sub(words.count);
        self.bytes.extend_from_slice(words.bytes);
        self
    }

    pub(crate) fn args<A: AsRef<[u8]>>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn number(self, number: u64) -> Self {
        let mut room = [0; MAX_DIGITS];
        let digits = digits(number, &mut room);
        self.arg(digits)
    }

    /// Completes the command. In debug builds, panics if an argument is missing.
    pub(crate) fn end(self) {
        debug_assert_eq!(self.missing, 0, "an argument is missing");
    }
}

/// Maximum number of decimal digits of a `u64`.
const MAX_DIGITS: usize = 20;

fn digits(mut number: u64, room: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut first = MAX_DIGITS;
    loop {
        first -= 1;
        room[first] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            return &room[first..];
        }
    }
}

/// Writes the header of an array or a bulk string: the type byte `mark` and the length.
fn put_length(bytes: &mut Vec<u8>, mark: u8, length: usize) {
    // Fast path for the usual lengths.
    if let Ok(length @ 0..100) = u8::try_from(length) {
        let (tens, ones) = (b'0' + length / 10, b'0' + length % 10);
        if length < 10 {
            bytes.extend_from_slice(&[mark, ones, b'\r', b'\n']);
        } else {
            bytes.extend_from_slice(&[mark, tens, ones, b'\r', b'\n']);
        }
        return;
    }
    let mut room = [0; MAX_DIGITS];
    bytes.push(mark);
    bytes.extend_from_slice(digits(length as u64, &mut room));
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_encoded_and_counted() {
        let mut requests = Requests::default();
        requests.command("SET", 3).arg("k").arg([0, 13, 10]).number(70).end();
        requests.command("TIME", 0).end();
        let bytes =
            b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\0\r\n\r\n$2\r\n70\r\n*1\r\n$4\r\nTIME\r\n";
        assert_eq!(requests.bytes(), bytes);
        requests.clear_sent_bytes();
        assert_eq!(requests.take_len(), 2);
        assert!(requests.bytes().is_empty());
        requests.command("DEL", 2).args(["a", "b"]).end();
        assert_eq!(requests.bytes(), b"*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n");
        assert_eq!((requests.len(), requests.take_len(), requests.len()), (1, 1, 0));
    }

    #[test]
    #[should_panic(expected = "missing")]
    fn missing_argument_panics() {
        Requests::default().command("GET", 1).end();
    }

    #[test]
    #[should_panic(expected = "too many")]
    fn extra_argument_panics() {
        Requests::default().command("TIME", 0).arg("now").end();
    }

    #[test]
    fn buffer_capacity_follows_recent_use() {
        let mut requests = Requests::default();
        let mut sent = |length: usize| {
            requests.command("ECHO", 1).arg(vec![7; length]).end();
            requests.clear_sent_bytes();
            requests.bytes.capacity()
        };
        let room = sent(4 * MAX_IDLE_CAPACITY);
        assert!((4 * MAX_IDLE_CAPACITY..=9 * MAX_IDLE_CAPACITY).contains(&room), "{room}");
        assert_eq!(sent(3 * MAX_IDLE_CAPACITY), room, "capacity in use is kept");
        assert!((1..=MAX_IDLE_CAPACITY).contains(&sent(1)), "not used again");
    }

    proptest! {
        #[test]
        fn encoding_matches_the_redis_crate(
            words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..12),
            number: u64,
        ) {
            let mut requests = Requests::default();
            requests.command("NAME", words.len() + 1).args(&words).number(number).end();
            let theirs = redis::cmd("NAME").arg(&words).arg(number).get_packed_command();
            prop_assert_eq!(requests.bytes(), &theirs[..]);
        }
    }
}
