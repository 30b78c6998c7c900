//! Data in transit in one direction of a proxied connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::frames::Frames;

/// The number of undelivered bytes at which a flow stops reading.
const QUEUE_LIMIT_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Bytes are delivered when their delay ends.
    #[default]
    Pass,
    /// Bytes are kept until the mode changes.
    Hold,
    /// Bytes are discarded.
    BlackHole,
}

/// The settings and counters of all flows in one direction.
#[derive(Debug, Default)]
pub(crate) struct DirectionState {
    pub(crate) mode: Mode,
    pub(crate) delay: Duration,
    /// The number of bytes read so far.
    pub(crate) bytes: u64,
    pub(crate) discards_pushes: bool,
    pub(crate) discarded_pushes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// More data may follow, now or later.
    Open,
    Ended,
    /// The caller must reset the connection.
    Reset,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Debug)]
struct QueuedChunk {
    due: Instant,
    content: Content,
}

/// A flow of data from one non-blocking socket to another.
#[derive(Debug)]
pub(crate) struct Flow {
    frames: Frames,
    queue: VecDeque<QueuedChunk>,
    queued_bytes: usize,
    /// The number of bytes of the first chunk that have been delivered.
    sent: usize,
    source_ended: bool,
    destination: Destination,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Open,
    /// The socket accepted no bytes on the last write, but may accept bytes later.
    Full,
    /// The socket will never accept bytes again.
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

    /// Returns true if [`read`](Self::read) should be called when the source has bytes.
    pub(crate) fn wants_bytes(&self) -> bool {
        !self.source_ended && self.queued_bytes < QUEUE_LIMIT_BYTES
    }

    /// Returns true if [`deliver`](Self::deliver) should be called when the destination accepts
    /// bytes again.
    pub(crate) fn wants_room(&self, direction: &DirectionState) -> bool {
        self.destination == Destination::Full && direction.mode == Mode::Pass
    }

    /// Returns the time at which [`deliver`](Self::deliver) must be called, unless another event
    /// happens before that time. Returns `None` if no chunk waits for its delay to end.
    pub(crate) fn next_due(&self, direction: &DirectionState) -> Option<Instant> {
        let timed = direction.mode == Mode::Pass && self.destination != Destination::Full;
        self.queue.front().filter(|_| timed).map(|chunk| chunk.due)
    }

    /// Reads one chunk from the source. If `cut` contains a number, forwards only this number of
    /// bytes of the chunk, followed by a reset, and sets `cut` to `None`. A chunk that is
    /// completely discarded leaves `cut` unchanged.
    pub(crate) fn read(
        &mut self,
        mut source: &TcpStream,
        direction: &mut DirectionState,
        buffer: &mut [u8],
        cut: &mut Option<usize>,
    ) {
        let len = match source.read(buffer) {
            Ok(0) => return self.end(Content::Fin, direction),
            Ok(len) => len,
            Err(error) if is_temporary(&error) => return,
            Err(_) => return self.end(Content::Reset, direction),
        };
        direction.bytes += len as u64;
        let discards = direction.discards_pushes;
        let mut bytes =
            self.frames.filter(&buffer[..len], discards, &mut direction.discarded_pushes);
        let is_lost = bytes.is_empty() || direction.mode == Mode::BlackHole;
        if is_lost || self.destination == Destination::Gone {
            return;
        }
        let cut = cut.take();
        bytes.truncate(cut.unwrap_or(len));
        self.queued_bytes += bytes.len();
        self.push(Content::Bytes(bytes), direction);
        if cut.is_some() {
            self.end(Content::Reset, direction);
        }
    }

    pub(crate) fn deliver(
        &mut self,
        mut destination: &TcpStream,
        direction: &DirectionState,
        now: Instant,
    ) -> Delivery {
        self.expect_room();
        while direction.mode == Mode::Pass
            && let Some(chunk) = self.queue.front()
            && chunk.due <= now
        {
            match &chunk.content {
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
                    // An error means that the destination is closed, which the destination's own
                    // flow detects.
                    let _ = destination.shutdown(Shutdown::Write);
                    self.queue.clear();
                    self.ended = true;
                }
                Content::Reset => return Delivery::Reset,
            }
        }
        if self.ended { Delivery::Ended } else { Delivery::Open }
    }

    /// Discards all undelivered bytes, but still delivers the end of the flow.
    pub(crate) fn lose_bytes(&mut self) {
        self.queue.retain(|chunk| !matches!(chunk.content, Content::Bytes(_)));
        self.queued_bytes = 0;
        self.sent = 0;
        self.expect_room();
    }

    pub(crate) fn make_due(&mut self, now: Instant) {
        for chunk in &mut self.queue {
            chunk.due = now;
        }
    }

    fn expect_room(&mut self) {
        if self.destination == Destination::Full {
            self.destination = Destination::Open;
        }
    }

    fn end(&mut self, content: Content, direction: &DirectionState) {
        self.source_ended = true;
        self.push(content, direction);
    }

    fn push(&mut self, content: Content, direction: &DirectionState) {
        // A shorter delay does not reorder data, because each chunk blocks the chunks behind it.
        let due = Instant::now() + direction.delay;
        self.queue.push_back(QueuedChunk { due, content });
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
