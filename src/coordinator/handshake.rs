//! Set-up of a new connection: login, server information, scripts and client tracking.
//!
//! The client sends all set-up commands as one pipeline. Next, it asks the server to kill this client's broken
//! connections. Otherwise, the server could execute delayed commands from a broken connection after newer commands
//! (I8).

use super::command::Pipeline;
use super::context::ConnectionId;
use super::settings::Settings;
use crate::protocol::{Broken, Reading, Time};
use crate::wire::{
    CLOSED_BY_SERVER, Capabilities, Conversation, Greeting, NodeFailure, ServerInfo, SetUp,
    append_sync_check, verify_sync,
};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Handshake {
    pub(super) id: ConnectionId,
    connect_timeout: Duration,
    began: Time,
    deadline: Time,
    conversation: Conversation<Pipeline>,
    received: u64,
    stage: Stage,
}

enum Stage {
    /// Waiting for the driver to obtain the credentials and to connect.
    Opening,
    Asking(Asked),
    Killing(Box<(Peer, Vec<Broken<Arc<str>>>)>),
}

struct Asked {
    greeting: Greeting,
    greeting_replies: usize,
    sent: Time,
}

/// The server, as described by its replies during the set-up.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    pub(super) asked: Time,
    /// `None` if the server does not permit `TIME`.
    pub(super) reading: Option<Reading>,
    pub(super) can: Capabilities,
}

impl Peer {
    /// Returns the run ID and the client ID, which a later connection needs to kill this connection if it breaks.
    pub(super) fn broken(&self) -> Broken<Arc<str>> {
        Broken { run: self.info.run_id.clone(), client_id: self.client_id }
    }
}

pub(super) enum Step {
    /// Some replies have not arrived yet.
    Wait,
    /// The set-up is complete. The caller must continue with [`Handshake::kill`] or [`Handshake::finish`].
    SetUp(Peer),
    /// The server has replied to all `CLIENT KILL` requests. `are_killed` is false if it refused one of them.
    Killed { peer: Peer, broken: Vec<Broken<Arc<str>>>, are_killed: bool },
}

impl Handshake {
    pub(super) fn new(id: ConnectionId, settings: &Settings, now: Time) -> Self {
        Self {
            id,
            connect_timeout: settings.connect_timeout,
            began: now,
            deadline: now.after(settings.opening_timeout),
            conversation: Conversation::new(),
            received: 0,
            stage: Stage::Opening,
        }
    }

    pub(super) fn handle_connected(&mut self, login: &RedisConnectionInfo, now: Time) {
        self.deadline = self.began.after(self.connect_timeout);
        let requests = self.conversation.requests();
        let greeting = Greeting::ask(login, requests);
        let greeting_replies = requests.len();
        SetUp::ask(requests);
        self.conversation.end_pipeline(Pipeline::default());
        self.stage = Stage::Asking(Asked { greeting, greeting_replies, sent: now });
    }

    pub(super) fn to_send(&self) -> &[u8] {
        self.conversation.to_send()
    }

    pub(super) fn handle_sent(&mut self, count: usize) {
        self.conversation.handle_sent(count);
    }

    pub(super) fn handle_bytes(&mut self, bytes: &[u8], now: Time) -> Result<Step, NodeFailure> {
        self.received += bytes.len() as u64;
        self.conversation.handle_bytes(bytes);
        let polled = self.conversation.poll_replies();
        let Some((_, replies)) = polled.map_err(|malformed| self.failure(&malformed.into()))?
        else {
            return Ok(Step::Wait);
        };
        match std::mem::replace(&mut self.stage, Stage::Opening) {
            Stage::Opening => Ok(Step::Wait),
            Stage::Asking(asked) => {
                let peer = asked.finish(&replies, now);
                let peer = peer.map_err(|error| NodeFailure::unreachable(&error))?;
                if peer.info.is_replica { Err(NodeFailure::Replica) } else { Ok(Step::SetUp(peer)) }
            }
            Stage::Killing(killing) => {
                let (peer, broken) = *killing;
                let run = peer.info.run_id.as_ref();
                let kills = broken.iter().filter(|one| one.to_kill(run).is_some()).count();
                verify_sync(&replies, kills + 1, true)?;
                let is_refused = |reply: &Value| matches!(reply, Value::ServerError(_));
                let are_killed = !replies[..kills].iter().any(is_refused);
                Ok(Step::Killed { peer, broken, are_killed })
            }
        }
    }

    /// Asks the server to kill the `broken` connections that belong to its current run (server process). The handshake
    /// then waits for the reply.
    ///
    /// The reply is needed even if no broken connection belongs to the current run, because it proves that the server
    /// is alive. A different run ID alone does not prove that the earlier run has ended:
    ///
    /// 1. A connection to run 1 is set up, and its driver is delayed.
    /// 2. The server restarts twice.
    /// 3. A connection to run 3 breaks with a `SET` unanswered.
    /// 4. The delayed driver continues, and mistakes run 3 for an earlier run.
    pub(super) fn kill(&mut self, peer: Peer, broken: Vec<Broken<Arc<str>>>) {
        let requests = self.conversation.requests();
        for id in broken.iter().filter_map(|one| one.to_kill(peer.info.run_id.as_ref())) {
            requests.command("CLIENT", 3).args(["KILL", "ID", &id.to_string()]).end();
        }
        append_sync_check(requests);
        self.conversation.end_pipeline(Pipeline::default());
        self.stage = Stage::Killing(Box::new((peer, broken)));
    }

    pub(super) fn finish(mut self) -> Conversation<Pipeline> {
        self.conversation.end_set_up();
        self.conversation
    }

    /// Returns the failure to report if the connection ends with `error` during the handshake. If the server has sent
    /// an error reply, the failure quotes the reply instead of `error`.
    pub(super) fn failure(&self, error: &RedisError) -> NodeFailure {
        match self.conversation.last_error() {
            Some(reply) => {
                let text = format!("{CLOSED_BY_SERVER}{reply}");
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, text);
                NodeFailure::unreachable(&error.into())
            }
            None => NodeFailure::unreachable(error),
        }
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.received == 0
    }

    pub(super) fn is_partly_answered(&self) -> bool {
        self.conversation.is_partly_answered()
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }
}

impl Asked {
    fn finish(self, replies: &[Value], now: Time) -> Result<Peer, RedisError> {
        let (greeting, set_up) = replies.split_at(self.greeting_replies);
        self.greeting.read(greeting)?;
        let SetUp { client_id, info, server_time_us, can } = SetUp::read(set_up)?;
        let (sent, received) = (self.sent, now);
        let reading =
            server_time_us.map(|server_time_us| Reading { sent, server_time_us, received });
        Ok(Peer { client_id, info, asked: sent, reading, can })
    }
}
