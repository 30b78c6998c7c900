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
    guarded_node(environment, pushes, RestartGuard::Off)
}

/// The same under this guard, with a term of one second.
pub(in crate::node) fn guarded_node(
    environment: Environment,
    pushes: Arc<dyn PushSink>,
    guard: RestartGuard,
) -> Arc<NodeShared> {
    let second = Duration::from_secs(1);
    let options = TcpOptions::default();
    let address = Address::Tcp(TcpAddress { host: "node.invalid".into(), port: 7, options });
    let name: Arc<str> = "node".into();
    let siblings = Arc::new(Siblings::new(vec![name.clone()]));
    let quorum = Quorum::majority(1);
    let guard = Guard::new(quorum, guard, second);
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

/// It panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("not yet");
    }
}

#[tokio::test]
async fn what_is_thrown_may_panic_too() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let broken = shield::<()>(async { std::panic::panic_any(Bomb) }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no message".into())));
}
