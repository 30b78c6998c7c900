//! One connection to a node, set up and probed.

use super::line::Written;
use super::peer::Peer;
use super::pipe::Pipe;
use super::session::Session;
use super::set_up_attempt::SetUpAttempt;
use super::shared::NodeShared;
use crate::wire::{Conversation, NodeFailure};
use redis::{RedisConnectionInfo, RedisError};

/// A connection whose set-up was answered.
pub(super) struct Link {
    pub(super) pipe: Pipe,
    pub(super) said: Conversation<Written>,
    pub(super) peer: Peer,
}

impl Link {
    /// Connects and sets up: `HELLO 3`, the scripts, the connection's ID, and the server's facts.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; nothing but the set-up was sent on it.
    pub(super) async fn establish(node: &NodeShared) -> Result<Self, NodeFailure> {
        let (login, limit) = node.log_in().await?;
        let attempt = node.set_up_attempt();
        let connecting = async {
            let opened = open(node, &login, &attempt).await;
            let (mut session, peer) = opened.map_err(|error| NodeFailure::unreachable(&error))?;
            kill_stale(&mut session, &peer, node).await?;
            Ok((session, peer))
        };
        let (session, peer) = node.watch_set_up(&attempt, limit, connecting).await?;
        if peer.info.is_replica {
            return Err(NodeFailure::Replica);
        }
        if let Some(run_id) = &peer.info.run_id {
            node.siblings.enter(node.id, run_id)?;
        }
        let Session { pipe, said } = session;
        Ok(Self { pipe, said, peer })
    }
}

async fn open(
    node: &NodeShared,
    login: &RedisConnectionInfo,
    attempt: &SetUpAttempt,
) -> Result<(Session<Written>, Peer), RedisError> {
    let mut session = Session::open(node, login, attempt, Written::of_set_up).await?;
    let clock = &node.environment.clock;
    let peer = Peer::set_up(&mut session, Written::of_set_up, attempt, clock).await?;
    Ok((session, peer))
}

/// I8: sees to it that connections of ours that broke deliver nothing any more, before anything else
/// is written here. They cannot if the server process they went to has ended, or closes them when told
/// to.
async fn kill_stale(
    session: &mut Session<Written>,
    peer: &Peer,
    node: &NodeShared,
) -> Result<(), NodeFailure> {
    let broken = node.handover.broken();
    if broken.is_empty() {
        return Ok(());
    }
    peer.ask_to_kill(&broken, session.requests());
    let replies = session.exchange(Written::of_set_up()).await;
    let replies = replies.map_err(|error| NodeFailure::unreachable(&error))?;
    peer.handle_killed(&broken, &replies, node, node.timer.now())
}
