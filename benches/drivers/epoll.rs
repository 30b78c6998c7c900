//! Driver: a dedicated thread with an epoll loop.

use crate::coordinator::{Completion, Coordinator, Request};
use crate::engine::{Clock, Stats, connect};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The longest busy wait for requests before the thread sleeps.
const SPIN: Duration = Duration::from_micros(20);
const READ: usize = 64 << 10;
/// Most requests in a turn.
const MOST: usize = 64;

struct Shared {
    requests: Mutex<Vec<Request>>,
    is_asleep: AtomicBool,
    is_closed: AtomicBool,
    wakeup: OwnedFd,
}

#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub fn start(addrs: &[String], node_timeout: Duration, spins: bool, stats: Arc<Stats>) -> Self {
        let wakeup =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            wakeup,
        });
        let streams = addrs.iter().map(|addr| connect(addr)).collect();
        let coordinator = Coordinator::new(addrs.len(), node_timeout);
        let (ours, clock) = (shared.clone(), Clock::start());
        std::thread::spawn(move || {
            Driver { shared: ours, streams, coordinator, clock, spins, stats }.run();
        });
        Self(shared)
    }

    pub fn submit(&self, request: Request) {
        self.0.requests.lock().expect("no panic").push(request);
        if self.0.is_asleep.swap(false, Ordering::SeqCst) {
            self.0.wake();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // One handle of the caller, and one of the thread.
        if Arc::strong_count(&self.0) == 2 {
            self.0.is_closed.store(true, Ordering::SeqCst);
            self.0.wake();
        }
    }
}

impl Shared {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

struct Driver {
    shared: Arc<Shared>,
    streams: Vec<TcpStream>,
    coordinator: Coordinator,
    clock: Clock,
    spins: bool,
    stats: Arc<Stats>,
}

impl Driver {
    fn run(mut self) {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        let key = epoll::EventData::new_u64;
        let edge = epoll::EventFlags::IN;
        for (place, stream) in self.streams.iter().enumerate() {
            stream.set_nonblocking(true).expect("a socket");
            epoll::add(&poll, stream, key(place as u64), edge).expect("added");
        }
        let bell = self.streams.len() as u64;
        epoll::add(&poll, &self.shared.wakeup, key(bell), edge).expect("added");
        let mut events = Vec::with_capacity(16);
        let mut buffer = vec![0; READ];
        let mut taken = Vec::new();
        let mut done: Vec<(oneshot::Sender<Completion>, Completion)> = Vec::new();
        let mut expected = 0;
        while !self.shared.is_closed.load(Ordering::Relaxed) {
            if self.spins && expected > 0 {
                self.spin(expected);
            }
            let timeout = self.timeout(taken.is_empty());
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let waited = epoll::wait(&poll, room, timeout.as_ref());
            if let Err(error) = waited {
                assert_eq!(error, rustix::io::Errno::INTR, "{error}");
            }
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            let begun = Instant::now();
            for event in events.drain(..) {
                let place = event.data.u64();
                if place == bell {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.shared.wakeup, &mut count);
                } else {
                    self.read(usize::try_from(place).expect("a place"), &mut buffer);
                }
            }
            let now = self.clock.now();
            if self.coordinator.poll_timeout().is_some_and(|at| at <= now) {
                self.coordinator.handle_timeout(now);
            }
            self.coordinator.take_completions(&mut done);
            expected = done.len();
            for (sender, completion) in done.drain(..) {
                let _ = sender.send(completion);
            }
            if taken.is_empty() {
                std::mem::swap(&mut taken, &mut *self.shared.requests.lock().expect("no panic"));
            }
            let now = self.clock.now();
            let count = taken.len().min(MOST);
            for request in taken.drain(..count) {
                self.coordinator.handle_request(request, now);
            }
            self.write();
            self.stats.record(begun.elapsed());
        }
    }

    /// Waits a moment for the requests of the callers that were just answered.
    fn spin(&self, expected: usize) {
        let end = Instant::now() + SPIN;
        while Instant::now() < end {
            if self.shared.requests.lock().expect("no panic").len() >= expected {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// How long to sleep; zero if there are requests.
    fn timeout(&self, is_done: bool) -> Option<rustix::time::Timespec> {
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if !is_done {
            return Some(zero);
        }
        self.shared.is_asleep.store(true, Ordering::SeqCst);
        if !self.shared.requests.lock().expect("no panic").is_empty() {
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            return Some(zero);
        }
        let at = self.coordinator.poll_timeout()?;
        let left = at.since(self.clock.now());
        Some(rustix::time::Timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(999_999_999) as i64 })
    }

    fn read(&mut self, place: usize, buffer: &mut [u8]) {
        match self.streams[place].read(buffer) {
            Ok(0) => panic!("node {place} closed its connection"),
            Ok(count) => {
                let now = self.clock.now();
                self.coordinator.handle_bytes(place, &buffer[..count], now);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("node {place}: {error}"),
        }
    }

    fn write(&mut self) {
        for (place, stream) in self.streams.iter_mut().enumerate() {
            loop {
                let bytes = self.coordinator.poll_transmit(place);
                if bytes.is_empty() {
                    break;
                }
                match stream.write(bytes) {
                    Ok(count) => self.coordinator.handle_sent(place, count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("node {place}: {error}"),
                }
            }
        }
    }
}
