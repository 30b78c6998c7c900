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
pub(crate) struct Wire {
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
struct Parcel {
    due: Instant,
    content: Content,
}

/// A flow of data from one non-blocking socket to another.
#[derive(Debug)]
pub(crate) struct Flow {
    frames: Frames,
    queue: VecDeque<Parcel>,
    queued_bytes: usize,
    /// The number of bytes of the first parcel that have been delivered.
    sent: usize,
    source_ended: bool,
    destination: Destination,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Open,
    /// The socket did not accept bytes at the last write.
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
    /// bytes.
    pub(crate) fn wants_room(&self, wire: &Wire) -> bool {
        self.destination == Destination::Full && wire.mode == Mode::Pass
    }

    /// Returns the time of the next call of [`deliver`](Self::deliver), if no other event happens.
    pub(crate) fn next_due(&self, wire: &Wire) -> Option<Instant> {
        let timed = wire.mode == Mode::Pass && self.destination != Destination::Full;
        self.queue.front().filter(|_| timed).map(|parcel| parcel.due)
    }

    /// Reads one chunk from the source. With `cut`, forwards only that number of bytes of the
    /// chunk, followed by a reset. Consumes `cut` unless the whole chunk is discarded.
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
        let discards = wire.discards_pushes;
        let mut bytes = self.frames.filter(&buffer[..len], discards, &mut wire.discarded_pushes);
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

    /// Discards all undelivered bytes, but not the end of the flow.
    pub(crate) fn lose_bytes(&mut self) {
        self.queue.retain(|parcel| !matches!(parcel.content, Content::Bytes(_)));
        self.queued_bytes = 0;
        self.sent = 0;
        self.expect_room();
    }

    pub(crate) fn make_due(&mut self, now: Instant) {
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
        // A shorter delay does not reorder data, because the first parcel blocks the others.
        let due = Instant::now() + wire.delay;
        self.queue.push_back(Parcel { due, content });
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
