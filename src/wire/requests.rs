//! Commands as the bytes that a server reads.

/// Commands one behind the other, in the order in which they go over the wire: each an array of bulk
/// strings, by the Redis serialization protocol.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    len: usize,
    /// The longest reply to one of those that are counted, if one is longer than that to a lock's command.
    longest_reply: usize,
}

/// The longest reply in bytes to a command of a lock: a value, and some numbers. A longer one is no reply.
pub(super) const LOCK_REPLY: usize = 8 << 10;

/// The longest reply in bytes to `INFO` and `HELLO`, which list modules, databases and replicas.
pub(super) const INFO_REPLY: usize = 1 << 20;

/// The longest reply in bytes to `CLIENT LIST`: a line of some 400 bytes for each connection.
pub(super) const CLIENTS_REPLY: usize = 64 << 20;

impl Requests {
    /// Begins a command that has so many `arguments` beside its name. They are to follow, no fewer and no
    /// more: a server would take what comes next for one of them.
    pub(crate) fn command(&mut self, name: &str, arguments: usize) -> Arguments<'_> {
        self.len += 1;
        put_length(&mut self.bytes, b'*', arguments + 1);
        Arguments { bytes: &mut self.bytes, missing: arguments + 1 }.arg(name)
    }

    /// Begins a command with its first `words`, which has so many `arguments` beside them.
    pub(super) fn command_of(&mut self, words: Words<'_>, arguments: usize) -> Arguments<'_> {
        self.len += 1;
        let missing = words.count + arguments;
        put_length(&mut self.bytes, b'*', missing);
        Arguments { bytes: &mut self.bytes, missing }.words(words)
    }

    /// Allows replies of up to `bytes` to the commands that are counted.
    pub(super) fn allow_reply(&mut self, bytes: usize) {
        self.longest_reply = self.longest_reply.max(bytes);
    }

    /// How many bytes a reply to one of the counted commands may have, which from then on are no longer counted.
    pub(super) fn take_longest_reply(&mut self) -> usize {
        std::mem::take(&mut self.longest_reply).max(LOCK_REPLY)
    }

    /// Adds the commands of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.len += other.len;
        self.allow_reply(other.longest_reply);
    }

    /// How many commands there are; each has one reply.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What is to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops what was sent, and goes on counting: the bytes must be those of whole commands. Room for about
    /// as much again is kept, and for a little in any case.
    pub(super) fn forget_bytes(&mut self) {
        let room = MOST_ROOM.max(2 * self.bytes.len());
        self.bytes.clear();
        self.bytes.shrink_to(room);
    }

    /// How many commands there are, which from then on are no longer counted.
    pub(super) fn take_len(&mut self) -> usize {
        std::mem::take(&mut self.len)
    }
}

/// So much room is kept, however little was sent.
const MOST_ROOM: usize = 1 << 16;

/// Words of a command that are the same every time, as they go over the wire: the commands of every lock
/// are put together from these.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Words<'a> {
    /// So many words; `bytes` must be these, each a bulk string.
    pub(super) const fn new(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes, count }
    }
}

/// A command whose arguments are being added.
#[must_use = "a command lacks its arguments"]
pub(crate) struct Arguments<'a> {
    bytes: &'a mut Vec<u8>,
    missing: usize,
}

impl Arguments<'_> {
    pub(crate) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        let argument = argument.as_ref();
        debug_assert!(self.missing > 0, "one argument too many");
        self.missing = self.missing.wrapping_sub(1);
        self.bytes.reserve(argument.len() + MAX_DIGITS + 5);
        put_length(self.bytes, b'$', argument.len());
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Arguments that are the same every time.
    pub(super) fn words(mut self, words: Words<'_>) -> Self {
        debug_assert!(self.missing >= words.count, "one argument too many");
        self.missing = self.missing.wrapping_sub(words.count);
        self.bytes.extend_from_slice(words.bytes);
        self
    }

    pub(crate) fn args<A: AsRef<[u8]>>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// A number, as its digits.
    pub(crate) fn number(self, number: u64) -> Self {
        let mut room = [0; MAX_DIGITS];
        let digits = digits(number, &mut room);
        self.arg(digits)
    }

    /// All arguments were added.
    pub(crate) fn end(self) {
        debug_assert_eq!(self.missing, 0, "an argument is missing");
    }
}

/// Of a 64-bit number.
const MAX_DIGITS: usize = 20;

/// The digits of `number`, at the end of `room`.
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

/// The head of an array or of a string: its mark, and how much it has.
fn put_length(bytes: &mut Vec<u8>, mark: u8, length: usize) {
    // Nearly all are that short.
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
    fn commands_are_arrays_of_strings_and_are_counted_until_they_are_taken() {
        let mut requests = Requests::default();
        requests.command("SET", 3).arg("k").arg([0, 13, 10]).number(70).end();
        requests.command("TIME", 0).end();
        let bytes =
            b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\0\r\n\r\n$2\r\n70\r\n*1\r\n$4\r\nTIME\r\n";
        assert_eq!(requests.bytes(), bytes);
        requests.forget_bytes();
        assert_eq!(requests.take_len(), 2);
        assert!(requests.bytes().is_empty());
        requests.command("DEL", 2).args(["a", "b"]).end();
        assert_eq!(requests.bytes(), b"*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n");
        assert_eq!((requests.len(), requests.take_len(), requests.len()), (1, 1, 0));
    }

    #[test]
    #[should_panic(expected = "missing")]
    fn an_argument_that_is_missing_is_noticed() {
        Requests::default().command("GET", 1).end();
    }

    #[test]
    #[should_panic(expected = "too many")]
    fn an_argument_that_was_not_announced_is_noticed() {
        Requests::default().command("TIME", 0).arg("now").end();
    }

    #[test]
    fn room_is_kept_for_what_is_sent_next_and_not_for_what_is_seldom() {
        let mut requests = Requests::default();
        let mut sent = |length: usize| {
            requests.command("ECHO", 1).arg(vec![7; length]).end();
            requests.forget_bytes();
            requests.bytes.capacity()
        };
        let room = sent(4 * MOST_ROOM);
        assert!((4 * MOST_ROOM..=9 * MOST_ROOM).contains(&room), "{room}");
        assert_eq!(sent(3 * MOST_ROOM), room, "it is used, so it stays");
        assert!((1..=MOST_ROOM).contains(&sent(1)), "it was used once");
    }

    proptest! {
        /// The redis crate writes the same.
        #[test]
        fn what_is_written_is_what_the_crate_writes(
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
