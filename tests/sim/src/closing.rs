//! Servers and proxies that close a connection because of a command.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::event::Way;
use crate::network::Packet;
use crate::process::{millis, nanos};
use crate::shared::Core;
use crate::trace::note;
use crate::worker::Worker;

/// The prefix of the affected locks. A command with the key of such a lock makes the node close the
/// connection.
const PREFIX: &str = "closing";

const LOCKS: usize = 3;

/// The maximum duration of an acquire whose lock does not have `PREFIX`.
pub(crate) const ACQUIRED: Instant = 10 * S;

/// The maximum time until the release of a lock without `PREFIX` is delivered. The release may
/// share a pipeline with releases that close the connection. The client then sends each of these
/// releases separately, with pauses of up to 3 s.
pub(crate) const DELIVERED: Instant = 30 * S;

/// How a node closes connections that send the key of an affected lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closing {
    /// Whether the node executes `SET` with an affected key. Scripts and other commands with such a
    /// key always close the connection.
    pub(crate) spares_set: bool,
    /// Whether the node sends an error line before it closes the connection.
    pub(crate) reports: bool,
    /// Whether the client sees a reset instead of the end of the stream.
    pub(crate) resets: bool,
}

#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of the call.
pub(crate) struct ClosingCall {
    which: usize,
    /// Whether the call acquires all locks with `PREFIX` in a single acquire.
    is_set: bool,
    wait: Option<Instant>,
    lasting: Instant,
    is_extended: bool,
    is_dropped: bool,
    /// Whether a separate client makes the call and is closed at the end of the call.
    by_another: bool,
}

impl ClosingCall {
    pub(crate) fn draw(ttl: Instant, dice: &mut Dice) -> Self {
        Self {
            which: dice.index(LOCKS),
            is_set: dice.chance(200),
            wait: dice.chance(500).then(|| dice.log_uniform(10 * MS, 5 * S)),
            lasting: dice.log_uniform(MS, ttl / 4),
            is_extended: dice.chance(300),
            is_dropped: dice.chance(500),
            by_another: dice.chance(200),
        }
    }
}

impl Core {
    /// Splits off the first command that makes the node close the connection. Returns the bytes
    /// before that command, and how the node closes the connection. The second value is `None` if
    /// no command closes the connection.
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
