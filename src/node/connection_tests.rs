//! Connections to real servers, and what others have left there.

use super::super::shield::tests::nodes;
use super::*;
use crate::node::PushSink;
use crate::protocol::NodeId;
use futures::FutureExt;
use kit::Server;
use std::future::poll_fn;
use std::time::Duration;

struct Nobody;

impl PushSink for Nobody {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: Duration) {}
}

async fn answered(link: &mut Link) -> Answered {
    match poll_fn(|cx| link.poll_news(false, cx)).await {
        News::Answered(answered) => answered,
        News::Pushed(_) | News::Closed(_) => panic!("not answered"),
    }
}

/// A connection of another task, to a run of the server that this one has not met, may be a later one: then it
/// delivers, and this server has ended.
#[tokio::test]
async fn another_run_has_ended_only_if_this_one_answers_after_it() {
    another_run_has_ended(&Server::start()).await;
}

/// What it answers to the question for the time does not matter.
#[tokio::test]
async fn another_run_has_ended_also_where_the_time_may_not_be_asked() {
    let server = Server::start();
    server.cmd(&["ACL", "SETUSER", "default", "-time"]);
    another_run_has_ended(&server).await;
}

async fn another_run_has_ended(server: &Server) {
    let (_pool, _nodes, shared) = nodes(server, std::sync::Arc::new(Nobody));
    let mut link = Link::establish(&shared).await.expect("a server");
    let now = shared.timer.now();
    let broken = Broken { run: Some("another run".into()), client_id: Some(4) };
    shared.handover.note_broken(broken.clone());
    server.stop();
    link.write_kills(std::slice::from_ref(&broken), now);
    assert!(answered(&mut link).now_or_never().is_none(), "it hangs");
    assert_eq!(
        shared.handover.broken(),
        std::slice::from_ref(&broken),
        "nobody knows whether it has ended"
    );
    server.cont();
    let Answered { kills, replies, .. } = answered(&mut link).await;
    assert_eq!(kills, [broken]);
    link.handle_killed(&kills, &replies, &shared);
    assert_eq!(shared.handover.broken(), []);
    assert!(!shared.handover.may_undo(now), "it has ended");
}
