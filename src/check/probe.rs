//! A look at one node, over a connection of its own.

use super::session::Session;
use crate::node::{Node, shield};
use crate::protocol::{Offset, Reading};
use crate::random::Random;
use crate::time::Clock;
use crate::wire::{
    FoundLock, Inspection, Keys, NamedClient, NodeFailure, Value, ask_clients, ask_keys, ask_locks,
    ask_time, found_locks, named_clients, scanned_keys, time_us,
};
use redis::RedisError;
use std::time::Duration;

/// How often a clock is read: the narrowest of several readings counts.
const READINGS: usize = 8;

/// What was found out about a node.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) told: Inspection,
    /// What its clock shows, if it tells.
    pub(crate) clock: Option<WallClock>,
    /// True if the server refuses `TIME`.
    pub(crate) refuses_time: bool,
    /// The best round trip of a command.
    pub(crate) latency: Option<Duration>,
    /// The clients of this library that are connected to it, this one among them, if it tells.
    pub(crate) clients: Option<Vec<NamedClient>>,
    /// Locks that the server has, or the first of them; `None` if it does not tell.
    pub(crate) locks: Option<Vec<FoundLock>>,
}

/// What several readings of a node's clock say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WallClock {
    pub(crate) offset: Offset,
    /// How far apart two readings are that cannot both be right: by so much the clock was put
    /// forward or back between them.
    pub(crate) moved: Duration,
}

impl Probe {
    /// Probes `node`. Tries the commands that a lock needs on `keys`, which must not exist, so these commands have no
    /// effect. Searches for locks under keys that begin with `prefix`. Takes at most two connect timeouts and two node
    /// timeouts.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn look(node: &Node, keys: &Keys, prefix: &[u8]) -> Result<Self, NodeFailure> {
        shield(Self::look_at(node, keys, prefix), |why| NodeFailure::Unreachable(why.into())).await
    }

    async fn look_at(node: &Node, keys: &Keys, prefix: &[u8]) -> Result<Self, NodeFailure> {
        let clock = &node.environment.clock;
        let (login, limit) = node.log_in().await?;
        let opening = Session::open(node, &login);
        let mut session = match clock.timeout(limit, opening).await {
            Some((Ok(opened), _)) => opened,
            Some((Err(error), _)) => return Err(NodeFailure::unreachable(&error)),
            None => {
                let (_, hint) = node.hints();
                let why = format!("timeout while connecting{hint}");
                return Err(NodeFailure::Unreachable(why.into()));
            }
        };
        let limit = node.timings.answer;
        let asking = Self::ask(&mut session, keys, &node.environment.random);
        let asked = clock.timeout(limit, asking).await;
        let (asked, _) = asked.ok_or(NodeFailure::Timeout(limit))?;
        let mut probe = asked.map_err(|error| NodeFailure::disconnected(&error, None))?;
        // An incomplete result is used, too.
        let reading = async {
            probe.read_clock(&mut session, clock).await;
            probe.find_locks(&mut session, prefix).await;
        };
        if clock.timeout(limit, reading).await.is_some() {
            // Last, and with a longer time: a server with many connections writes a long list.
            let listing = probe.list_clients(&mut session);
            let _ = clock.timeout(node.timings.connect, listing).await;
        }
        Ok(probe)
    }

    async fn ask(session: &mut Session, keys: &Keys, random: &Random) -> Result<Self, RedisError> {
        let value = Value::fresh(random);
        Inspection::ask(keys, &value, session.requests());
        let replies = session.exchange().await?;
        let told = Inspection::read(&replies, &value);
        Ok(Self {
            told,
            clock: None,
            refuses_time: false,
            latency: None,
            clients: None,
            locks: None,
        })
    }

    async fn find_locks(&mut self, session: &mut Session, prefix: &[u8]) {
        ask_keys(prefix, session.requests());
        let Ok(scanned) = session.exchange().await else { return };
        let Some(keys) = scanned.first().and_then(scanned_keys) else { return };
        ask_locks(&keys, session.requests());
        if let Ok(replies) = session.exchange().await {
            self.locks = Some(found_locks(keys, &replies));
        }
    }

    async fn list_clients(&mut self, session: &mut Session) {
        ask_clients(session.requests());
        if let Ok([reply]) = session.exchange().await.as_deref() {
            self.clients = named_clients(reply);
        }
    }

    async fn read_clock(&mut self, session: &mut Session, clock: &Clock) {
        for _ in 0..READINGS {
            ask_time(session.requests());
            let sent = clock.now();
            let replies = session.exchange().await;
            let received = clock.now();
            let Ok([reply]) = replies.as_deref() else { return };
            let Some(shown_us) = time_us(reply) else {
                self.refuses_time = matches!(reply, redis::Value::ServerError(_));
                return;
            };
            let rtt = received.since(sent);
            self.latency = Some(self.latency.map_or(rtt, |best| best.min(rtt)));
            let offset = Reading { sent, shown_us, received }.offset();
            let narrowed = |known: WallClock| known.narrowed(offset);
            self.clock = Some(self.clock.map_or(WallClock::new(offset), narrowed));
        }
    }
}

impl WallClock {
    fn new(offset: Offset) -> Self {
        Self { offset, moved: Duration::ZERO }
    }

    /// What this and a later reading say together.
    fn narrowed(self, later: Offset) -> Self {
        if let Some(offset) = self.offset.narrowed(later) {
            return Self { offset, ..self };
        }
        let by = later.beyond(self.offset);
        let apart = Duration::from_nanos(by.lowest.max(by.highest.saturating_neg()).unsigned_abs());
        Self { offset: later, moved: self.moved.max(apart) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Time;

    #[test]
    fn readings_narrow_each_other_and_tell_a_clock_that_was_put() {
        let read = |sent, shown_us, received| {
            let [sent, received] = [sent, received].map(Time::from_nanos);
            Reading { sent, shown_us, received }.offset()
        };
        let range = |clock: WallClock| (clock.offset.lowest, clock.offset.highest);
        // Sent at 1 ms, received at 5 ms, by our clock.
        let wide = WallClock::new(read(1_000_000, 10_000, 5_000_000));
        assert_eq!(range(wide), (5_000_000, 9_001_000));
        let narrow = wide.narrowed(read(6_000_000, 13_000, 6_100_000));
        assert_eq!(range(narrow), (6_900_000, 7_001_000));
        assert_eq!(narrow.moved, Duration::ZERO);
        // A second later on our clock, two on theirs.
        let put = narrow.narrowed(read(1_006_000_000, 2_013_000, 1_006_100_000));
        assert_eq!(put.moved, Duration::from_micros(1_006_900 - 7_001));
        assert_eq!(range(put), (1_006_900_000, 1_007_001_000), "as it is now");
        // And as far back again.
        let back = put.narrowed(read(2_006_000_000, 2_013_000, 2_006_100_000));
        assert_eq!(range(back), (6_900_000, 7_001_000));
        assert_eq!(back.moved, Duration::from_micros(1_006_900 - 7_001));
    }
}
