//! The bytes of a server, reply by reply.
//!
//! Where a reply ends is found out here, within bounds; what it says, by hand for the few kinds that come with
//! every lock, and by the redis crate for all others.

use redis::{ErrorKind, RedisError, Value};
use std::borrow::Cow;

/// How deep replies may be nested. Nothing that is asked for here has more than three levels.
const MAX_DEPTH: usize = 16;

/// How long any reply may be: a string of a server has at most 512 MB (`proto-max-bulk-len`).
const MAX_BYTES: usize = (1 << 29) + MAX_LINE;

/// How long a push may be: it names keys that this client asked about, each of 64 KiB at most.
const MAX_PUSH: usize = 1 << 20;

/// How many elements a reply may have, over all levels: in memory each takes tens of bytes, on the wire as few as three.
/// Nothing that is asked for here has more than some hundreds.
const MAX_ELEMENTS: usize = 1 << 16;

/// How long a line may be: a number, a status or an error.
const MAX_LINE: usize = 1 << 16;

/// The reply that comes most often.
const OK: &[u8] = b"+OK\r\n";

/// What was not asked for is kept no longer than it is read.
const MOST_ROOM: usize = 1 << 16;

/// Why bytes are no reply. What follows them cannot be told apart either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(super) &'static str);

impl From<Malformed> for RedisError {
    fn from(Malformed(why): Malformed) -> Self {
        (ErrorKind::Parse, "no reply of Redis", why.to_owned()).into()
    }
}

/// Takes bytes as they come, in any pieces, and hands out replies.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// How many of these were handed out.
    read: usize,
    scanner: Scanner,
}

impl Decoder {
    /// Takes what has come.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// True if something has come, at least the first byte of it, that is not pushed.
    pub(super) fn has_reply(&self) -> bool {
        self.bytes.get(self.read).is_some_and(|mark| *mark != b'>')
    }

    /// The next reply, which has up to `longest` bytes, or what the server has pushed; `None` until all of it has
    /// come.
    pub(crate) fn next(&mut self, longest: usize) -> Result<Option<Value>, Malformed> {
        let unread = &self.bytes[self.read..];
        let (length, reply) = if unread.starts_with(OK) {
            (OK.len(), Value::Okay)
        } else {
            let longest = if unread.starts_with(b">") { MAX_PUSH } else { longest };
            let Some(length) = self.scanner.scan(unread, longest)? else { return Ok(None) };
            (length, parse(&unread[..length])?)
        };
        self.scanner = Scanner::default();
        self.read += length;
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(MOST_ROOM);
            self.read = 0;
        }
        Ok(Some(reply))
    }
}

/// Looks for the end of a reply, and goes on where it was when more has come.
#[derive(Debug)]
struct Scanner {
    /// How many elements may still begin.
    left: usize,
    /// Where the next element begins.
    at: usize,
    /// How much of its first line was searched for the end of that.
    searched: usize,
    /// How many elements each of the open ones still lacks, the outermost first.
    lacking: [usize; MAX_DEPTH],
    depth: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        let lacking = [0; MAX_DEPTH];
        Self { left: 1 + MAX_ELEMENTS, at: 0, searched: 0, lacking, depth: 0 }
    }
}

impl Scanner {
    /// How long the reply is that begins with `bytes`, at most `max_bytes`; `None` if its end is not among them.
    fn scan(&mut self, bytes: &[u8], max_bytes: usize) -> Result<Option<usize>, Malformed> {
        loop {
            let element = &bytes[self.at..];
            let Some((mark, line)) = line(element, self.searched)? else {
                self.searched = element.len().saturating_sub(2);
                return Ok(None);
            };
            // Its mark, and the two bytes that end a line.
            let end = self.at + 1 + line.len() + 2;
            let (end, elements) = match mark {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (end, 0),
                b'$' | b'!' | b'=' => match length(line)? {
                    None => (end, 0),
                    Some(length) if end + length > max_bytes => return Err(TOO_LONG),
                    Some(length) if bytes.len() < end + length + 2 => return Ok(None),
                    Some(length) if !bytes[end + length..].starts_with(b"\r\n") => {
                        return Err(Malformed("a string does not end where it should"));
                    }
                    Some(length) => (end + length + 2, 0),
                },
                b'*' | b'~' | b'>' => (end, length(line)?.unwrap_or(0)),
                b'%' => (end, 2 * length(line)?.unwrap_or(0)),
                // What it is an attribute of follows it.
                b'|' => (end, 2 * length(line)?.unwrap_or(0) + 1),
                _ => return Err(Malformed("it begins with no mark of a reply")),
            };
            if end > max_bytes {
                return Err(TOO_LONG);
            }
            self.left =
                self.left.checked_sub(1).filter(|left| elements <= *left).ok_or(TOO_MANY)?;
            (self.at, self.searched) = (end, 0);
            if self.is_complete(elements)? {
                return Ok(Some(end));
            }
        }
    }

    /// One more has come, which has so many elements of its own. True if it was the last of all.
    fn is_complete(&mut self, elements: usize) -> Result<bool, Malformed> {
        if elements > 0 {
            let lacking = self.lacking.get_mut(self.depth).ok_or(Malformed("nested too deep"))?;
            *lacking = elements;
            self.depth += 1;
            return Ok(false);
        }
        while let Some(innermost) = self.depth.checked_sub(1) {
            self.lacking[innermost] -= 1;
            if self.lacking[innermost] > 0 {
                return Ok(false);
            }
            self.depth = innermost;
        }
        Ok(true)
    }
}

const TOO_MANY: Malformed = Malformed("a reply of more than 65,536 elements");
const TOO_LONG: Malformed = Malformed("a reply longer than its command allows");

/// The mark of an element, and the rest of its first line; `None` if the end of that has not come. The first
/// `searched` bytes of the rest have none.
fn line(bytes: &[u8], searched: usize) -> Result<Option<(u8, &[u8])>, Malformed> {
    let Some((mark, rest)) = bytes.split_first() else { return Ok(None) };
    let within = &rest[..rest.len().min(MAX_LINE)];
    let searched = searched.min(within.len());
    match within[searched..].windows(2).position(|two| two == b"\r\n") {
        Some(length) => Ok(Some((*mark, &rest[..searched + length]))),
        None if within.len() < MAX_LINE => Ok(None),
        None => Err(Malformed("a line of more than 65,536 bytes")),
    }
}

/// How much follows; `None` where there is nothing instead (`-1`).
fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    if line == b"-1" {
        return Ok(None);
    }
    let length = integer(line).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= MAX_BYTES);
    length.map(Some).ok_or(Malformed("a length that cannot be"))
}

/// A number that is sent as its digits.
fn integer(digits: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match digits.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, digits),
    };
    let add = |number: i64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        let number = number.checked_mul(10)?;
        if is_negative { number.checked_sub(digit) } else { number.checked_add(digit) }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// What a whole reply says.
fn parse(whole: &[u8]) -> Result<Value, Malformed> {
    let mut rest = whole;
    match simple(&mut rest) {
        Some(value) if rest.is_empty() => Ok(value),
        _ => redis::parse_redis_value(&in_text(whole)).map_err(|_| Malformed("it cannot be read")),
    }
}

/// An error repeats the arguments of a command that the server does not know, up to some byte; what is no text
/// of them is shown as such. Anything else stays as it is.
fn in_text(whole: &[u8]) -> Cow<'_, [u8]> {
    if !whole.starts_with(b"-") {
        return Cow::Borrowed(whole);
    }
    match String::from_utf8_lossy(whole) {
        Cow::Borrowed(_) => Cow::Borrowed(whole),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The value that `bytes` begin with, if it is of the few kinds that come with every lock.
fn simple(bytes: &mut &[u8]) -> Option<Value> {
    let (mark, line) = line(bytes, 0).ok()??;
    let rest = &bytes[1 + line.len() + 2..];
    *bytes = rest;
    match (mark, line) {
        (b'+', b"OK") => Some(Value::Okay),
        (b'_', b"") | (b'$' | b'*', b"-1") => Some(Value::Nil),
        (b':', _) => integer(line).map(Value::Int),
        (b'$', _) => {
            let length = length(line).ok()??;
            let text = rest.get(..length)?.to_vec();
            *bytes = rest.get(length + 2..)?;
            Some(Value::BulkString(text))
        }
        (b'*', _) => {
            let length = length(line).ok()??;
            (0..length).map(|_| simple(bytes)).collect::<Option<_>>().map(Value::Array)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
