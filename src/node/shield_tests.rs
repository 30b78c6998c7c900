use super::*;
use crate::node::{
    Clocks, Endpoint, Environment, Guard, Login, NodeShared, PushSink, RestartGuard, Siblings,
    Timings,
};
use crate::protocol::{Drift, NodeId, Quorum};
use crate::transport::{Address, TcpAddress, TcpOptions};
use crate::wire::Fingerprint;
use redis::RedisConnectionInfo;
use std::sync::Arc;
use std::time::Duration;

/// The one node of a client, with a node timeout of five seconds.
pub(in crate::node) fn node(
    environment: Environment,
    pushes: Arc<dyn PushSink>,
) -> Arc<NodeShared> {
    let second = Duration::from_secs(1);
    let options = TcpOptions::default();
    let address = Address::Tcp(TcpAddress { host: "node.invalid".into(), port: 7, options });
    let name: Arc<str> = "node".into();
    let siblings = Arc::new(Siblings::new(vec![name.clone()]));
    let quorum = Quorum::majority(1);
    let guard = Guard::new(quorum, RestartGuard::Off, second);
    let clocks = Clocks::new(quorum, Drift::DEFAULT, second);
    let fingerprint = Fingerprint::new(Vec::new(), 1, second, b"");
    let login = Login::new(RedisConnectionInfo::default(), None, fingerprint);
    Arc::new(NodeShared::new(
        NodeId::new(0),
        Endpoint { name, address, login, environment },
        Timings { answer: 5 * second, connect: 5 * second },
        siblings,
        pushes,
        Arc::new(guard),
        Arc::new(clocks),
    ))
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_message() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let done = shield(async { Ok(7) }, failure).await;
    assert_eq!(done, Ok(7));
    let broken = shield::<()>(async { panic!("\n no provider\nsecond line") }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no provider".into())));
    assert!(crate::sync::contain(|| panic!("{}", 7)).is_none());
}

/// A whole task, with a model of a server behind it.
#[cfg(feature = "test-util")]
mod served {
    use super::*;
    use crate::node::{Ballot, Claim, Pool, QueuedCommand, VoteSink};
    use crate::protocol::{Time, Ttl, Vote};
    use crate::random::Random;
    use crate::transport::Inside;
    use crate::wire::{Answer, Keys, Value, Wants};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    /// Hears votes, and panics over every one if it is told to.
    #[derive(Default)]
    struct Listener {
        panics: bool,
        votes: Mutex<Vec<Vote>>,
        heard: Notify,
    }

    impl VoteSink for Listener {
        fn handle_answer(&self, _: NodeId, answer: Answer, _: Option<Time>) {
            self.votes.lock().expect("no panic with it").push(answer.vote());
            self.heard.notify_one();
            assert!(!self.panics, "a waker of somebody's panics");
        }
    }

    impl Listener {
        async fn first_vote(&self) -> Vote {
            loop {
                if let Some(vote) = self.votes.lock().expect("no panic with it").first() {
                    return *vote;
                }
                let soon = tokio::time::timeout(Duration::from_secs(20), self.heard.notified());
                soon.await.expect("a vote comes in time");
            }
        }
    }

    /// Panics whenever it is told of keys.
    #[derive(Default)]
    struct Nervous(AtomicUsize);

    impl PushSink for Nervous {
        fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a waker of somebody's panics");
        }

        fn handle_step(&self, _ahead: Duration) {}
    }

    #[tokio::test]
    async fn a_waker_that_panics_takes_no_other_order_with_it() {
        let server = Inside::new();
        let pushes = Arc::<Nervous>::default();
        let environment = Environment { transport: server.clone(), ..<_>::default() };
        let shared = node(environment.clone(), pushes.clone());
        let pool = Pool::new([shared.clone()].into(), None, environment);
        let nodes = pool.here().expect("a runtime");
        let ttl = Ttl::from_duration(Duration::from_mins(1)).expect("a good ttl");
        let claim = |key: &str| {
            Arc::new(Claim::new(
                Keys::one(key.as_bytes().into()),
                Value::fresh(&Random::Machine),
                1,
            ))
        };
        let claims = ["a", "b", "c"].map(claim);
        // They are written as one pipeline, as soon as there is a connection.
        let listeners =
            [true, false, true].map(|panics| Arc::new(Listener { panics, ..<_>::default() }));
        for (claim, listener) in claims.iter().zip(&listeners) {
            let command = |node| {
                let ballot = Ballot::new(listener.clone(), node);
                QueuedCommand::acquire(claim.clone(), ttl, Wants::Nothing, ballot)
            };
            nodes.send_each(command);
        }
        for listener in &listeners {
            assert_eq!(listener.first_vote().await, Vote::Granted);
        }
        assert_eq!(server.keys(), [b"a", b"b", b"c"]);
        let released =
            [true, false, true].map(|panics| Arc::new(Listener { panics, ..<_>::default() }));
        for (claim, listener) in claims.iter().zip(&released) {
            claim.withdraw();
            nodes.send_each(|node| {
                QueuedCommand::release(claim.clone(), Some(Ballot::new(listener.clone(), node)))
            });
        }
        for listener in &released {
            assert_eq!(listener.first_vote().await, Vote::Granted);
        }
        assert!(server.keys().is_empty());
        assert_eq!(shared.pending_releases(), 0, "nothing is owed any more");
        assert!(nodes.is_open(), "the task has served it all");
        let told = pushes.0.load(Ordering::Relaxed);
        assert_eq!(told, 1, "of the one connection that has served it all, and that panicked");
    }
}
