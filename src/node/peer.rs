//! What the server at the other end of a connection is, as its set-up has told.

use super::session::Session;
use super::set_up_attempt::SetUpAttempt;
use super::shared::NodeShared;
use crate::protocol::{Broken, Reading, Time};
use crate::time::Clock;
use crate::wire::{
    Capabilities, NodeFailure, Requests, ServerInfo, SetUp, SetUpParts, append_sync_check,
    verify_sync,
};
use redis::{RedisError, Value};
use std::sync::Arc;

/// A connection of ours that broke.
pub(super) type Stale = Broken<Arc<str>>;

/// The other end of one connection.
pub(super) struct Peer {
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// When the set-up was sent, by our clock.
    pub(super) asked: Time,
    /// What its clock showed in the set-up, if it may be asked.
    pub(super) reading: Option<Reading>,
    pub(super) can: Capabilities,
}

impl Peer {
    /// Sets up the connection of `session`. `what` goes with the pipelines for that, and is dropped.
    ///
    /// # Cancel safety
    /// What was to be sent may have been sent. Use the session no more.
    pub(super) async fn set_up<T>(
        session: &mut Session<T>,
        what: impl Fn() -> T,
        attempt: &SetUpAttempt,
        clock: &Clock,
    ) -> Result<Self, RedisError> {
        let mut parts = SetUpParts::default();
        SetUp::ask(&mut parts);
        let sent = clock.now();
        let replies = session.exchange_parts(&parts, attempt, what).await?;
        let received = clock.now();
        let SetUp { client_id, info, can, shown_us, .. } = SetUp::read(&replies)?;
        let reading = shown_us.map(|shown_us| Reading { sent, shown_us, received });
        Ok(Self { client_id, info, asked: sent, reading, can })
    }

    /// The connection to it, once that broke.
    pub(super) fn broken(&self) -> Stale {
        Broken { run: self.info.run_id.clone(), client_id: self.client_id }
    }

    /// Adds what kills those of `broken` that the server knows, sealed. If it knows none, the seal is what it can only
    /// answer if it lives. That it is another run than theirs says that theirs has ended only then:
    /// 1. A connection to run 1 is set up, and its task is held up. 2. The server is restarted, twice. 3. A
    ///    connection to run 3 breaks with a `SET` unanswered. 4. The task goes on, and takes run 3 for an earlier one.
    pub(super) fn ask_to_kill(&self, broken: &[Stale], requests: &mut Requests) {
        for id in broken.iter().filter_map(|one| one.to_kill(self.info.run_id.as_ref())) {
            requests.command("CLIENT", 3).args(["KILL", "ID", &id.to_string()]).end();
        }
        append_sync_check(requests);
    }

    /// The server was told to close the connections `broken`, as far as it knows them, and has answered by
    /// `now`, a time of the timers. An error if it has not answered that.
    pub(super) fn handle_killed(
        &self,
        broken: &[Stale],
        replies: &[Value],
        node: &NodeShared,
        now: Time,
    ) -> Result<(), NodeFailure> {
        let run = self.info.run_id.as_ref();
        let told = broken.iter().filter(|one| one.to_kill(run).is_some()).count();
        verify_sync(replies, told + 1, true)?;
        // Where it was told to close none, whatever it answers says that it lives: it may refuse to tell the time.
        let is_refused = |reply: &Value| matches!(reply, Value::ServerError(_));
        let are_killed = !replies[..told].iter().any(is_refused);
        node.handover.handle_killed(broken, run, are_killed, now);
        Ok(())
    }
}
