//! Read-ahead buffer for the operating system's randomness.

use super::Random;
use crate::protocol::Time;
use crate::sync::lock;
use rand::TryRng;
use rand::rngs::SysRng;
use std::sync::Mutex;
use std::time::Duration;
use uuid::{Bytes, Uuid};

/// Number of UUIDs per read.
const COUNT: usize = 64;

/// Maximum age of buffered bytes; older bytes are discarded. A copy of the process draws the same
/// bytes only if it was made within this time after the read, for example when one virtual machine
/// image is started twice. Each read is made for an attempt, so such a copy is also a copy of that
/// attempt.
const FRESH: Duration = Duration::from_millis(10);

/// UUIDs for one client on one runtime, without a system call for each.
///
/// A forked child needs a new runtime, because the parent's threads and connections are not usable
/// there. Buffers belong to a runtime, so parent and child never draw the same bytes (I7). A
/// thread-local buffer, or one in the client, would be copied by the fork.
pub(crate) struct ReadAhead {
    random: Random,
    read: Mutex<Read>,
}

struct Read {
    /// When the bytes were read.
    at: Time,
    drawn: usize,
    bytes: [Bytes; COUNT],
}

impl ReadAhead {
    /// Creates an empty buffer; the first draw fills it.
    pub(crate) fn new(random: Random) -> Self {
        let read = Read { at: Time::default(), drawn: COUNT, bytes: [Bytes::default(); COUNT] };
        Self { random, read: Mutex::new(read) }
    }

    /// A `UUIDv4` as from [`Random::uuid`]. `now` is the current time.
    pub(crate) fn uuid(&self, now: Time) -> Uuid {
        match &self.random {
            Random::Machine => lock(&self.read).next(now),
            #[cfg(feature = "test-util")]
            seeded @ Random::Seeded(_) => seeded.uuid(),
        }
    }
}

impl Read {
    fn next(&mut self, now: Time) -> Uuid {
        if self.drawn == COUNT || now.since(self.at) > FRESH {
            let read = SysRng.try_fill_bytes(self.bytes.as_flattened_mut());
            read.expect("the operating system provides random bytes");
            (self.at, self.drawn) = (now, 0);
        }
        let bytes = self.bytes[self.drawn];
        self.drawn += 1;
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_secs(7) + Duration::from_millis(ms))
    }

    #[test]
    fn what_is_read_ahead_is_drawn_once_whoever_draws() {
        let ahead = ReadAhead::new(Random::Machine);
        let draw = || (0..5 * COUNT).map(|_| ahead.uuid(at(0))).collect::<Vec<_>>();
        let drawn = thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(draw));
            threads.map(|thread| thread.join().expect("no panic")).concat()
        });
        assert!(drawn.iter().all(|uuid| uuid.get_version_num() == 4));
        let different: HashSet<_> = drawn.iter().collect();
        assert_eq!(different.len(), 4 * 5 * COUNT);
    }

    #[test]
    fn many_are_read_at_once_and_none_is_drawn_that_has_waited_for_long() {
        let ahead = ReadAhead::new(Random::Machine);
        let count = |now| {
            ahead.uuid(now);
            lock(&ahead.read).drawn
        };
        assert_eq!(count(at(0)), 1);
        let waiting = lock(&ahead.read).bytes;
        assert_eq!(count(at(10)), 2, "not long yet");
        assert_eq!(count(at(11)), 1, "the others are thrown away");
        let read: HashSet<_> = waiting.into_iter().chain(lock(&ahead.read).bytes).collect();
        assert_eq!(read.len(), 2 * COUNT);
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn a_seed_gives_the_same_draws_as_without() {
        let ahead = ReadAhead::new(Random::seeded(7));
        let plain = Random::seeded(7);
        assert!((0..100).all(|ms| ahead.uuid(at(ms)) == plain.uuid()));
    }
}
