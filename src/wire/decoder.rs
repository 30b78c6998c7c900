//! Splits the incoming byte stream of a connection into replies.
//!
//! The decoder has its own parser for the most common kinds of replies. For all other replies, a scanner finds the end
//! of the reply and enforces limits, and the redis crate parses the bytes.

use super::buffer::clear_buffer;
use redis::{ErrorKind, RedisError, Value};
use std::borrow::Cow;

/// Maximum nesting depth of a reply. Replies to this crate's commands have at most three levels.
const MAX_DEPTH: usize = 16;

/// Maximum length of a reply, in bytes. Redis limits a string to 512 MB (`proto-max-bulk-len`).
const MAX_BYTES: usize = (1 << 29) + MAX_LINE;

/// Maximum length of a push, in bytes. A push contains keys that this client watches, each at most 64 KiB long.
const MAX_PUSH: usize = 1 << 20;

/// Maximum number of elements in a reply, over all levels. An element can be as short as three bytes on the wire, but
/// takes tens of bytes in memory. Replies to this crate's commands have at most some hundreds of elements.
const MAX_ELEMENTS: usize = 1 << 16;

/// Maximum length of a number, a status or an error, in bytes.
const MAX_LINE: usize = 1 << 16;

/// Buffer capacity that the decoder keeps after a large reply, in bytes.
const MAX_IDLE_CAPACITY: usize = 1 << 16;

/// An error for bytes that are not a valid reply. The decoder cannot parse the bytes that follow either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(super) &'static str);

impl From<Malformed> for RedisError {
    fn from(Malformed(why): Malformed) -> Self {
        (ErrorKind::Parse, "invalid Redis reply", why.to_owned()).into()
    }
}

/// A decoder for replies whose bytes arrive in arbitrary chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Number of `bytes` that are already decoded.
    read: usize,
    scanner: Scanner,
}

impl Decoder {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Frees the memory of bytes that are already decoded.
    pub(super) fn free(&mut self) {
        self.bytes.drain(..self.read);
        self.bytes.shrink_to_fit();
        self.read = 0;
    }

    /// Returns true if the undecoded bytes begin with a reply, and not with a push.
    pub(super) fn has_reply(&self) -> bool {
        self.bytes.get(self.read).is_some_and(|mark| *mark != b'>')
    }

    /// Decodes the next reply of at most `longest` bytes, or the next push. Returns `None` if the next reply or push is
    /// incomplete.
    pub(crate) fn next(&mut self, longest: usize) -> Result<Option<Value>, Malformed> {
        let unread = &self.bytes[self.read..];
        let common = common_reply(unread).filter(|(length, _)| *length <= longest);
        let (length, reply) = if let Some(common) = common {
            common
        } else {
            let longest = if unread.starts_with(b">") { MAX_PUSH } else { longest };
            let Some(length) = self.scanner.scan(unread, longest)? else { return Ok(None) };
            (length, parse(&unread[..length])?)
        };
        self.scanner = Scanner::default();
        self.read += length;
        if self.read == self.bytes.len() {
            clear_buffer(&mut self.bytes, MAX_IDLE_CAPACITY);
            self.read = 0;
        }
        Ok(Some(reply))
    }
}

/// An incremental scanner that finds the end of a reply that may span several chunks.
#[derive(Debug)]
struct Scanner {
    /// Number of elements that may still follow in this reply; see [`MAX_ELEMENTS`].
    left: usize,
    /// Offset of the next element.
    at: usize,
    /// Number of bytes of the next element's first line that were already searched for a line end.
    searched: usize,
    /// Number of elements that each open array or map still lacks, outermost first.
    missing: [usize; MAX_DEPTH],
    depth: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        let missing = [0; MAX_DEPTH];
        Self { left: 1 + MAX_ELEMENTS, at: 0, searched: 0, missing, depth: 0 }
    }
}

impl Scanner {
    /// Returns the length of the reply at the start of `bytes`, or `None` if the reply is incomplete.
    fn scan(&mut self, bytes: &[u8], max_bytes: usize) -> Result<Option<usize>, Malformed> {
        loop {
            let element = &bytes[self.at..];
            let Some((mark, line)) = line(element, self.searched)? else {
                self.searched = element.len().saturating_sub(2);
                return Ok(None);
            };
            // The type byte, the line and `\r\n`.
            let end = self.at + 1 + line.len() + 2;
            let (end, elements) = match mark {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (end, 0),
                b'$' | b'!' | b'=' => match length(line)? {
                    None => (end, 0),
                    Some(length) if end + length > max_bytes => return Err(TOO_LONG),
                    Some(length) if bytes.len() < end + length + 2 => return Ok(None),
                    Some(length) if !bytes[end + length..].starts_with(b"\r\n") => {
                        return Err(Malformed("string without line end"));
                    }
                    Some(length) => (end + length + 2, 0),
                },
                b'*' | b'~' | b'>' => (end, length(line)?.unwrap_or(0)),
                b'%' => (end, 2 * length(line)?.unwrap_or(0)),
                // The attributed element follows the attributes.
                b'|' => (end, 2 * length(line)?.unwrap_or(0) + 1),
                _ => return Err(Malformed("unknown type byte")),
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

    /// Records an element that contains `elements` further elements. Returns true if this element completes the reply.
    fn is_complete(&mut self, elements: usize) -> Result<bool, Malformed> {
        if elements > 0 {
            let missing = self.missing.get_mut(self.depth).ok_or(Malformed("nested too deeply"))?;
            *missing = elements;
            self.depth += 1;
            return Ok(false);
        }
        while let Some(innermost) = self.depth.checked_sub(1) {
            self.missing[innermost] -= 1;
            if self.missing[innermost] > 0 {
                return Ok(false);
            }
            self.depth = innermost;
        }
        Ok(true)
    }
}

const TOO_MANY: Malformed = Malformed("reply with more than 65,536 elements");
const TOO_LONG: Malformed = Malformed("reply longer than its command allows");

/// Returns the type byte and the rest of the first line, or `None` if the line is incomplete. The caller guarantees
/// that the first `searched` bytes after the type byte contain no line end.
fn line(bytes: &[u8], searched: usize) -> Result<Option<(u8, &[u8])>, Malformed> {
    let Some((mark, rest)) = bytes.split_first() else { return Ok(None) };
    let within = &rest[..rest.len().min(MAX_LINE)];
    let searched = searched.min(within.len());
    match within[searched..].windows(2).position(|two| two == b"\r\n") {
        Some(length) => Ok(Some((*mark, &rest[..searched + length]))),
        None if within.len() < MAX_LINE => Ok(None),
        None => Err(Malformed("line longer than 65,536 bytes")),
    }
}

/// Parses a length. Returns `None` for null (`-1`).
fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    if line == b"-1" {
        return Ok(None);
    }
    let length = integer(line).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= MAX_BYTES);
    length.map(Some).ok_or(Malformed("invalid length"))
}

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

fn parse(whole: &[u8]) -> Result<Value, Malformed> {
    if let Some((length, reply)) = common_reply(whole)
        && length == whole.len()
    {
        return Ok(reply);
    }
    redis::parse_redis_value(&to_utf8(whole)).map_err(|_| Malformed("malformed value"))
}

/// Replaces invalid UTF-8 in an error reply. The error for an unknown command repeats the command's arguments, which
/// may be binary and cut off at any byte.
fn to_utf8(whole: &[u8]) -> Cow<'_, [u8]> {
    if !whole.starts_with(b"-") {
        return Cow::Borrowed(whole);
    }
    match String::from_utf8_lossy(whole) {
        Cow::Borrowed(_) => Cow::Borrowed(whole),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Parses a reply of a common kind: `OK`, null, a number, a string, or a short array of these kinds. Returns the
/// reply's length in bytes and its value, or `None` if the reply is incomplete or of another kind.
fn common_reply(bytes: &[u8]) -> Option<(usize, Value)> {
    const MAX_LENGTH: usize = 8;

    let Some((b'*', line)) = line(bytes, 0).ok()? else { return common_element(bytes) };
    let count = integer(line).and_then(|count| usize::try_from(count).ok())?;
    if count > MAX_LENGTH {
        return None;
    }
    let mut end = 1 + line.len() + 2;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, element) = common_element(&bytes[end..])?;
        end += length;
        elements.push(element);
    }
    Some((end, Value::Array(elements)))
}

fn common_element(bytes: &[u8]) -> Option<(usize, Value)> {
    let (mark, line) = line(bytes, 0).ok()??;
    let end = 1 + line.len() + 2;
    match (mark, line) {
        (b'+', b"OK") => Some((end, Value::Okay)),
        (b'_', b"") | (b'$', b"-1") => Some((end, Value::Nil)),
        (b':', _) => Some((end, Value::Int(integer(line)?))),
        (b'$', _) => {
            let text_end = end.checked_add(length(line).ok()??)?;
            let rest = bytes.get(text_end..)?;
            let text = Value::BulkString(bytes[end..text_end].to_vec());
            rest.starts_with(b"\r\n").then_some((text_end + 2, text))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
