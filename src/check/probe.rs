//! The check of one node, over a separate connection.

use super::session::Session;
use crate::node::{Node, shield};
use crate::protocol::{Offset, Reading};
use crate::random::Random;
use crate::time::Clock;
use crate::wire::{Inspection, Keys, NodeFailure, Value, ask_time, time_us};
use redis::RedisError;
use std::time::Duration;

/// Number of times that a check reads the node's clock. Each reading can narrow the range of the clock's offset.
const READINGS: usize = 8;

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) inspection: Inspection,
    /// The range of the node's clock offset, or `None` if the clock was not read.
    pub(crate) clock: Option<Offset>,
    pub(crate) refuses_time: bool,
    pub(crate) latency: Option<Duration>,
}

impl Probe {
    /// Reads the configuration and the clock of `node`, and tries the commands of a lock on `keys`. The keys must not
    /// exist, so that these commands have no effect. Takes at most one connect timeout and two node timeouts.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn run(node: &Node, keys: &Keys) -> Result<Self, NodeFailure> {
        shield(Self::run_inner(node, keys), |why| NodeFailure::Unreachable(why.into())).await
    }

    async fn run_inner(node: &Node, keys: &Keys) -> Result<Self, NodeFailure> {
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
        // After a timeout, the readings that have completed are used.
        let _ = clock.timeout(limit, probe.read_clock(&mut session, clock)).await;
        Ok(probe)
    }

    async fn ask(session: &mut Session, keys: &Keys, random: &Random) -> Result<Self, RedisError> {
        let value = Value::fresh(random);
        Inspection::ask(keys, &value, session.requests());
        let replies = session.exchange().await?;
        let inspection = Inspection::read(&replies, &value);
        Ok(Self { inspection, clock: None, refuses_time: false, latency: None })
    }

    async fn read_clock(&mut self, session: &mut Session, clock: &Clock) {
        for _ in 0..READINGS {
            ask_time(session.requests());
            let sent = clock.now();
            let replies = session.exchange().await;
            let received = clock.now();
            let Ok([reply]) = replies.as_deref() else { return };
            let Some(server_time_us) = time_us(reply) else {
                self.refuses_time = matches!(reply, redis::Value::ServerError(_));
                return;
            };
            let rtt = received.since(sent);
            self.latency = Some(self.latency.map_or(rtt, |best| best.min(rtt)));
            let offset = Reading { sent, server_time_us, received }.offset();
            // Two readings that contradict each other show that the clock was stepped. The later reading is used.
            let known = self.clock.unwrap_or(offset);
            self.clock = Some(known.narrowed(offset).unwrap_or(offset));
        }
    }
}
