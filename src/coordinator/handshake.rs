//! Set-up of a new connection: login, facts about the server, scripts, client tracking.
//!
//! All commands are sent as one pipeline. Before other commands are sent, connections of this client that broke are
//! killed, because they can still deliver commands (I8).

use super::command::Pipeline;
use super::context::ConnectionId;
use super::settings::Settings;
use crate::protocol::{Broken, Reading, Time};
use crate::wire::{
    Capabilities, Conversation, Greeting, NodeFailure, ServerInfo, SetUp, append_sync_check,
    verify_sync,
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
    /// The driver connects and obtains the credentials.
    Opening,
    /// The login and the set-up were sent.
    Asking(Asked),
    /// The server is to close the connections that broke.
    Killing(Box<(Peer, Vec<Broken<Arc<str>>>)>),
}

struct Asked {
    greeting: Greeting,
    /// Number of replies to the greeting.
    greeting_replies: usize,
    sent: Time,
}

/// The server at the other end of a connection, by its replies to the set-up.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// When the set-up was sent.
    pub(super) asked: Time,
    /// The server's clock, if `TIME` is permitted.
    pub(super) reading: Option<Reading>,
    pub(super) can: Capabilities,
}

impl Peer {
    /// The connection to this server, once it has broken.
    pub(super) fn broken(&self) -> Broken<Arc<str>> {
        Broken { run: self.info.run_id.clone(), client_id: self.client_id }
    }
}

/// Progress of a handshake after bytes have arrived.
pub(super) enum Step {
    /// Replies are missing.
    Wait,
    /// The server has replied to all requests. Call [`Handshake::kill`] or [`Handshake::finish`].
    SetUp(Peer),
    /// The connections that broke were handled over this one. `are_killed`: the server has closed those that it knows.
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

    /// The driver has connected.
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

    /// Asks the server to close the `broken` connections that it knows, and waits for its reply.
    ///
    /// If it knows none, the reply still proves that the server is alive. A different run alone does not prove that the
    /// earlier one has ended:
    /// 1. A connection to run 1 is set up, and its driver is held up.
    /// 2. The server is restarted, twice.
    /// 3. A connection to run 3 breaks with a `SET` unanswered.
    /// 4. The driver continues, and takes run 3 for an earlier run.
    pub(super) fn kill(&mut self, peer: Peer, broken: Vec<Broken<Arc<str>>>) {
        let requests = self.conversation.requests();
        for id in broken.iter().filter_map(|one| one.to_kill(peer.info.run_id.as_ref())) {
            requests.command("CLIENT", 3).args(["KILL", "ID", &id.to_string()]).end();
        }
        append_sync_check(requests);
        self.conversation.end_pipeline(Pipeline::default());
        self.stage = Stage::Killing(Box::new((peer, broken)));
    }

    /// The conversation, for the connection that was set up.
    pub(super) fn finish(self) -> Conversation<Pipeline> {
        self.conversation
    }

    /// The failure of a handshake whose connection has ended with `error`.
    pub(super) fn failure(&self, error: &RedisError) -> NodeFailure {
        match self.conversation.last_error() {
            Some(reply) => {
                let text = format!("closed by the server: {reply}");
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, text);
                NodeFailure::unreachable(&error.into())
            }
            None => NodeFailure::unreachable(error),
        }
    }

    /// True if the server has sent no byte.
    pub(super) fn is_unanswered(&self) -> bool {
        self.received == 0
    }

    /// True if some replies to a pipeline have arrived, and others are missing.
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
        let SetUp { client_id, info, shown_us, can } = SetUp::read(set_up)?;
        let (sent, received) = (self.sent, now);
        let reading = shown_us.map(|shown_us| Reading { sent, shown_us, received });
        Ok(Peer { client_id, info, asked: sent, reading, can })
    }
}
