//! Commands as the bytes that a server reads.

/// Commands one behind the other, in the order in which they go over the wire: each an array of bulk
/// strings, by the Redis serialization protocol.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    len: usize,
}

impl Requests {
    /// Begins a command that has so many `arguments` beside its name. They are to follow, no fewer and no
    /// more: a server would take what comes next for one of them.
    pub(crate) fn command(&mut self, name: &str, arguments: usize) -> Arguments<'_> {
        self.len += 1;
        put_length(&mut self.bytes, b'*', arguments + 1);
        Arguments { bytes: &mut self.bytes, missing: arguments + 1 }.arg(name)
    }

    /// How many commands there are; each has one reply.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What is to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops what was sent, and goes on counting: the bytes must be those of whole commands. Room for as
    /// much again is kept, within reason.
    pub(super) fn forget_bytes(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MOST_ROOM);
    }

    /// How many commands there are, which from then on are no longer counted.
    pub(super) fn take_len(&mut self) -> usize {
        std::mem::take(&mut self.len)
    }
}

/// More than that is not kept for what is sent next.
const MOST_ROOM: usize = 1 << 16;

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
        put_length(self.bytes, b'$', argument.len());
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
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
        requests.command("ECHO", 1).arg(vec![7; 4 * MOST_ROOM]).end();
        requests.forget_bytes();
        assert!((1..=MOST_ROOM).contains(&requests.bytes.capacity()));
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
