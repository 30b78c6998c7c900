//! Driver: one future on a dedicated thread with a tokio runtime.

use crate::coordinator::{Coordinator, Request};
use crate::engine::{Clock, Stats, connect};
use futures::task::AtomicWaker;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::Sleep;

const READ: usize = 64 << 10;
const MOST: usize = 64;

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    is_closed: AtomicBool,
    waker: AtomicWaker,
}

#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub fn start(addrs: &[String], node_timeout: Duration, stats: Arc<Stats>) -> Self {
        let shared = Arc::new(Shared::default());
        let streams: Vec<_> = addrs.iter().map(|addr| connect(addr)).collect();
        let coordinator = Coordinator::new(addrs.len(), node_timeout);
        let ours = shared.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let streams = streams.into_iter().map(|stream| {
                    stream.set_nonblocking(true).expect("a socket");
                    TcpStream::from_std(stream).expect("a socket")
                });
                let mut driver = Driver {
                    shared: ours,
                    streams: streams.collect(),
                    coordinator,
                    clock: Clock::start(),
                    stats,
                    buffer: vec![0; READ],
                    taken: Vec::new(),
                    done: Vec::new(),
                };
                let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
                poll_fn(|cx| driver.turn(cx, sleep.as_mut())).await;
            });
        });
        Self(shared)
    }

    pub fn submit(&self, request: Request) {
        let is_first = {
            let mut requests = self.0.requests.lock().expect("no panic");
            requests.push(request);
            requests.len() == 1
        };
        if is_first {
            self.0.waker.wake();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 2 {
            self.0.is_closed.store(true, Ordering::SeqCst);
            self.0.waker.wake();
        }
    }
}

struct Driver {
    shared: Arc<Shared>,
    streams: Vec<TcpStream>,
    coordinator: Coordinator,
    clock: Clock,
    stats: Arc<Stats>,
    buffer: Vec<u8>,
    taken: Vec<Request>,
    done: Vec<crate::coordinator::Done>,
}

impl Driver {
    fn turn(&mut self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        let begun = Instant::now();
        self.shared.waker.register(cx.waker());
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        for place in 0..self.streams.len() {
            self.read(place, cx);
        }
        let now = self.clock.now();
        if self.coordinator.poll_timeout().is_some_and(|at| at <= now) {
            self.coordinator.handle_timeout(now);
        }
        self.coordinator.take_completions(&mut self.done);
        for (sender, completion) in self.done.drain(..) {
            let _ = sender.send(completion);
        }
        if self.taken.is_empty() {
            std::mem::swap(&mut self.taken, &mut *self.shared.requests.lock().expect("no panic"));
        }
        let count = self.taken.len().min(MOST);
        for request in self.taken.drain(..count) {
            self.coordinator.handle_request(request, now);
        }
        if !self.taken.is_empty() {
            cx.waker().wake_by_ref();
        }
        for place in 0..self.streams.len() {
            self.write(place, cx);
        }
        if let Some(at) = self.coordinator.poll_timeout() {
            // A coarse alarm, moved only when it has fired.
            if sleep.is_elapsed() {
                let left = at.since(self.clock.now());
                sleep.as_mut().reset(tokio::time::Instant::now() + left);
            }
            if sleep.poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        self.stats.record(begun.elapsed());
        Poll::Pending
    }

    fn read(&mut self, place: usize, cx: &mut Context<'_>) {
        let stream = &self.streams[place];
        while stream.poll_read_ready(cx).is_ready() {
            match stream.try_read(&mut self.buffer) {
                Ok(0) => panic!("node {place} closed its connection"),
                Ok(count) => {
                    let now = self.clock.now();
                    self.coordinator.handle_bytes(place, &self.buffer[..count], now);
                    if count == READ {
                        continue;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("node {place}: {error}"),
            }
        }
    }

    fn write(&mut self, place: usize, cx: &mut Context<'_>) {
        let stream = &self.streams[place];
        loop {
            let bytes = self.coordinator.poll_transmit(place);
            if bytes.is_empty() {
                return;
            }
            match stream.try_write(bytes) {
                Ok(count) => self.coordinator.handle_sent(place, count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if stream.poll_write_ready(cx).is_pending() {
                        return;
                    }
                }
                Err(error) => panic!("node {place}: {error}"),
            }
        }
    }
}
