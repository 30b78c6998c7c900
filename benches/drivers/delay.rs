//! Distance to the nodes: a process with one thread that forwards bytes with a delay. The proxies of `kit` run in the
//! process of the clients, so their CPU time and context switches would be added to those of the clients.

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of the process.
pub const ARGUMENT: &str = "relay";

/// A running relay, which is killed when it is dropped.
pub struct Delay {
    process: Child,
    /// The addresses of the relay, one for each node.
    pub addrs: Vec<String>,
}

impl Delay {
    /// Delays requests and replies of `nodes` by half of the round trip.
    pub fn start(nodes: &[String], round_trip: Duration) -> Self {
        let program = std::env::current_exe().expect("the program");
        let mut command = Command::new(program);
        command.arg(ARGUMENT).arg((round_trip / 2).as_micros().to_string()).args(nodes);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        let addrs = stdout.lines().take(nodes.len()).map(|line| line.expect("text")).collect();
        Self { process, addrs }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One direction of a connection.
struct Flow {
    from: TcpStream,
    to: TcpStream,
    /// Bytes with the time at which they are due, in order.
    queue: VecDeque<(Instant, Vec<u8>)>,
}

/// The relay process: prints an address for each of `nodes`, and forwards bytes until it is killed, or until its parent
/// has ended.
pub fn relay(delay: Duration, nodes: &[String]) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let nodes: Vec<SocketAddr> =
        nodes.iter().map(|node| node.parse().expect("an address")).collect();
    let listen = |_: &SocketAddr| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        println!("{}", listener.local_addr().expect("an address"));
        listener
    };
    let listeners: Vec<_> = nodes.iter().map(listen).collect();
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
    // The timeout of epoll_wait has a resolution of a millisecond.
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer");
    let each = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&poll, &timer, epoll::EventData::new_u64(u64::MAX), each).expect("added");
    let watch = |socket: &dyn std::os::fd::AsFd, place: usize| {
        let key = epoll::EventData::new_u64(place as u64);
        epoll::add(&poll, socket.as_fd(), key, epoll::EventFlags::IN).expect("added");
    };
    listeners.iter().enumerate().for_each(|(place, listener)| watch(listener, place));
    let (mut flows, mut events) = (Vec::<Option<Flow>>::new(), Vec::with_capacity(64));
    loop {
        let dues = flows.iter().flatten().filter_map(|flow| flow.queue.front());
        let due = dues.map(|(due, _)| *due).min();
        if let Some(due) = due {
            let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            let value = left.try_into().expect("a short time");
            let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).expect("a timer");
        }
        events.clear();
        let waited = epoll::wait(&poll, spare_capacity(&mut events), None);
        if let Err(error) = waited {
            assert_eq!(error, rustix::io::Errno::INTR, "{error}");
        }
        for event in events.iter().filter(|event| event.data.u64() != u64::MAX) {
            let place = usize::try_from(event.data.u64()).expect("a place");
            if let Some(node) = nodes.get(place) {
                let (client, _) = listeners[place].accept().expect("a connection");
                let server = TcpStream::connect(node).expect("a node");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    from.set_nodelay(true).expect("a socket");
                    from.set_nonblocking(true).expect("a socket");
                    watch(from, nodes.len() + flows.len());
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                    flows.push(Some(Flow { from, to, queue: VecDeque::new() }));
                }
            } else {
                let place = place - nodes.len();
                let is_open = flows[place].as_mut().is_none_or(|flow| flow.receive(delay));
                if !is_open && let Some(flow) = flows[place].take() {
                    // The other direction ends with it.
                    epoll::delete(&poll, &flow.from).expect("it is watched");
                    let _ = flow.to.shutdown(std::net::Shutdown::Both);
                }
            }
        }
        let now = Instant::now();
        flows.iter_mut().flatten().for_each(|flow| flow.send(now));
    }
}

impl Flow {
    /// Reads once. False at the end of the stream.
    fn receive(&mut self, delay: Duration) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.from.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.queue.push_back((Instant::now() + delay, buffer[..count].to_vec()));
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Sends the bytes that are due. The receiver's buffer has room: a benchmark has few bytes on their way.
    fn send(&mut self, now: Instant) {
        while self.queue.front().is_some_and(|(due, _)| *due <= now) {
            let sent = self.queue.pop_front().map(|(_, bytes)| self.to.write_all(&bytes));
            if !matches!(sent, Some(Ok(()))) {
                return;
            }
        }
    }
}
