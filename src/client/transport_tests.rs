//! A client whose connections go through what it was given, and through nothing else.

use super::*;
use crate::transport::{Address, Stream};
use futures::future::BoxFuture;
use kit::Server;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{copy_bidirectional, duplex};
use tokio::net::TcpStream;

/// Streams inside of this process, each to a task that hands on what it hears to a server.
struct Inside {
    server: SocketAddr,
    asked_for: &'static str,
    made: AtomicUsize,
    open: Arc<AtomicUsize>,
}

impl Inside {
    fn new(server: SocketAddr, asked_for: &'static str) -> Arc<Self> {
        Arc::new(Self { server, asked_for, made: AtomicUsize::new(0), open: Arc::default() })
    }

    async fn until_closed(&self) {
        let closed = async {
            while self.open.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let closed = tokio::time::timeout(Duration::from_secs(20), closed).await;
        assert!(closed.is_ok(), "{} streams are open", self.open.load(Ordering::Relaxed));
    }
}

impl Transport for Inside {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            assert_eq!(to.to_string(), self.asked_for);
            let mut server = TcpStream::connect(self.server).await?;
            let (ours, mut theirs) = duplex(64);
            self.made.fetch_add(1, Ordering::Relaxed);
            self.open.fetch_add(1, Ordering::Relaxed);
            let open = self.open.clone();
            tokio::spawn(async move {
                // How it ends does not matter: it has ended.
                let _ = copy_bidirectional(&mut theirs, &mut server).await;
                open.fetch_sub(1, Ordering::Relaxed);
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

fn over(inside: &Arc<Inside>) -> Redlock {
    // Nobody can be reached there.
    let builder = Redlock::builder().nodes(["redis://node.invalid:7"]).transport(inside.clone());
    builder.node_timeout(Duration::from_secs(1)).build().expect("good settings")
}

#[tokio::test]
async fn locks_over_streams_inside_of_the_process() {
    let server = Server::start();
    let inside = Inside::new(server.addr(), "node.invalid:7");
    let redlock = over(&inside);
    let lease = redlock.acquire("r").await.expect("a free lock");
    assert!(server.get("r").is_some());
    lease.extend(Duration::from_secs(20)).await.expect("still held");
    assert!(lease.release().await.is_ok());
    assert_eq!(server.get("r"), None);
    assert_eq!(inside.made.load(Ordering::Relaxed), 1);
    let checks = redlock.check().await.expect("a client that works");
    assert!(checks[0].version().is_some(), "{}", checks[0]);
    assert_eq!(inside.made.load(Ordering::Relaxed), 2, "looking makes a connection of its own");
    redlock.close().await.expect("nothing is owed");
    drop(redlock);
    inside.until_closed().await;
}

#[tokio::test]
async fn what_a_transport_fails_with_is_told() {
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
