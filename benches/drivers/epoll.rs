//! Driver: a dedicated thread with an epoll loop. The coordinator is behind a mutex, so that a caller can write its request
//! itself while the thread sleeps.

use crate::coordinator::{Completion, Coordinator, Request};
use crate::engine::{Clock, Stats, connect};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

use crate::protocol::Time;

const READ: usize = 64 << 10;
/// The longest wait for requests.
const GATHER: Duration = Duration::from_micros(20);
/// Most requests in a turn.
const MOST: usize = 64;

struct Shared {
    engine: Mutex<Engine>,
    requests: Mutex<Vec<Request>>,
    is_asleep: AtomicBool,
    is_closed: AtomicBool,
    wakeup: OwnedFd,
    clock: Clock,
    /// True if a caller writes its request itself while the client is idle, and if the thread waits for more requests
    /// before it writes the first one.
    is_helped: bool,
}

#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub fn start(
        addrs: &[String],
        node_timeout: Duration,
        is_helped: bool,
        stats: Arc<Stats>,
    ) -> Self {
        let wakeup =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer");
        let engine = Engine {
            streams: addrs.iter().map(|addr| connect(addr)).collect(),
            coordinator: Coordinator::new(addrs.len(), node_timeout),
            timer,
            armed: None,
        };
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            requests: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            wakeup,
            clock: Clock::start(),
            is_helped,
        });
        let ours = shared.clone();
        std::thread::spawn(move || ours.run(&stats));
        Self(shared)
    }

    pub fn submit(&self, request: Request) {
        let shared = &*self.0;
        if shared.is_helped
            && shared.is_asleep.load(Ordering::SeqCst)
            && let Ok(mut engine) = shared.engine.try_lock()
            && engine.coordinator.is_idle()
        {
            engine.coordinator.handle_request(request, shared.clock.now());
            engine.write();
            engine.arm(shared.clock.now());
            return;
        }
        shared.requests.lock().expect("no panic").push(request);
        if shared.is_asleep.swap(false, Ordering::SeqCst) {
            shared.wake();
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

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect("no panic")
    }

    fn run(&self, stats: &Stats) {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        let key = epoll::EventData::new_u64;
        // Each write to the eventfd and each end of the timer is an event of its own, so they are never read.
        let each = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let count = {
            let engine = self.engine();
            for (place, stream) in engine.streams.iter().enumerate() {
                stream.set_nonblocking(true).expect("a socket");
                epoll::add(&poll, stream, key(place as u64), epoll::EventFlags::IN).expect("added");
            }
            epoll::add(&poll, &engine.timer, key(u64::MAX), each).expect("added");
            engine.streams.len()
        };
        epoll::add(&poll, &self.wakeup, key(u64::MAX), each).expect("added");
        let mut events = Vec::with_capacity(16);
        let mut buffer = vec![0; READ];
        let mut taken = Vec::new();
        let mut done: Vec<(oneshot::Sender<Completion>, Completion)> = Vec::new();
        let mut expected = 0;
        while !self.is_closed.load(Ordering::Relaxed) {
            let has_requests = !taken.is_empty() || !self.sleep();
            let zero = Timespec::default();
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let waited = epoll::wait(&poll, room, has_requests.then_some(&zero));
            if let Err(error) = waited {
                assert_eq!(error, rustix::io::Errno::INTR, "{error}");
            }
            self.is_asleep.store(false, Ordering::SeqCst);
            if self.is_helped && expected > 1 {
                self.gather(expected);
            }
            let begun = Instant::now();
            let mut engine = self.engine();
            for event in events.drain(..) {
                let place = usize::try_from(event.data.u64()).expect("a place");
                if place < count {
                    engine.read(place, &mut buffer, self.clock);
                }
            }
            let now = self.clock.now();
            if engine.coordinator.poll_timeout().is_some_and(|at| at <= now) {
                engine.coordinator.handle_timeout(now);
            }
            engine.coordinator.take_completions(&mut done);
            expected = done.len();
            if taken.is_empty() {
                std::mem::swap(&mut taken, &mut *self.requests.lock().expect("no panic"));
            }
            let now = self.clock.now();
            let most = taken.len().min(MOST);
            for request in taken.drain(..most) {
                engine.coordinator.handle_request(request, now);
            }
            engine.write();
            engine.arm(now);
            drop(engine);
            for (sender, completion) in done.drain(..) {
                let _ = sender.send(completion);
            }
            stats.record(begun.elapsed());
        }
    }

    /// Lets callers run that were answered together, so that their next requests are written together.
    fn gather(&self, expected: usize) {
        let begun = Instant::now();
        while begun.elapsed() < GATHER {
            let count = self.requests.lock().expect("no panic").len();
            if count == 0 || count >= expected {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// False if there are requests, and the thread stays awake.
    fn sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.requests.lock().expect("no panic").is_empty() {
            return true;
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        false
    }
}

/// The state that the mutex protects.
struct Engine {
    streams: Vec<TcpStream>,
    coordinator: Coordinator,
    timer: OwnedFd,
    /// When the timer ends. It may end early: then it is armed again.
    armed: Option<Time>,
}

impl Engine {
    /// Arms the timer for the next timeout.
    fn arm(&mut self, now: Time) {
        self.armed = self.armed.filter(|at| *at > now);
        let Some(at) = self.coordinator.poll_timeout() else { return };
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            let left = at.since(now).max(Duration::from_nanos(1));
            let value = left.try_into().expect("a short time");
            let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).expect("a timer");
        }
    }

    fn read(&mut self, place: usize, buffer: &mut [u8], clock: Clock) {
        match self.streams[place].read(buffer) {
            Ok(0) => panic!("node {place} closed its connection"),
            Ok(count) => {
                self.coordinator.handle_bytes(place, &buffer[..count], clock.now());
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
