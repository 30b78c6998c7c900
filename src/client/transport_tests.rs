//! Checks that a client connects through the transport that was set on its builder.

use super::*;
use crate::transport::{Address, Stream};
use futures::future::BoxFuture;
use std::io;

#[tokio::test]
async fn locks_over_streams_inside_of_the_process() {
    let node = crate::transport::StubNode::new();
    // This name cannot be resolved, so the connection must use the transport.
    let builder = Redlock::builder().nodes(["redis://node.invalid:7"]).transport(node.clone());
    let redlock = builder.node_timeout(Duration::from_secs(1)).build().expect("good settings");
    let lease = redlock.acquire("r").await.expect("a free lock");
    assert_eq!(node.keys(), [b"r"]);
    lease.extend(Duration::from_secs(20)).await.expect("still held");
    assert!(lease.release().await.is_ok());
    assert!(node.keys().is_empty());
    assert_eq!(node.addresses(), ["node.invalid:7"]);
    let checks = redlock.check().await.expect("a client that works");
    assert!(checks[0].version().is_some(), "{}", checks[0]);
    assert_eq!(node.addresses(), ["node.invalid:7"; 2], "looking makes a connection of its own");
    redlock.close().await.expect("nothing is owed");
    drop(redlock);
    node.until_closed().await;
}

#[tokio::test]
async fn transport_error_is_reported() {
    struct Broken;
    impl Transport for Broken {
        fn connect<'a>(&'a self, _: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            Box::pin(async { Err(io::Error::other("no such wire")) })
        }
    }
    let redlock = Redlock::builder().nodes(["redis://h"]).transport(Arc::new(Broken));
    let redlock = redlock.build().expect("good settings");
    let refused = redlock.try_acquire("r").await.expect_err("nobody answers");
    assert!(refused.to_string().contains("no such wire"), "{refused}");
}
