//! The minimum cost of a lock on five connections: one thread writes, waits and reads, without an async runtime.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::contender::TTL;
use crate::measure::{GRACE, SETTLE_TIME, Slice, count};
use crate::raw_fan_out::RELEASE;
use crate::runner::Runner;
use crate::tally::{Failures, Measured, fail};
use crate::usage::Usage;

/// The timeout of `poll` in milliseconds.
const PAUSE_MS: u16 = 100;

/// Sends the same commands as [`RawFanOut`](crate::raw_fan_out::RawFanOut), but without a runtime, a client library,
/// async tasks or wakers. Each `Task` is only an entry in a table.
pub(crate) struct BareLoop {
    nodes: Vec<Node>,
    release_sha: String,
    /// The number of rounds that have started. A round sends one command to all nodes.
    rounds: u64,
}

struct Node {
    stream: TcpStream,
    to_send: Vec<u8>,
    /// Received bytes that do not form a complete line yet.
    received: Vec<u8>,
    /// The task and the round of each unanswered command, oldest first.
    unanswered: VecDeque<(usize, u64)>,
}

struct Task {
    key: String,
    value: String,
    /// The current round. Replies to earlier rounds are ignored.
    round: u64,
    is_held: bool,
    granted: usize,
    refused: usize,
    started: Instant,
    latencies_ns: Vec<u64>,
    ended: Option<Duration>,
}

impl BareLoop {
    pub(crate) const NAME: &'static str = "bare loop";

    pub(crate) fn connect(urls: &[String]) -> Result<Self, String> {
        let nodes = urls.iter().map(|url| Node::connect(url));
        let nodes = nodes.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let release_sha = redis::Script::new(RELEASE).get_hash().to_owned();
        Ok(Self { nodes, release_sha, rounds: 0 })
    }

    /// Starts the task's next round: a release if the task holds its lock, and an acquire otherwise.
    fn start_round(&mut self, index: usize, task: &mut Task) {
        self.rounds += 1;
        (task.round, task.granted, task.refused) = (self.rounds, 0, 0);
        let command = if task.is_held {
            encode(&["EVALSHA", &self.release_sha, "1", &task.key, &task.value])
        } else {
            task.started = Instant::now();
            task.value = format!("{:032x}", self.rounds);
            let ttl = TTL.as_millis().to_string();
            encode(&["SET", &task.key, &task.value, "NX", "PX", &ttl])
        };
        for node in &mut self.nodes {
            node.to_send.extend_from_slice(&command);
            node.unanswered.push_back((index, self.rounds));
        }
    }

    /// Waits until a connection is readable or writable, then reads and writes. For each reply, returns the task, the
    /// round, and whether the command succeeded.
    fn turn(&mut self) -> Result<Vec<(usize, u64, bool)>, String> {
        let interest = |node: &Node| {
            let sends =
                if node.to_send.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFlags::POLLIN | sends
        };
        for node in &mut self.nodes {
            node.send()?;
        }
        let wait_for =
            self.nodes.iter().map(|node| PollFd::new(node.stream.as_fd(), interest(node)));
        let mut ready: Vec<_> = wait_for.collect();
        poll(&mut ready, PollTimeout::from(PAUSE_MS)).map_err(|error| error.to_string())?;
        let ready: Vec<_> = ready.iter().map(|fd| fd.any() == Some(true)).collect();
        let mut replies = Vec::new();
        for (node, _) in self.nodes.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            node.receive(&mut replies)?;
        }
        Ok(replies)
    }

    /// Handles a reply to the task's current round. Once the replies decide the round, starts the next one: the
    /// release, or a new cycle if `goes_on` is true.
    fn handle(
        &mut self,
        index: usize,
        is_done: bool,
        task: &mut Task,
        goes_on: bool,
        failures: &mut Failures,
    ) {
        let majority = self.nodes.len() / 2 + 1;
        *(if is_done { &mut task.granted } else { &mut task.refused }) += 1;
        if task.refused > self.nodes.len() - majority {
            fail(failures, format!("{} of {} refused", task.refused, self.nodes.len()));
            task.is_held = false;
        } else if task.granted < majority {
            return;
        } else if task.is_held {
            let nanos = u64::try_from(task.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            task.latencies_ns.push(nanos);
            task.is_held = false;
        } else {
            task.is_held = true;
        }
        if task.is_held || goes_on {
            self.start_round(index, task);
        } else {
            task.round = 0;
        }
    }

    fn play(
        &mut self,
        slice: &Slice,
        tasks: &mut [Task],
        measured: &mut Measured,
    ) -> Result<(), String> {
        let start = Instant::now();
        let mut running = tasks.len();
        for (index, task) in tasks.iter_mut().enumerate() {
            self.start_round(index, task);
        }
        while running > 0 && start.elapsed() < slice.length + GRACE {
            for (index, round, is_done) in self.turn()? {
                let Some(task) = tasks.get_mut(index).filter(|task| task.round == round) else {
                    continue;
                };
                let goes_on = start.elapsed() < slice.length;
                self.handle(index, is_done, task, goes_on, &mut measured.failures);
                if task.round == 0 {
                    task.ended = Some(start.elapsed());
                    running -= 1;
                }
            }
        }
        measured.elapsed = start.elapsed();
        Ok(())
    }
}

impl Runner for BareLoop {
    fn run(&mut self, slice: &Slice) -> Measured {
        let name = |index| format!("{}:{}", slice.key_prefix, slice.first + index);
        let mut tasks: Vec<_> = (0..slice.tasks).map(|index| Task::new(name(index))).collect();
        let mut measured = Measured::default();
        let before = Usage::now();
        if let Err(broken) = self.play(slice, &mut tasks, &mut measured) {
            fail(&mut measured.failures, broken);
        }
        std::thread::sleep(SETTLE_TIME);
        measured.usage = Usage::now() - before;
        for mut task in tasks {
            let ended = task.ended.unwrap_or(measured.elapsed);
            measured.rate += count(task.latencies_ns.len()) / ended.as_secs_f64();
            measured.latencies_ns.append(&mut task.latencies_ns);
        }
        measured
    }
}

impl Node {
    fn connect(url: &str) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(url.trim_start_matches("redis://"))?;
        stream.set_nodelay(true)?;
        stream.write_all(&encode(&["SCRIPT", "LOAD", RELEASE]))?;
        // The reply is `$40`, the hash, and two line ends.
        stream.read_exact(&mut [0; 47])?;
        stream.set_nonblocking(true)?;
        let (to_send, received) = (Vec::new(), Vec::new());
        Ok(Self { stream, to_send, received, unanswered: VecDeque::new() })
    }

    fn send(&mut self) -> Result<(), String> {
        if self.to_send.is_empty() {
            return Ok(());
        }
        match self.stream.write(&self.to_send) {
            Ok(sent) => drop(self.to_send.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Reads the available bytes and appends one reply per line. The lines `+OK` and `:1` mean success.
    fn receive(&mut self, replies: &mut Vec<(usize, u64, bool)>) -> Result<(), String> {
        let mut chunk = [0; 1 << 14];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err("a node has closed the connection".to_owned()),
            Ok(read) => self.received.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        let mut from = 0;
        while let Some(length) = self.received[from..].windows(2).position(|end| end == b"\r\n") {
            let line = &self.received[from..from + length];
            let (index, round) = self.unanswered.pop_front().ok_or("an unsolicited reply")?;
            replies.push((index, round, line == b"+OK" || line == b":1"));
            from += length + 2;
        }
        self.received.drain(..from);
        Ok(())
    }
}

impl Task {
    fn new(key: String) -> Self {
        Self {
            key,
            value: String::new(),
            round: 0,
            is_held: false,
            granted: 0,
            refused: 0,
            started: Instant::now(),
            latencies_ns: Vec::new(),
            ended: None,
        }
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let head = std::iter::once(format!("*{}\r\n", words.len()));
    head.chain(words).collect::<String>().into_bytes()
}
