//! How a nemesis is done to a node, and undone.

use crate::nemesis::Nemesis;
use kit::{Direction, Proxy, Server};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to answer its operator: the machine can be busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// From when on a server says that it is busy, in milliseconds.
const BUSY_AFTER: &str = "20";
const PASSWORD: &str = "nobody-knows";
/// How far a clock jumps.
const JUMP: Duration = Duration::from_mins(1);
/// How fast a fast clock is, in parts per million too many.
const FAST: i32 = 100_000;

/// A node: a server, with a proxy before it.
pub(crate) struct ProxiedNode {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
}

/// A connection past the proxy, made before a fault that would refuse it.
pub(crate) struct Operator(BufReader<TcpStream>);

/// What it takes to undo something.
pub(crate) struct Undo {
    operator: Option<Operator>,
    /// Kept open: a script runs on it.
    busy: Option<Operator>,
    /// A directory that stands where the server wants to save.
    obstacle: Option<String>,
}

impl ProxiedNode {
    /// Does it.
    pub(crate) fn inflict(&self, nemesis: Nemesis, delay: Duration) -> io::Result<Undo> {
        let mut undo = Undo { operator: None, busy: None, obstacle: None };
        let (server, proxy) = (&self.server, &self.proxy);
        match nemesis {
            Nemesis::HangNode => server.stop(),
            Nemesis::DelayedRestart => server.kill(),
            Nemesis::DurableRestart | Nemesis::EmptyRestart => server.restart(),
            Nemesis::RollingRestart => self.restart_empty()?,
            Nemesis::FlushAll => server.flushall(),
            Nemesis::BlackHole => {
                proxy.black_hole(Direction::Requests);
                proxy.black_hole(Direction::Replies);
            }
            Nemesis::LoseRequests => proxy.black_hole(Direction::Requests),
            Nemesis::LoseReplies => proxy.black_hole(Direction::Replies),
            Nemesis::HoldRequests => proxy.hold(Direction::Requests),
            Nemesis::HoldReplies => proxy.hold(Direction::Replies),
            Nemesis::Refuse => {
                proxy.refuse(true);
                proxy.reset();
            }
            Nemesis::HoldConnects => {
                proxy.hold_connects(true);
                proxy.reset();
            }
            Nemesis::Reset => proxy.reset(),
            Nemesis::CutReply => proxy.cut_next_reply(cut(delay)),
            Nemesis::Latency => {
                self.delay(delay);
            }
            Nemesis::DriftClock => server.clock().drift(drift(delay)),
            Nemesis::FastClock => server.clock().drift(FAST),
            // It is not put back: locks that were set in between would stand for a minute more.
            Nemesis::JumpClock => server.clock().jump(JUMP),
            Nemesis::StepForward => server.clock().jump(delay),
            Nemesis::StepBack => server.clock().jump_back(delay),
            Nemesis::OutOfMemory
            | Nemesis::ReadOnly
            | Nemesis::Busy
            | Nemesis::ForgetScripts
            | Nemesis::Password
            | Nemesis::CannotSave
            | Nemesis::TooManyClients => self.misconfigure(nemesis, &mut undo)?,
            Nemesis::HangClient
            | Nemesis::KillClient
            | Nemesis::Newcomer
            | Nemesis::SlowNetwork
            | Nemesis::WipeAll => {
                unreachable!("these are not done to a node")
            }
        }
        Ok(undo)
    }

    /// Ends the script of `busy`, and waits until it has ended.
    fn free(&self, mut busy: Operator) -> io::Result<()> {
        let mut operator = Operator::of(&self.server)?;
        let begun = Instant::now();
        // A slow server may not have begun with it yet.
        while let Err(error) = operator.ask("SCRIPT KILL") {
            if begun.elapsed() > ANSWER_LIMIT {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Its answer: that it was killed.
        busy.line().map(drop)
    }

    /// Lets everything take that much longer, there and back.
    pub(crate) fn delay(&self, delay: Duration) {
        self.proxy.delay(Direction::Requests, delay / 2);
        self.proxy.delay(Direction::Replies, delay / 2);
    }

    /// Kills the server, and starts it again without its memory, and without its disk if it has one.
    fn restart_empty(&self) -> io::Result<()> {
        let directory = Operator::of(&self.server)?.directory()?;
        self.server.kill();
        for log in ["appendonlydir", "appendonly.aof"] {
            let log = Path::new(&directory).join(log);
            // One of them is there, or none: that hangs on the version, and on whether it is durable.
            let gone = if log.is_dir() { fs::remove_dir_all(&log) } else { fs::remove_file(&log) };
            gone.or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        self.server.restart();
        Ok(())
    }

    /// Lets the server forget all it has been told.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        self.server.try_cmd(&["FLUSHALL"]).map(drop).map_err(io::Error::other)
    }

    fn misconfigure(&self, nemesis: Nemesis, undo: &mut Undo) -> io::Result<()> {
        let mut operator = Operator::of(&self.server)?;
        match nemesis {
            Nemesis::OutOfMemory => operator.ask("CONFIG SET maxmemory 1")?,
            // Nobody listens there, so nothing is ever copied from it.
            Nemesis::ReadOnly => operator.ask("REPLICAOF 127.0.0.1 1")?,
            Nemesis::Busy => {
                operator.ask(&format!("CONFIG SET lua-time-limit {BUSY_AFTER}"))?;
                let mut busy = Operator::of(&self.server)?;
                busy.send("EVAL \"while true do end\" 0")?;
                undo.busy = Some(busy);
            }
            Nemesis::ForgetScripts => operator.ask("SCRIPT FLUSH")?,
            Nemesis::Password => {
                operator.ask(&format!("CONFIG SET requirepass {PASSWORD}"))?;
                operator.ask("CLIENT KILL TYPE normal SKIPME yes")?;
            }
            Nemesis::CannotSave => {
                let directory = operator.directory()?;
                // Nothing can be saved where a directory stands, not even by root.
                let obstacle = format!("{directory}/dump.rdb");
                // A server that is flushed while it is to save leaves a file there.
                let _ = fs::remove_file(&obstacle);
                fs::create_dir(&obstacle)?;
                undo.obstacle = Some(obstacle);
                operator.ask("CONFIG SET save \"3600 1\"")?;
                operator.ask("BGSAVE")?;
            }
            Nemesis::TooManyClients => {
                operator.ask("CONFIG SET maxclients 1")?;
                operator.ask("CLIENT KILL TYPE normal SKIPME yes")?;
            }
            _ => {}
        }
        undo.operator = Some(operator);
        Ok(())
    }

    /// Undoes it.
    pub(crate) fn heal(&self, nemesis: Nemesis, undo: Undo) -> io::Result<()> {
        match nemesis {
            Nemesis::HangNode => self.server.cont(),
            Nemesis::DelayedRestart => self.server.restart(),
            Nemesis::DriftClock | Nemesis::FastClock => self.server.clock().drift(0),
            // TCP repeats what is lost or gives the connection up: none lives on with a hole in it.
            Nemesis::BlackHole | Nemesis::LoseRequests | Nemesis::LoseReplies => {
                self.proxy.reset();
                self.proxy.heal();
            }
            Nemesis::HoldRequests
            | Nemesis::HoldReplies
            | Nemesis::Refuse
            | Nemesis::HoldConnects
            | Nemesis::Latency => {
                self.proxy.heal();
            }
            _ => {}
        }
        let Undo { operator, busy, obstacle } = undo;
        if let Some(mut operator) = operator {
            match nemesis {
                Nemesis::OutOfMemory => operator.ask("CONFIG SET maxmemory 0")?,
                Nemesis::ReadOnly => operator.ask("REPLICAOF NO ONE")?,
                Nemesis::Password => operator.ask("CONFIG SET requirepass \"\"")?,
                Nemesis::CannotSave => operator.ask("CONFIG SET save \"\"")?,
                Nemesis::TooManyClients => operator.ask("CONFIG SET maxclients 10000")?,
                _ => {}
            }
        }
        if let Some(busy) = busy {
            self.free(busy)?;
        }
        obstacle.map_or(Ok(()), fs::remove_dir)
    }
}

/// Half a percent, fast or slow: in parts per million.
fn drift(delay: Duration) -> i32 {
    if delay.subsec_nanos().is_multiple_of(2) { 5_000 } else { -5_000 }
}

/// How many bytes of a reply are let through: none up to a few replies of a pipeline.
fn cut(delay: Duration) -> usize {
    usize::from(delay.subsec_millis().to_le_bytes()[0] % 24)
}

impl Operator {
    fn of(server: &Server) -> io::Result<Self> {
        let stream = TcpStream::connect(server.addr())?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, command: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())
    }

    /// Sends a command that is answered in one line, without an error.
    fn ask(&mut self, command: &str) -> io::Result<()> {
        self.send(command)?;
        let line = self.line()?;
        if line.starts_with('-') || line.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("{command}: {line}")));
        }
        Ok(())
    }

    /// The server's directory.
    fn directory(&mut self) -> io::Result<String> {
        self.send("CONFIG GET dir")?;
        // An array of two strings, each with its length before it.
        let lines = (0..5).map(|_| self.line()).collect::<io::Result<Vec<_>>>()?;
        Ok(lines[4].clone())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
