//! Parser that finds the push messages in a stream of replies.
//!
//! The first byte of a frame shows whether the frame is a push message. The parser therefore
//! forwards bytes without waiting for the end of their frame. The stream may be split anywhere.

/// A parser of one stream of replies, RESP2 or RESP3, from its first byte.
#[derive(Debug)]
pub(crate) struct Frames {
    place: Place,
    /// The number of frames, including nested frames, that must end before the top-level frame
    /// ends.
    open: u64,
    /// Whether the current frame is being discarded.
    is_discarded: bool,
}

/// The position within a frame.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The first byte of a frame.
    Start,
    /// The first line of a frame, with the part that has been parsed.
    Line { kind: u8, number: u64, is_null: bool },
    /// The bytes of a string, with the number of remaining bytes, including the line end.
    Text { left: u64 },
    /// A stream that is not RESP, which is forwarded unchanged.
    Lost,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { place: Place::Start, open: 0, is_discarded: false }
    }

    /// Parses the next `bytes` of the stream and returns the bytes to forward. If `without_pushes`
    /// is true, push messages that begin in `bytes` are discarded and counted in `discarded`. A
    /// push message is either forwarded or discarded as a whole.
    pub(crate) fn filter(
        &mut self,
        mut bytes: &[u8],
        without_pushes: bool,
        discarded: &mut u64,
    ) -> Vec<u8> {
        let mut kept = Vec::with_capacity(bytes.len());
        while let Some(first) = bytes.first() {
            if self.open == 0 {
                self.is_discarded = *first == b'>' && without_pushes;
                *discarded += u64::from(self.is_discarded);
                self.open = 1;
            }
            let (frame, rest) = bytes.split_at(self.advance(bytes));
            if !self.is_discarded {
                kept.extend_from_slice(frame);
            }
            bytes = rest;
        }
        kept
    }

    /// Parses until the end of the top-level frame or of `bytes`. Returns the number of parsed
    /// bytes.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.open > 0 {
            at += match self.place {
                Place::Start => {
                    self.place = start(bytes[at]);
                    1
                }
                Place::Line { kind, number, is_null } => {
                    self.read_line(bytes[at], kind, number, is_null);
                    1
                }
                Place::Text { left } => {
                    let here = left.min((bytes.len() - at) as u64);
                    self.place = Place::Text { left: left - here };
                    if here == left {
                        self.end(0);
                    }
                    usize::try_from(here).expect("at most `bytes.len()`")
                }
                Place::Lost => bytes.len() - at,
            };
        }
        at
    }

    fn read_line(&mut self, byte: u8, kind: u8, number: u64, is_null: bool) {
        match byte {
            b'\n' => self.end_line(kind, number, is_null),
            b'-' if is_counted(kind) => self.place = Place::Line { kind, number, is_null: true },
            b'0'..=b'9' if is_counted(kind) => {
                let number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
                self.place = Place::Line { kind, number, is_null };
            }
            b'\r' => {}
            _ if is_counted(kind) => self.place = Place::Lost,
            _ => {}
        }
    }

    fn end_line(&mut self, kind: u8, number: u64, is_null: bool) {
        match kind {
            _ if is_null => self.end(0),
            b'$' | b'!' | b'=' => self.place = Place::Text { left: number.saturating_add(2) },
            b'*' | b'~' | b'>' => self.end(number),
            b'%' => self.end(number.saturating_mul(2)),
            // An attribute precedes the frame to which it belongs.
            b'|' => self.end(number.saturating_mul(2).saturating_add(1)),
            _ => self.end(0),
        }
    }

    fn end(&mut self, nested: u64) {
        self.place = Place::Start;
        self.open = (self.open - 1).saturating_add(nested);
    }
}

fn start(kind: u8) -> Place {
    if b"+-:_#,($!=*~>%|".contains(&kind) {
        Place::Line { kind, number: 0, is_null: false }
    } else {
        Place::Lost
    }
}

/// Returns true if the first line of a frame of this kind contains a length.
fn is_counted(kind: u8) -> bool {
    b"$!=*~>%|".contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVALIDATION: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nr>1\r\n";

    /// Filters `stream` in chunks of `len` bytes. Returns the stream without push messages, and the
    /// number of push messages.
    fn filtered(stream: &[u8], len: usize) -> (Vec<u8>, u64) {
        let (mut frames, mut pushes) = (Frames::new(), 0);
        let chunks = stream.chunks(len).map(|chunk| frames.filter(chunk, true, &mut pushes));
        (chunks.collect::<Vec<_>>().concat(), pushes)
    }

    /// Checks that the parser finds push messages between any two of `replies`, and nowhere else,
    /// for every split of the stream.
    #[track_caller]
    fn finds_pushes_between(replies: &[&str]) {
        let plain = replies.concat();
        let mixed: String = replies.iter().flat_map(|reply| [INVALIDATION, *reply]).collect();
        for len in 1..=mixed.len() {
            let expected = (plain.clone().into_bytes(), replies.len() as u64);
            assert_eq!(filtered(mixed.as_bytes(), len), expected, "in chunks of {len}");
        }
        let twice = mixed.repeat(2).into_bytes();
        for cut in 0..twice.len() {
            let (mut frames, mut pushes) = (Frames::new(), 0);
            let mut kept = frames.filter(&twice[..cut], true, &mut pushes);
            kept.extend(frames.filter(&twice[cut..], true, &mut pushes));
            assert_eq!(kept, plain.repeat(2).into_bytes(), "cut at {cut}");
            assert_eq!(pushes, 2 * replies.len() as u64, "cut at {cut}");
        }
    }

    #[test]
    fn simple_frames_end_with_their_line() {
        finds_pushes_between(&["+OK\r\n", "-ERR >1 *2\r\n", ":-12\r\n", "_\r\n", "#t\r\n"]);
        finds_pushes_between(&[",-1.5e-3\r\n", "(-1234567890123\r\n", "+\r\n", "+-1\r\n"]);
    }

    #[test]
    fn strings_may_contain_any_bytes() {
        finds_pushes_between(&[
            "$5\r\n\r\n>1\r\r\n",
            "$0\r\n\r\n",
            "$1\r\n>\r\n",
            "$2\r\n\r\n\r\n",
        ]);
        finds_pushes_between(&["!5\r\nERR >\r\n", "=8\r\ntxt:>1\r\n\r\n"]);
    }

    #[test]
    fn aggregates_end_with_their_last_element() {
        finds_pushes_between(&["*2\r\n*2\r\n:1\r\n$1\r\n>\r\n*0\r\n", "*0\r\n", "~1\r\n+a\r\n"]);
        finds_pushes_between(&["%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n", "%0\r\n"]);
        finds_pushes_between(&[
            "|1\r\n+ttl\r\n:5\r\n*1\r\n:1\r\n",
            "*1\r\n|1\r\n+a\r\n:1\r\n:2\r\n",
        ]);
    }

    #[test]
    fn nulls_have_no_content() {
        finds_pushes_between(&["$-1\r\n", "*-1\r\n", "*2\r\n$-1\r\n*-1\r\n", "_\r\n"]);
    }

    #[test]
    fn nested_frames_are_no_pushes() {
        finds_pushes_between(&["*2\r\n:1\r\n>1\r\n+a\r\n", "~1\r\n>0\r\n"]);
        finds_pushes_between(&["%2\r\n+a\r\n:1\r\n+b\r\n>1\r\n+c\r\n"]);
        finds_pushes_between(&["*2\r\n|1\r\n+a\r\n:1\r\n:2\r\n>1\r\n+b\r\n"]);
    }

    #[test]
    fn pushes_of_all_kinds_are_found() {
        let pushes = ">1\r\n+a\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n>0\r\n>1\r\n*1\r\n>1\r\n:1\r\n";
        for len in 1..=pushes.len() {
            assert_eq!(filtered(pushes.as_bytes(), len), (Vec::new(), 4));
        }
    }

    #[test]
    fn pushes_are_forwarded_or_discarded_as_a_whole() {
        let stream = ["+a\r\n", INVALIDATION, "+b\r\n"].concat().into_bytes();
        for cut in 0..stream.len() {
            // The setting changes between the two parts, in either direction.
            let (mut frames, mut pushes) = (Frames::new(), 0);
            let mut kept = frames.filter(&stream[..cut], false, &mut pushes);
            kept.extend(frames.filter(&stream[cut..], true, &mut pushes));
            let begins_later = cut <= 4;
            assert_eq!(kept == stream, !begins_later, "cut at {cut}");
            assert_eq!(pushes, u64::from(begins_later), "cut at {cut}");
            let (mut frames, mut pushes) = (Frames::new(), 0);
            let mut kept = frames.filter(&stream[..cut], true, &mut pushes);
            kept.extend(frames.filter(&stream[cut..], false, &mut pushes));
            assert_eq!(kept == stream, begins_later, "cut at {cut}");
            assert_eq!(
                kept.len(),
                stream.len() - if begins_later { 0 } else { INVALIDATION.len() }
            );
        }
    }

    #[test]
    fn stream_that_is_not_resp_is_forwarded_unchanged() {
        for stream in
            ["request", "\u{16}\u{3}>1\r\n", "*x\r\n>1\r\n+a\r\n", "+OK\r\nGET >\r\n>1\r\n"]
        {
            for len in 1..=stream.len() {
                assert_eq!(filtered(stream.as_bytes(), len), (stream.as_bytes().to_vec(), 0));
            }
        }
    }
}
