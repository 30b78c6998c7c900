//! Streams within a test process, connected to a model of a server.

use super::{Address, Stream, Transport};
use crate::server_model::{Config, Output, Server};
use crate::sync::lock;
use futures::future::BoxFuture;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// So few bytes are under way in either direction that nothing is read or written as a whole.
const ROOM: usize = 64;

/// One server, whoever is connected to.
pub(crate) struct Inside {
    server: Arc<Mutex<Server>>,
    begun: Instant,
    asked_for: Mutex<Vec<String>>,
}

impl Inside {
    pub(crate) fn new() -> Arc<Self> {
        let server = Arc::new(Mutex::new(Server::new(Config::default(), 0)));
        Arc::new(Self { server, begun: Instant::now(), asked_for: Mutex::default() })
    }

    /// The keys that the server has, sorted.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        lock(&self.server).keys(wall_us(self.begun)).map(|(key, _)| key.to_vec()).collect()
    }

    /// The addresses that were connected to, one for each stream.
    pub(crate) fn asked_for(&self) -> Vec<String> {
        lock(&self.asked_for).clone()
    }

    /// Waits until the client has closed all streams.
    pub(crate) async fn until_closed(&self) {
        let closed = async {
            while lock(&self.server).connections() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let closed = tokio::time::timeout(Duration::from_secs(20), closed).await;
        assert!(closed.is_ok(), "{} streams are open", lock(&self.server).connections());
    }
}

impl Transport for Inside {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            lock(&self.asked_for).push(to.to_string());
            let (ours, theirs) = duplex(ROOM);
            tokio::spawn(serve(theirs, self.server.clone(), self.begun));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// What the server's clock shows, which stood at 0 when it was started.
fn wall_us(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).expect("a short test")
}

/// Hands on what is heard and said, until the client closes the stream. What is said on others is not handed on:
/// no two clients are on one server here.
async fn serve(mut stream: DuplexStream, server: Arc<Mutex<Server>>, begun: Instant) {
    let us = lock(&server).connect();
    let mut bytes = [0; ROOM];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        let said = lock(&server).receive(us, &bytes[..count], wall_us(begun));
        for output in said {
            match output {
                Output::Bytes(to, bytes) if to == us => {
                    // The client may be gone.
                    let _ = stream.write_all(&bytes).await;
                }
                other => panic!("nobody asks for it here: {other:?}"),
            }
        }
    }
    lock(&server).disconnect(us);
}
