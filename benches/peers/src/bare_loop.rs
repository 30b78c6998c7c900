//! The least that five connections cost: one thread that writes, waits and reads, and nothing else.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::contender::TTL;
use crate::floor::RELEASE;
use crate::measure::{GRACE, QUIET, Slice, count};
use crate::runner::Runner;
use crate::tally::{Failures, Seen, fail};
use crate::usage::Usage;

/// How long it sleeps where nothing comes, in milliseconds.
const PAUSE_MS: u16 = 100;

/// As [`Floor`](crate::floor::Floor), but without a runtime, a client library, tasks and wakers: its tasks are entries of
/// a table.
pub(crate) struct BareLoop {
    nodes: Vec<Node>,
    release_sha: String,
    /// How many commands were sent to all nodes so far.
    rounds: u64,
}

/// One connection.
struct Node {
    stream: TcpStream,
    to_send: Vec<u8>,
    /// What has come and is not a whole line yet.
    come: Vec<u8>,
    /// The task and the round of each command that is not answered, oldest first.
    under_way: VecDeque<(usize, u64)>,
}

/// One of the tasks of a slice.
struct Task {
    key: String,
    value: String,
    /// What is asked now; answers of earlier rounds come too late.
    round: u64,
    is_held: bool,
    yes: usize,
    no: usize,
    begun: Instant,
    latencies_ns: Vec<u64>,
    ended: Option<Duration>,
}

impl BareLoop {
    /// The name in the table.
    pub(crate) const NAME: &'static str = "bare loop";

    /// Connects to the nodes at `urls`.
    pub(crate) fn connect(urls: &[String]) -> Result<Self, String> {
        let nodes = urls.iter().map(|url| Node::connect(url));
        let nodes = nodes.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let release_sha = redis::Script::new(RELEASE).get_hash().to_owned();
        Ok(Self { nodes, release_sha, rounds: 0 })
    }

    /// Begins what comes next for a task: a lock, or its release.
    fn ask(&mut self, index: usize, task: &mut Task) {
        self.rounds += 1;
        (task.round, task.yes, task.no) = (self.rounds, 0, 0);
        let command = if task.is_held {
            encode(&["EVALSHA", &self.release_sha, "1", &task.key, &task.value])
        } else {
            task.begun = Instant::now();
            task.value = format!("{:032x}", self.rounds);
            let ttl = TTL.as_millis().to_string();
            encode(&["SET", &task.key, &task.value, "NX", "PX", &ttl])
        };
        for node in &mut self.nodes {
            node.to_send.extend_from_slice(&command);
            node.under_way.push_back((index, self.rounds));
        }
    }

    /// Waits until something can be read or written, and does it. The answers: to which task's round, and whether it
    /// was done.
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
        let mut answers = Vec::new();
        for (node, _) in self.nodes.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            node.receive(&mut answers)?;
        }
        Ok(answers)
    }

    /// Counts an answer. What is decided by it goes on: with the release, or the next cycle before the end.
    fn handle(
        &mut self,
        index: usize,
        is_done: bool,
        task: &mut Task,
        goes_on: bool,
        failures: &mut Failures,
    ) {
        let majority = self.nodes.len() / 2 + 1;
        *(if is_done { &mut task.yes } else { &mut task.no }) += 1;
        if task.no > self.nodes.len() - majority {
            fail(failures, format!("{} of {} said no", task.no, self.nodes.len()));
            task.is_held = false;
        } else if task.yes < majority {
            return;
        } else if task.is_held {
            let nanos = u64::try_from(task.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            task.latencies_ns.push(nanos);
            task.is_held = false;
        } else {
            task.is_held = true;
        }
        if task.is_held || goes_on {
            self.ask(index, task);
        } else {
            task.round = 0;
        }
    }

    fn play(&mut self, slice: &Slice, tasks: &mut [Task], seen: &mut Seen) -> Result<(), String> {
        let start = Instant::now();
        let mut running = tasks.len();
        for (index, task) in tasks.iter_mut().enumerate() {
            self.ask(index, task);
        }
        while running > 0 && start.elapsed() < slice.length + GRACE {
            for (index, round, is_done) in self.turn()? {
                let Some(task) = tasks.get_mut(index).filter(|task| task.round == round) else {
                    continue;
                };
                let goes_on = start.elapsed() < slice.length;
                self.handle(index, is_done, task, goes_on, &mut seen.failures);
                if task.round == 0 {
                    task.ended = Some(start.elapsed());
                    running -= 1;
                }
            }
        }
        seen.elapsed = start.elapsed();
        Ok(())
    }
}

impl Runner for BareLoop {
    fn run(&mut self, slice: &Slice) -> Seen {
        let name = |index| format!("{}:{}", slice.key_prefix, slice.first + index);
        let mut tasks: Vec<_> = (0..slice.tasks).map(|index| Task::new(name(index))).collect();
        let mut seen = Seen::default();
        let before = Usage::now();
        if let Err(broken) = self.play(slice, &mut tasks, &mut seen) {
            fail(&mut seen.failures, broken);
        }
        std::thread::sleep(QUIET);
        seen.usage = Usage::now() - before;
        for mut task in tasks {
            let ended = task.ended.unwrap_or(seen.elapsed);
            seen.rate += count(task.latencies_ns.len()) / ended.as_secs_f64();
            seen.latencies_ns.append(&mut task.latencies_ns);
        }
        seen
    }
}

impl Node {
    fn connect(url: &str) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(url.trim_start_matches("redis://"))?;
        stream.set_nodelay(true)?;
        stream.write_all(&encode(&["SCRIPT", "LOAD", RELEASE]))?;
        // `$40`, the hash, and the ends of two lines.
        stream.read_exact(&mut [0; 47])?;
        stream.set_nonblocking(true)?;
        let (to_send, come) = (Vec::new(), Vec::new());
        Ok(Self { stream, to_send, come, under_way: VecDeque::new() })
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

    /// Reads what has come. All answers are lines, and the good ones are `+OK` and `:1`.
    fn receive(&mut self, answers: &mut Vec<(usize, u64, bool)>) -> Result<(), String> {
        let mut chunk = [0; 1 << 14];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err("a node has closed the connection".to_owned()),
            Ok(read) => self.come.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        let mut from = 0;
        while let Some(length) = self.come[from..].windows(2).position(|end| end == b"\r\n") {
            let line = &self.come[from..from + length];
            let (index, round) = self.under_way.pop_front().ok_or("an answer to nothing")?;
            answers.push((index, round, line == b"+OK" || line == b":1"));
            from += length + 2;
        }
        self.come.drain(..from);
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
            yes: 0,
            no: 0,
            begun: Instant::now(),
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
