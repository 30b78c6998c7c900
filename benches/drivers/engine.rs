//! Common parts of the drivers, and today's engine behind the same interface.

use crate::coordinator::{Completion, Request};
use crate::node_tasks;
use crate::protocol::Time;
use quorlock::{Lease, Redlock};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The longest turn, in nanoseconds.
#[derive(Default)]
pub struct Stats(AtomicU64);

impl Stats {
    pub fn record(&self, turn: Duration) {
        let nanos = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now(self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).expect("a short run"))
    }
}

/// A blocking connection.
pub fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("a node");
    stream.set_nodelay(true).expect("a socket");
    stream
}

#[derive(Clone)]
pub enum Engine {
    Today(Redlock),
    NodeTasks(node_tasks::Handle),
}

pub const NAMES: [&str; 2] = ["today", "node tasks"];

impl Engine {
    /// Must be called within the runtime of the callers.
    pub fn start(name: &str, addrs: &[String], node_timeout: Duration, stats: &Arc<Stats>) -> Self {
        let stats = stats.clone();
        match name {
            "today" => {
                let urls = addrs.iter().map(|addr| format!("redis://{addr}"));
                let builder = Redlock::builder().nodes(urls).node_timeout(node_timeout);
                Self::Today(builder.build().expect("valid settings"))
            }
            "node tasks" => Self::NodeTasks(node_tasks::Handle::start(addrs, node_timeout, stats)),
            _ => panic!("no engine {name}"),
        }
    }

    /// An acquire and a release. False if either failed.
    pub async fn cycle(&self, name: &str, key: &crate::wire::Key) -> bool {
        if let Self::Today(redlock) = self {
            let lease: Result<Lease, _> = redlock.try_acquire(name).await;
            return match lease {
                Ok(lease) => lease.release().await.is_ok(),
                Err(_) => false,
            };
        }
        let (done, acquired) = oneshot::channel();
        self.submit(Request::Acquire { key: key.clone(), done });
        let Ok(Some(held)) = acquired.await else { return false };
        std::hint::black_box(held.valid_until);
        let (done, released) = oneshot::channel::<Completion>();
        self.submit(Request::Release { id: held.id, done });
        released.await.is_ok_and(|held| held.is_some())
    }

    fn submit(&self, request: Request) {
        match self {
            Self::Today(_) => unreachable!("it has an interface of its own"),
            Self::NodeTasks(handle) => handle.submit(request),
        }
    }
}
