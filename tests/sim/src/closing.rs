//! Servers, or proxies, that close a connection because of a command that they read.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::event::Way;
use crate::network::Packet;
use crate::process::{millis, nanos};
use crate::shared::Core;
use crate::trace::note;
use crate::worker::Worker;

/// Prefix of the keys whose commands make a node close the connection.
const PREFIX: &str = "closing";

/// Number of locks with such keys.
const LOCKS: usize = 3;

/// Maximum time until another lock is acquired.
pub(crate) const ACQUIRED: Instant = 10 * S;

/// Maximum time until the release of another lock is delivered. If it was in a pipeline with releases that close
/// connections, it is sent alone, as these are, one after the other with pauses of up to 3 s.
pub(crate) const DELIVERED: Instant = 30 * S;

/// How a node closes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The node runs `SET`, and closes the connection for scripts and other commands with the key.
    pub(crate) spares_set: bool,
    /// The node sends an error line before it closes the connection.
    pub(crate) reports: bool,
    /// The client sees a reset in place of the end of the stream.
    pub(crate) resets: bool,
}

/// A call whose commands close connections.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of the call.
pub(crate) struct ClosingCall {
    which: usize,
    /// Acquires all these locks as one set.
    is_set: bool,
    wait: Option<Instant>,
    lasting: Instant,
    is_extended: bool,
    is_dropped: bool,
    /// Uses another client, and closes it at the end.
    by_another: bool,
}

impl ClosingCall {
    pub(crate) fn draw(ttl: Instant, dice: &mut Dice) -> Self {
        Self {
            which: dice.index(LOCKS),
            is_set: dice.chance(200),
            wait: dice.chance(500).then(|| dice.of_any_size(10 * MS, 5 * S)),
            lasting: dice.of_any_size(MS, ttl / 4),
            is_extended: dice.chance(300),
            is_dropped: dice.chance(500),
            by_another: dice.chance(200),
        }
    }
}

impl Core {
    /// The part of `bytes` that the node runs, and how it closes the connection after that, if it does.
    pub(crate) fn cut_off(&self, node: usize, mut bytes: Vec<u8>) -> (Vec<u8>, Option<Closing>) {
        let Some(closing) = self.nodes[node].closing else { return (bytes, None) };
        let found = |from: usize| {
            let key = bytes[from..].windows(PREFIX.len()).position(|it| it == PREFIX.as_bytes())?;
            let start = bytes[..from + key].iter().rposition(|byte| *byte == b'*')?;
            Some((from + key, start))
        };
        let is_set = |start: usize| {
            bytes[start..].get(4..).is_some_and(|it| it.starts_with(b"$3\r\nSET\r\n"))
        };
        let mut from = 0;
        while let Some((key, start)) = found(from) {
            if !(closing.spares_set && is_set(start)) {
                bytes.truncate(start);
                return (bytes, Some(closing));
            }
            from = key + PREFIX.len();
        }
        (bytes, None)
    }

    pub(crate) fn close_because(&mut self, closing: Closing, connection: usize) {
        let node = self.connections[connection].node;
        note!(self, "n{node} closes #{connection} because of a command");
        if let Some(server) = self.connections[connection].server.take() {
            self.nodes[node].disconnect(server);
        }
        if closing.reports {
            let error = b"-ERR Protocol error: invalid bulk length\r\n";
            self.send(connection, Way::ToClient, Packet::Bytes(error.to_vec()));
        }
        let end = if closing.resets { Packet::Reset } else { Packet::End };
        self.send(connection, Way::ToClient, end);
    }
}

impl Worker {
    pub(crate) async fn close_connections(mut self, call: ClosingCall) {
        if call.by_another {
            (self.client, self.redlock) = self.another_client();
            self.shared.lock().processes[self.process].has_others = true;
        }
        let names: Vec<_> = (0..LOCKS).map(|which| format!("{PREFIX}{which}")).collect();
        let mut acquire = match (call.is_set, call.wait) {
            (true, None) => self.redlock.try_acquire_all(&names),
            (true, Some(wait)) => self.redlock.acquire_all(&names).wait(millis(wait / MS)),
            (false, None) => self.redlock.try_acquire(&names[call.which]),
            (false, Some(wait)) => self.redlock.acquire(&names[call.which]).wait(millis(wait / MS)),
        };
        if call.is_extended {
            acquire = acquire.auto_extend(millis(2 * self.times.ttl_ms));
        }
        let bound = nanos(self.times.connect_timeout) + nanos(self.times.node_timeout) + S;
        let bound = call.wait.unwrap_or(bound);
        if let Ok(lease) = self.timed("acquire", bound, acquire).await {
            self.sleep(call.lasting).await;
            if call.is_dropped {
                drop(lease);
            } else {
                let bound = nanos(self.times.node_timeout);
                let released = self.timed("release", bound, lease.release()).await;
                self.inspect(&released);
            }
        }
        if call.by_another && self.close().await.is_ok() {
            self.check_pending_work();
        }
    }
}
