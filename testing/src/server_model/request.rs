//! Reader of commands from a byte stream that may be split anywhere.

const UNAUTHENTICATED_ARGUMENTS: i64 = 10;
/// Maximum length of an argument before authentication, in bytes, as in Redis.
const UNAUTHENTICATED_BYTES: i64 = 16_384;
const MOST_ARGUMENTS: i64 = i32::MAX as i64;
const MOST_BYTES: i64 = 512 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct RequestReader {
    bytes: Vec<u8>,
    /// Number of bytes in `bytes` that belong to commands already returned.
    read: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Command(Vec<Vec<u8>>),
    /// The next command has not been received completely.
    Part,
    /// A protocol error, with the text of the error reply. The caller must close the connection.
    Broken(String),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum Stop {
    Part,
    Broken(String),
}

impl RequestReader {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next command from the received bytes. Skips empty commands, as Redis does.
    pub(crate) fn next(&mut self, is_unauthenticated: bool) -> Next {
        loop {
            let mut cursor = Cursor { bytes: &self.bytes[self.read..], at: 0 };
            match cursor.command(is_unauthenticated) {
                Ok(arguments) => {
                    self.read += cursor.at;
                    if !arguments.is_empty() {
                        return Next::Command(arguments);
                    }
                }
                Err(Stop::Part) => return Next::Part,
                Err(Stop::Broken(error)) => return Next::Broken(error),
            }
        }
    }
}

impl Cursor<'_> {
    fn command(&mut self, is_unauthenticated: bool) -> Result<Vec<Vec<u8>>, Stop> {
        if self.bytes.first().is_some_and(|mark| *mark != b'*') {
            return self.inline();
        }
        let count = number(self.line()?, MOST_ARGUMENTS);
        let count = count.ok_or_else(|| broken("invalid multibulk length"))?;
        if is_unauthenticated && count > UNAUTHENTICATED_ARGUMENTS {
            return Err(broken("unauthenticated multibulk length"));
        }
        (0..count).map(|_| self.argument(is_unauthenticated)).collect()
    }

    fn argument(&mut self, is_unauthenticated: bool) -> Result<Vec<u8>, Stop> {
        let line = self.line()?;
        if line.first() != Some(&b'$') {
            let got = line.first().map_or(' ', |byte| char::from(*byte));
            return Err(broken(&format!("expected '$', got '{got}'")));
        }
        let length = number(line, MOST_BYTES).filter(|length| *length >= 0);
        let length = length.ok_or_else(|| broken("invalid bulk length"))?;
        if is_unauthenticated && length > UNAUTHENTICATED_BYTES {
            return Err(broken("unauthenticated bulk length"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let rest = &self.bytes[self.at..];
        // Redis does not check that the two bytes after the argument are CR LF.
        if rest.len() < length + 2 {
            return Err(Stop::Part);
        }
        self.at += length + 2;
        Ok(rest[..length].to_vec())
    }

    /// Parses an inline command: words on one line, separated by white space.
    fn inline(&mut self) -> Result<Vec<Vec<u8>>, Stop> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n').ok_or(Stop::Part)?;
        self.at = end + 1;
        let words = self.bytes[..end].split(u8::is_ascii_whitespace);
        Ok(words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn line(&mut self) -> Result<&[u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n").ok_or(Stop::Part)?;
        self.at += end + 2;
        Ok(&rest[..end])
    }
}

fn broken(why: &str) -> Stop {
    Stop::Broken(format!("ERR Protocol error: {why}"))
}

fn number(line: &[u8], most: i64) -> Option<i64> {
    integer(line.get(1..)?).filter(|number| *number <= most)
}

/// Parses an integer as Redis does: a plus sign, leading zeros and white space are invalid.
pub(crate) fn integer(digits: &[u8]) -> Option<i64> {
    let is_canonical = match digits {
        [b'0'] => true,
        [b'-', first, ..] | [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    std::str::from_utf8(digits).ok().filter(|_| is_canonical)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Next {
        Next::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    #[test]
    fn commands_are_complete_wherever_the_stream_is_split() {
        let stream = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*0\r\n\r\nPING  hi\r\n*1\r\n$0\r\n\r\n";
        for cut in 1..stream.len() {
            let mut requests = RequestReader::default();
            let mut found = Vec::new();
            for part in stream.chunks(cut) {
                requests.add(part);
                loop {
                    match requests.next(false) {
                        Next::Part => break,
                        next => found.push(next),
                    }
                }
            }
            let expected = [command(&["GET", "a\r\nb"]), command(&["PING", "hi"]), command(&[""])];
            assert_eq!(found, expected, "in parts of {cut}");
        }
    }

    #[test]
    fn integer_in_noncanonical_form_is_none() {
        for (text, expected) in [("7", Some(7)), ("-7", Some(-7)), ("0", Some(0))] {
            assert_eq!(integer(text.as_bytes()), expected);
        }
        for text in ["+7", "07", "-0", "", " 7", "7 ", "x", "9223372036854775808"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
