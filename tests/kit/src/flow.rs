//! What is on its way in one direction of one proxied connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::frames::Frames;

/// A flow stops reading while it has this many bytes to deliver.
const QUEUE_LIMIT_BYTES: usize = 64 << 20;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are delivered when they are due.
    #[default]
    Pass,
    /// They wait until the mode changes.
    Hold,
    /// They are lost.
    BlackHole,
}

/// What all flows of a direction have in common.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) mode: Mode,
    pub(crate) delay: Duration,
    /// The bytes read so far.
    pub(crate) bytes: u64,
    /// Whether pushes are lost.
    pub(crate) swallows_pushes: bool,
    /// The pushes lost so far.
    pub(crate) swallowed: u64,
}

/// What a delivery has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// There may be more to deliver, now or later.
    Open,
    /// The flow has reached its end.
    Ended,
    /// The whole connection is to be reset.
    Reset,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Debug)]
struct Parcel {
    due: Instant,
    content: Content,
}

/// Reads from a source and writes to a destination, both non-blocking, what the wire lets pass.
#[derive(Debug)]
pub(crate) struct Flow {
    frames: Frames,
    queue: VecDeque<Parcel>,
    queued_bytes: usize,
    /// How many bytes of the first parcel have been delivered.
    sent: usize,
    source_ended: bool,
    destination: Destination,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// May have room.
    Open,
    /// Had no room when last written to.
    Full,
    /// Takes no more bytes, ever.
    Gone,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self {
            frames: Frames::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            sent: 0,
            source_ended: false,
            destination: Destination::Open,
            ended: false,
        }
    }

    /// Whether to call [`read`](Self::read) when the source has bytes.
    pub(crate) fn wants_bytes(&self) -> bool {
        !self.source_ended && self.queued_bytes < QUEUE_LIMIT_BYTES
    }

    /// Whether to call [`deliver`](Self::deliver) when the destination has room.
    pub(crate) fn wants_room(&self, wire: &Wire) -> bool {
        self.destination == Destination::Full && wire.mode == Mode::Pass
    }

    /// When to call [`deliver`](Self::deliver) next, if nothing else happens before.
    pub(crate) fn next_due(&self, wire: &Wire) -> Option<Instant> {
        let timed = wire.mode == Mode::Pass && self.destination != Destination::Full;
        self.queue.front().filter(|_| timed).map(|parcel| parcel.due)
    }

    /// Takes one chunk from the source. With `cut`, only that many of its bytes, and then the
    /// connection's reset. Uses up `cut` when the chunk is not lost as a whole.
    pub(crate) fn read(
        &mut self,
        mut source: &TcpStream,
        wire: &mut Wire,
        buffer: &mut [u8],
        cut: &mut Option<usize>,
    ) {
        let len = match source.read(buffer) {
            Ok(0) => return self.end(Content::Fin, wire),
            Ok(len) => len,
            Err(error) if is_temporary(&error) => return,
            Err(_) => return self.end(Content::Reset, wire),
        };
        wire.bytes += len as u64;
        let swallows = wire.swallows_pushes;
        let mut bytes = self.frames.filter(&buffer[..len], swallows, &mut wire.swallowed);
        let is_lost = bytes.is_empty() || wire.mode == Mode::BlackHole;
        if is_lost || self.destination == Destination::Gone {
            return;
        }
        let cut = cut.take();
        bytes.truncate(cut.unwrap_or(len));
        self.queued_bytes += bytes.len();
        self.push(Content::Bytes(bytes), wire);
        if cut.is_some() {
            self.end(Content::Reset, wire);
        }
    }

    /// Writes what is due by `now`, as far as the destination has room.
    pub(crate) fn deliver(
        &mut self,
        mut destination: &TcpStream,
        wire: &Wire,
        now: Instant,
    ) -> Delivery {
        self.expect_room();
        while wire.mode == Mode::Pass
            && let Some(parcel) = self.queue.front()
            && parcel.due <= now
        {
            match &parcel.content {
                Content::Bytes(bytes) if self.sent < bytes.len() => {
                    match destination.write(&bytes[self.sent..]) {
                        Ok(len) => self.sent += len,
                        Err(error) if is_temporary(&error) => {
                            self.destination = Destination::Full;
                            return Delivery::Open;
                        }
                        Err(_) => {
                            self.destination = Destination::Gone;
                            self.lose_bytes();
                        }
                    }
                }
                Content::Bytes(bytes) => {
                    self.queued_bytes -= bytes.len();
                    self.sent = 0;
                    self.queue.pop_front();
                }
                Content::Fin => {
                    // Fails only when the destination has gone, which its own flow sees.
                    let _ = destination.shutdown(Shutdown::Write);
                    self.queue.clear();
                    self.ended = true;
                }
                Content::Reset => return Delivery::Reset,
            }
        }
        if self.ended { Delivery::Ended } else { Delivery::Open }
    }

    /// Loses all bytes which have not been delivered. The end of the flow, if it has been seen, is
    /// kept.
    pub(crate) fn lose_bytes(&mut self) {
        self.queue.retain(|parcel| !matches!(parcel.content, Content::Bytes(_)));
        self.queued_bytes = 0;
        self.sent = 0;
        self.expect_room();
    }

    /// Makes everything due.
    pub(crate) fn hurry(&mut self, now: Instant) {
        for parcel in &mut self.queue {
            parcel.due = now;
        }
    }

    fn expect_room(&mut self) {
        if self.destination == Destination::Full {
            self.destination = Destination::Open;
        }
    }

    fn end(&mut self, content: Content, wire: &Wire) {
        self.source_ended = true;
        self.push(content, wire);
    }

    fn push(&mut self, content: Content, wire: &Wire) {
        // Nothing overtakes when the delay has become shorter: the first parcel blocks the others.
        let due = Instant::now() + wire.delay;
        self.queue.push_back(Parcel { due, content });
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
