//! Driver: a task per node on the caller's runtime. They share the coordinator behind a mutex.

use crate::coordinator::{Coordinator, Done, Request};
use crate::engine::{Clock, Stats, connect};
use futures::task::AtomicWaker;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const READ: usize = 64 << 10;

struct Shared {
    coordinator: Mutex<Coordinator>,
    clock: Clock,
    wakers: Vec<AtomicWaker>,
    is_closed: AtomicBool,
    stats: Arc<Stats>,
}

#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Must be called within a runtime.
    pub fn start(addrs: &[String], node_timeout: Duration, stats: Arc<Stats>) -> Self {
        let shared = Arc::new(Shared {
            coordinator: Mutex::new(Coordinator::new(addrs.len(), node_timeout)),
            clock: Clock::start(),
            wakers: addrs.iter().map(|_| AtomicWaker::new()).collect(),
            is_closed: AtomicBool::new(false),
            stats,
        });
        for (place, addr) in addrs.iter().enumerate() {
            let stream = connect(addr);
            stream.set_nonblocking(true).expect("a socket");
            let stream = TcpStream::from_std(stream).expect("a socket");
            tokio::spawn(run(shared.clone(), place, stream));
        }
        Self(shared)
    }

    pub fn submit(&self, request: Request) {
        let now = self.0.clock.now();
        let begun = Instant::now();
        self.0.coordinator.lock().expect("no panic").handle_request(request, now);
        self.0.stats.record(begun.elapsed());
        self.0.wakers.iter().for_each(AtomicWaker::wake);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 1 + self.0.wakers.len() {
            self.0.is_closed.store(true, Ordering::SeqCst);
            self.0.wakers.iter().for_each(AtomicWaker::wake);
        }
    }
}

async fn run(shared: Arc<Shared>, place: usize, stream: TcpStream) {
    let mut buffer = vec![0; READ];
    let mut done = Vec::new();
    let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
    // True if the callers that were answered ran once since.
    let mut has_gathered = false;
    poll_fn(|cx| {
        shared.wakers[place].register(cx.waker());
        if shared.is_closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let has_read = read(&shared, place, &stream, &mut buffer, &mut done, cx);
        if has_read || !has_gathered {
            // Callers that were answered, and others that are ready, run before the next pipeline is written.
            has_gathered = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        has_gathered = false;
        write(&shared, place, &stream, cx);
        if place == 0 {
            let at = shared.coordinator.lock().expect("no panic").poll_timeout();
            if let Some(at) = at {
                let now = shared.clock.now();
                if at <= now {
                    let mut coordinator = shared.coordinator.lock().expect("no panic");
                    coordinator.handle_timeout(now);
                    coordinator.take_completions(&mut done);
                    drop(coordinator);
                    deliver(&mut done);
                }
                if sleep.is_elapsed() {
                    sleep.as_mut().reset(tokio::time::Instant::now() + at.since(now));
                }
                if std::future::Future::poll(sleep.as_mut(), cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
            }
        }
        // Woken by a request or a reply: gathers first.
        Poll::Pending
    })
    .await;
}

fn deliver(done: &mut Vec<Done>) {
    for (sender, completion) in done.drain(..) {
        let _ = sender.send(completion);
    }
}

fn read(
    shared: &Shared,
    place: usize,
    stream: &TcpStream,
    buffer: &mut [u8],
    done: &mut Vec<Done>,
    cx: &mut Context<'_>,
) -> bool {
    let mut has_read = false;
    while stream.poll_read_ready(cx).is_ready() {
        match stream.try_read(buffer) {
            Ok(0) => panic!("node {place} closed its connection"),
            Ok(count) => {
                has_read = true;
                let begun = Instant::now();
                let mut coordinator = shared.coordinator.lock().expect("no panic");
                // Read after the lock, so that `now` never goes back.
                let now = shared.clock.now();
                coordinator.handle_bytes(place, &buffer[..count], now);
                coordinator.take_completions(done);
                drop(coordinator);
                shared.stats.record(begun.elapsed());
                deliver(done);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("node {place}: {error}"),
        }
    }
    has_read
}

fn write(shared: &Shared, place: usize, stream: &TcpStream, cx: &mut Context<'_>) {
    let mut bytes = Vec::new();
    loop {
        {
            let mut coordinator = shared.coordinator.lock().expect("no panic");
            let more = coordinator.poll_transmit(place);
            if more.is_empty() {
                return;
            }
            bytes.clear();
            bytes.extend_from_slice(more);
        }
        match stream.try_write(&bytes) {
            Ok(count) => shared.coordinator.lock().expect("no panic").handle_sent(place, count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if stream.poll_write_ready(cx).is_pending() {
                    return;
                }
            }
            Err(error) => panic!("node {place}: {error}"),
        }
    }
}
