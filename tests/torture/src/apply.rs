//! Applies and removes the faults of a node.

use crate::nemesis::Nemesis;
use kit::{Direction, Proxy, Server};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit for replies to the operator. It is long enough for a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The script duration after which a server replies `BUSY`, in milliseconds.
const BUSY_AFTER: &str = "20";
const PASSWORD: &str = "unknown";
const JUMP: Duration = Duration::from_mins(1);
/// The amount by which a fast clock gains, in parts per million.
const FAST: i32 = 100_000;

pub(crate) struct ProxiedNode {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
}

/// A direct connection to the server, which applies and undoes faults. It stays open during the
/// fault, because some faults refuse new connections.
pub(crate) struct Operator(BufReader<TcpStream>);

pub(crate) struct Undo {
    operator: Option<Operator>,
    /// The connection that runs an endless script. It must stay open.
    busy: Option<Operator>,
    /// The path of a directory that prevents the server from saving its snapshot.
    obstacle: Option<String>,
}

impl ProxiedNode {
    pub(crate) fn apply(&self, nemesis: Nemesis, magnitude: Duration) -> io::Result<Undo> {
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
            Nemesis::CutReply => proxy.cut_next_reply(cut(magnitude)),
            Nemesis::Latency => {
                self.delay(magnitude);
            }
            Nemesis::DriftClock => server.clock().drift(drift(magnitude)),
            Nemesis::FastClock => server.clock().drift(FAST),
            // The jump is not undone, because keys that were set after the jump would then exist
            // for another minute.
            Nemesis::JumpClock => server.clock().jump(JUMP),
            Nemesis::StepForward => server.clock().jump(magnitude),
            Nemesis::StepBack => server.clock().jump_back(magnitude),
            Nemesis::OutOfMemory
            | Nemesis::ReadOnly
            | Nemesis::Busy
            | Nemesis::ForgetScripts
            | Nemesis::Password
            | Nemesis::CannotSave
            | Nemesis::TooManyClients => self.misconfigure(nemesis, &mut undo)?,
            Nemesis::HangClient
            | Nemesis::KillClient
            | Nemesis::NewClient
            | Nemesis::SlowNetwork
            | Nemesis::WipeAll => {
                unreachable!("not a fault of one node")
            }
        }
        Ok(undo)
    }

    /// Kills the script that the connection `busy` runs, and waits for its error reply.
    fn end_script(&self, mut busy: Operator) -> io::Result<()> {
        let mut operator = Operator::of(&self.server)?;
        let begun = Instant::now();
        // A slow server may not have started the script yet.
        while let Err(error) = operator.execute("SCRIPT KILL") {
            if begun.elapsed() > ANSWER_LIMIT {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The server sends this error reply when the script is killed.
        busy.line().map(drop)
    }

    /// Delays each round trip to this node by `delay`. Requests and replies are each delayed by half of it.
    pub(crate) fn delay(&self, delay: Duration) {
        self.proxy.delay(Direction::Requests, delay / 2);
        self.proxy.delay(Direction::Replies, delay / 2);
    }

    fn restart_empty(&self) -> io::Result<()> {
        let directory = Operator::of(&self.server)?.directory()?;
        self.server.kill();
        for log in ["appendonlydir", "appendonly.aof"] {
            let log = Path::new(&directory).join(log);
            // The server's version and persistence determine which of these paths exists, if any.
            let removed =
                if log.is_dir() { fs::remove_dir_all(&log) } else { fs::remove_file(&log) };
            removed.or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        self.server.restart();
        Ok(())
    }

    pub(crate) fn wipe(&self) -> io::Result<()> {
        self.server.try_cmd(&["FLUSHALL"]).map(drop).map_err(io::Error::other)
    }

    fn misconfigure(&self, nemesis: Nemesis, undo: &mut Undo) -> io::Result<()> {
        let mut operator = Operator::of(&self.server)?;
        match nemesis {
            Nemesis::OutOfMemory => operator.execute("CONFIG SET maxmemory 1")?,
            // No server listens on this port, so no data is ever copied.
            Nemesis::ReadOnly => operator.execute("REPLICAOF 127.0.0.1 1")?,
            Nemesis::Busy => {
                operator.execute(&format!("CONFIG SET lua-time-limit {BUSY_AFTER}"))?;
                let mut busy = Operator::of(&self.server)?;
                busy.send("EVAL \"while true do end\" 0")?;
                undo.busy = Some(busy);
            }
            Nemesis::ForgetScripts => operator.execute("SCRIPT FLUSH")?,
            Nemesis::Password => {
                operator.execute(&format!("CONFIG SET requirepass {PASSWORD}"))?;
                operator.execute("CLIENT KILL TYPE normal SKIPME yes")?;
            }
            Nemesis::CannotSave => {
                let directory = operator.directory()?;
                // A directory at the path of the snapshot prevents saving, even for root.
                let obstacle = format!("{directory}/dump.rdb");
                // A server with a save schedule writes this file when it is flushed.
                let _ = fs::remove_file(&obstacle);
                fs::create_dir(&obstacle)?;
                undo.obstacle = Some(obstacle);
                operator.execute("CONFIG SET save \"3600 1\"")?;
                operator.execute("BGSAVE")?;
            }
            Nemesis::TooManyClients => {
                operator.execute("CONFIG SET maxclients 1")?;
                operator.execute("CLIENT KILL TYPE normal SKIPME yes")?;
            }
            _ => {}
        }
        undo.operator = Some(operator);
        Ok(())
    }

    pub(crate) fn heal(&self, nemesis: Nemesis, undo: Undo) -> io::Result<()> {
        match nemesis {
            Nemesis::HangNode => self.server.cont(),
            Nemesis::DelayedRestart => self.server.restart(),
            Nemesis::DriftClock | Nemesis::FastClock => self.server.clock().drift(0),
            // TCP retransmits lost data or ends the connection. Connections that lost data are
            // therefore reset.
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
                Nemesis::OutOfMemory => operator.execute("CONFIG SET maxmemory 0")?,
                Nemesis::ReadOnly => operator.execute("REPLICAOF NO ONE")?,
                Nemesis::Password => operator.execute("CONFIG SET requirepass \"\"")?,
                Nemesis::CannotSave => operator.execute("CONFIG SET save \"\"")?,
                Nemesis::TooManyClients => operator.execute("CONFIG SET maxclients 10000")?,
                _ => {}
            }
        }
        if let Some(busy) = busy {
            self.end_script(busy)?;
        }
        obstacle.map_or(Ok(()), fs::remove_dir)
    }
}

/// Returns a clock drift of 0.5 % in a direction that depends on `magnitude`, in parts per million.
fn drift(magnitude: Duration) -> i32 {
    if magnitude.subsec_nanos().is_multiple_of(2) { 5_000 } else { -5_000 }
}

/// Returns how many bytes of a reply to let pass. The range is from none to a few replies of a
/// pipeline.
fn cut(magnitude: Duration) -> usize {
    usize::from(magnitude.subsec_millis().to_le_bytes()[0] % 24)
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

    fn execute(&mut self, command: &str) -> io::Result<()> {
        self.send(command)?;
        let line = self.line()?;
        if line.starts_with('-') || line.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("{command}: {line}")));
        }
        Ok(())
    }

    fn directory(&mut self) -> io::Result<String> {
        self.send("CONFIG GET dir")?;
        // The reply is an array of two strings, each preceded by its length.
        let lines = (0..5).map(|_| self.line()).collect::<io::Result<Vec<_>>>()?;
        Ok(lines[4].clone())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
