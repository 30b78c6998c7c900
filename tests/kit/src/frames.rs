//! Where the frames of a stream of replies begin and end, and which of them are pushes.
//!
//! The first byte of a frame tells whether it is a push, so no byte has to be kept until its frame
//! is complete: a stream may be cut into chunks anywhere.

/// Follows one stream of replies, RESP2 or RESP3, from its first byte on.
#[derive(Debug)]
pub(crate) struct Frames {
    place: Place,
    /// How many frames have to end, nested ones included, until the frame at the top level has.
    open: u64,
    /// True while the frame under way is being left out.
    is_left_out: bool,
}

/// Where in a frame the stream is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At the first byte of a frame.
    Start,
    /// In its first line, of which that much is known.
    Line { kind: u8, number: u64, is_null: bool },
    /// In the bytes of a string, of which so many are to come, with the line end behind them.
    Text { left: u64 },
    /// This is not RESP: nothing is known any more.
    Lost,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { place: Place::Start, open: 0, is_left_out: false }
    }

    /// Takes in the next `bytes` of the stream, and returns them without the pushes that begin in
    /// them, if `without_pushes`, and without the rest of those that were left out before. A push
    /// of which a part was let pass is let pass. Adds to `left_out` for each.
    pub(crate) fn filter(
        &mut self,
        mut bytes: &[u8],
        without_pushes: bool,
        left_out: &mut u64,
    ) -> Vec<u8> {
        let mut kept = Vec::with_capacity(bytes.len());
        while let Some(first) = bytes.first() {
            if self.open == 0 {
                self.is_left_out = *first == b'>' && without_pushes;
                *left_out += u64::from(self.is_left_out);
                self.open = 1;
            }
            let (frame, rest) = bytes.split_at(self.advance(bytes));
            if !self.is_left_out {
                kept.extend_from_slice(frame);
            }
            bytes = rest;
        }
        kept
    }

    /// Goes on to the end of the frame at the top level, or of `bytes`; returns how many of them
    /// that is.
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
                    usize::try_from(here).expect("no more than there are")
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
            // Attributes stand before the frame that they belong to.
            b'|' => self.end(number.saturating_mul(2).saturating_add(1)),
            _ => self.end(0),
        }
    }

    /// A frame has ended, but for so many that are nested in it.
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

/// Whether the first line of such a frame says how much follows.
fn is_counted(kind: u8) -> bool {
    b"$!=*~>%|".contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVALIDATION: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nr>1\r\n";

    /// What is left of `stream` without pushes, and how many there were, read in chunks of `len`.
    fn filtered(stream: &[u8], len: usize) -> (Vec<u8>, u64) {
        let (mut frames, mut pushes) = (Frames::new(), 0);
        let chunks = stream.chunks(len).map(|chunk| frames.filter(chunk, true, &mut pushes));
        (chunks.collect::<Vec<_>>().concat(), pushes)
    }

    /// Asserts that pushes are found between any two of `replies`, and nowhere else, however the
    /// stream is cut.
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
    fn simple_replies_end_with_their_line() {
        finds_pushes_between(&["+OK\r\n", "-ERR >1 *2\r\n", ":-12\r\n", "_\r\n", "#t\r\n"]);
        finds_pushes_between(&[",-1.5e-3\r\n", "(-1234567890123\r\n", "+\r\n", "+-1\r\n"]);
    }

    #[test]
    fn strings_may_contain_anything() {
        finds_pushes_between(&[
            "$5\r\n\r\n>1\r\r\n",
            "$0\r\n\r\n",
            "$1\r\n>\r\n",
            "$2\r\n\r\n\r\n",
        ]);
        finds_pushes_between(&["!5\r\nERR >\r\n", "=8\r\ntxt:>1\r\n\r\n"]);
    }

    #[test]
    fn aggregates_end_with_the_last_of_what_is_nested_in_them() {
        finds_pushes_between(&["*2\r\n*2\r\n:1\r\n$1\r\n>\r\n*0\r\n", "*0\r\n", "~1\r\n+a\r\n"]);
        finds_pushes_between(&["%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n", "%0\r\n"]);
        finds_pushes_between(&[
            "|1\r\n+ttl\r\n:5\r\n*1\r\n:1\r\n",
            "*1\r\n|1\r\n+a\r\n:1\r\n:2\r\n",
        ]);
    }

    #[test]
    fn nulls_have_nothing_behind_them() {
        finds_pushes_between(&["$-1\r\n", "*-1\r\n", "*2\r\n$-1\r\n*-1\r\n", "_\r\n"]);
    }

    #[test]
    fn what_is_nested_in_a_reply_is_no_push() {
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
    fn pushes_are_let_pass_unless_told_otherwise_and_always_as_a_whole() {
        let stream = ["+a\r\n", INVALIDATION, "+b\r\n"].concat().into_bytes();
        for cut in 0..stream.len() {
            // In the part where it begins, this push is to pass; in the other not, or the reverse.
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
    fn what_is_not_resp_is_let_pass_as_it_is() {
        for stream in
            ["request", "\u{16}\u{3}>1\r\n", "*x\r\n>1\r\n+a\r\n", "+OK\r\nGET >\r\n>1\r\n"]
        {
            for len in 1..=stream.len() {
                assert_eq!(filtered(stream.as_bytes(), len), (stream.as_bytes().to_vec(), 0));
            }
        }
    }
}
