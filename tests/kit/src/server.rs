//! A `redis-server` process with its own port and directory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::builder::Place;
use crate::port::Port;
use crate::process::{Process, Program};
use crate::scratch::Scratch;
use crate::{Clock, ServerBuilder};

/// The maximum time from a server's start to its first reply, including the time to load a large
/// append-only file.
const START_LIMIT: Duration = Duration::from_secs(20);
const START_PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of ports to try. A port was free when it was picked, but may be in use when
/// the server starts.
const PORTS_TRIED: usize = 16;
const LOG_TAIL_BYTES: usize = 4096;

/// The persistent files of a server. Before Redis 7.0, the append-only file is a single file.
const SAVED: [&str; 3] = ["appendonlydir", "appendonly.aof", "dump.rdb"];

/// A `redis-server` process with its own port and directory.
///
/// - Getters: [`url`](Self::url) and its variants, [`port`](Self::port), [`addr`](Self::addr),
///   [`pid`](Self::pid), [`is_running`](Self::is_running), [`is_stopped`](Self::is_stopped),
///   [`log`](Self::log), [`directory`](Self::directory).
/// - Faults: [`stop`](Self::stop) and [`cont`](Self::cont), [`kill`](Self::kill) and
///   [`restart`](Self::restart), [`lose_disk`](Self::lose_disk), and the faults of the server's
///   [`clock`](Self::clock). These methods take `&self` and can be called from any thread.
/// - Inspection: [`cmd`](Self::cmd), [`get`](Self::get), [`keys`](Self::keys) and others. Each call
///   opens its own connection, without any [`Proxy`](crate::Proxy), and panics without a reply
///   within 5 s.
///
/// Dropping the server kills its process, even if the process is stopped, and removes its
/// directory.
#[derive(Debug)]
pub struct Server {
    // Fields are dropped in this order: the process ends before its directory is removed.
    process: Mutex<Option<Process>>,
    setup: ServerBuilder,
    port: Port,
    tls_port: Option<Port>,
    clock: Option<Clock>,
    scratch: Scratch,
}

enum Launch {
    Ready(Process),
    PortTaken,
}

impl Server {
    /// Starts a server with the defaults of [`ServerBuilder`]. Returns when the server replies.
    ///
    /// # Panics
    ///
    /// Panics if the server ends or does not reply within 20 s. The message contains the end of the
    /// server's log. Also panics if no `redis-server` is on the `PATH` and `REDIS_SERVER` is not
    /// set.
    #[track_caller]
    #[must_use = "a server that is dropped ends"]
    pub fn start() -> Self {
        Self::with(ServerBuilder::default())
    }

    /// Creates settings for a server: `Server::builder().durable().start()`.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    #[track_caller]
    pub(crate) fn with(setup: ServerBuilder) -> Self {
        let scratch = Scratch::new();
        let mut server = Self {
            process: Mutex::new(None),
            port: Port::pick(),
            tls_port: setup.has_tls().then(Port::pick),
            clock: setup.has_clock().then(|| Clock::new(scratch.path())),
            setup,
            scratch,
        };
        for _ in 0..PORTS_TRIED {
            if let Launch::Ready(process) = server.launch() {
                *server.slot() = Some(process);
                return server;
            }
            server.port = Port::pick();
            server.tls_port = server.setup.has_tls().then(Port::pick);
        }
        panic!("{PORTS_TRIED} ports in a row were taken before redis-server could listen on them");
    }

    /// Returns the URL `redis://127.0.0.1:PORT`, without a password even if one is required.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Returns the URL `redis://NAME:PASSWORD@127.0.0.1:PORT`, percent-encoded, for the user that
    /// [`ServerBuilder::user`] added last. The URL for [`ServerBuilder::password`] has no name.
    ///
    /// # Panics
    ///
    /// Panics if neither a user nor a password was set.
    #[track_caller]
    #[must_use]
    pub fn url_with_auth(&self) -> String {
        let credentials = self.setup.credentials();
        let (name, password) =
            credentials.expect("neither ServerBuilder::user nor ::password was set");
        let (name, password) =
            (percent_encoded(name.as_bytes()), percent_encoded(password.as_bytes()));
        format!("redis://{name}:{password}@{}", self.addr())
    }

    /// Returns the URL of the Unix socket: `redis+unix:///PATH`.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`ServerBuilder::unix_socket`].
    #[track_caller]
    #[must_use]
    pub fn url_unix(&self) -> String {
        assert!(self.setup.has_unix_socket(), "ServerBuilder::unix_socket was not set");
        let socket = percent_encoded(self.socket().as_os_str().as_encoded_bytes());
        format!("redis+unix://{}", socket.replace("%2F", "/"))
    }

    /// Returns the URL for TLS connections: `rediss://127.0.0.1:TLS-PORT`.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`ServerBuilder::tls`].
    #[track_caller]
    #[must_use]
    pub fn url_tls(&self) -> String {
        let port = self.tls_port.as_ref().expect("ServerBuilder::tls was not set");
        format!("rediss://127.0.0.1:{}", port.number())
    }

    /// Returns the TCP port, which stays the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the address 127.0.0.1 with the server's port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Returns the process ID, which changes with a restart.
    ///
    /// # Panics
    ///
    /// Panics if the server has been killed.
    #[track_caller]
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.slot().as_ref().expect("the server has been killed").id()
    }

    /// Returns true if the process exists, even if it is stopped. Returns false after
    /// [`kill`](Self::kill), or if the server process has exited.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.slot().as_ref().is_some_and(|process| !process.has_exited())
    }

    /// Returns true if the process exists and is stopped by [`stop`](Self::stop).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.slot().as_ref().is_some_and(Process::is_stopped)
    }

    /// Stops the process (SIGSTOP). Returns when all threads of the process have stopped. The
    /// kernel continues to accept connections and data. Has no effect if the process is already
    /// stopped.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Process::stop);
    }

    /// Continues a stopped process (SIGCONT). Has no effect if the process is not stopped.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    #[track_caller]
    pub fn cont(&self) {
        self.signal(Process::cont);
    }

    /// Kills the process (SIGKILL), even if the process is stopped. Returns when the process has
    /// ended. Connections to its port are then refused. Has no effect if the server has already
    /// been killed.
    pub fn kill(&self) {
        drop(self.slot().take());
    }

    /// Kills the server and removes its persistent files. After [`restart`](Self::restart), the
    /// server is empty, even if it is [`durable`](ServerBuilder::durable). The server's log and
    /// clock remain.
    pub fn lose_disk(&self) {
        self.kill();
        for saved in SAVED {
            let path = self.scratch.path().join(saved);
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    panic!("cannot remove {}: {error}", path.display())
                }
                _ => {}
            }
        }
    }

    /// Kills the server if it is running, and starts it again with the same port, directory and
    /// arguments. Returns when the server replies. The server is empty unless it is
    /// [`durable`](ServerBuilder::durable).
    ///
    /// # Panics
    ///
    /// Panics if the server ends, or does not reply or get its port back within 20 s.
    #[track_caller]
    pub fn restart(&self) {
        let mut slot = self.slot();
        drop(slot.take());
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if let Launch::Ready(process) = self.launch() {
                *slot = Some(process);
                return;
            }
            thread::sleep(START_PAUSE);
        }
        panic!("port {} was taken while the server was down", self.port());
    }

    /// Returns the wall clock of the server.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`ServerBuilder::clock`].
    #[track_caller]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("ServerBuilder::clock was not set")
    }

    /// Returns the server's output since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.log_from(0)
    }

    /// Returns the server's directory, with its log, its clock and its persistent files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn setup(&self) -> &ServerBuilder {
        &self.setup
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.path().join("redis.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path().join("redis.log")
    }

    fn log_from(&self, byte: u64) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let from = usize::try_from(byte).unwrap_or(usize::MAX);
        String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic of the kit leaves the slot valid, with or without a process.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn signal(&self, send: impl FnOnce(&Process)) {
        let slot = self.slot();
        match slot.as_ref().filter(|process| !process.has_exited()) {
            Some(process) => send(process),
            None => panic!("the server on port {} is not running", self.port()),
        }
    }

    #[track_caller]
    fn launch(&self) -> Launch {
        let path = self.log_path();
        let log =
            File::options().create(true).append(true).open(&path).expect("cannot open a log file");
        let old = log.metadata().map_or(0, |log| log.len());
        let log_since = || self.log_from(old);
        let socket = self.socket();
        let process = self.spawn(&socket, log);
        let start = Instant::now();
        loop {
            if answers(&socket) {
                if self.clock.is_some() {
                    Clock::assert_followed_by(process.id(), self.scratch.path());
                }
                return Launch::Ready(process);
            }
            if process.has_exited() {
                let log = log_since();
                if log.contains("Address already in use") {
                    return Launch::PortTaken;
                }
                let program = self.setup.program_name();
                panic!("{} ended without a reply:\n{}", program.display(), tail(&log));
            }
            let waited = start.elapsed();
            assert!(
                waited < START_LIMIT,
                "no reply from redis-server within {waited:?}:\n{}",
                tail(&log_since())
            );
            thread::sleep(START_PAUSE);
        }
    }

    fn spawn(&self, socket: &Path, log: File) -> Process {
        let args = self.setup.command_line(&Place {
            port: self.port(),
            tls_port: self.tls_port.as_ref().map(Port::number),
            socket,
            dir: self.scratch.path(),
        });
        let mut env = self.setup.environment().to_vec();
        if self.clock.is_some() {
            env.extend(Clock::environment());
        }
        let program = Program {
            name: &self.setup.program_name(),
            args: &args,
            env: &env,
            dir: self.scratch.path(),
        };
        Process::spawn(&program, log)
    }
}

/// Returns true if the server on `socket` replies to `PING`. Only this server uses the path
/// `socket`. Any error except `LOADING` counts as a reply, because the kit may lack a password or
/// permissions.
fn answers(socket: &Path) -> bool {
    ping(socket).is_ok_and(|reply| !reply.is_empty() && !reply.starts_with(b"-LOADING"))
}

fn ping(socket: &Path) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = vec![0; 64];
    let len = stream.read(&mut reply)?;
    reply.truncate(len);
    Ok(reply)
}

fn tail(log: &str) -> &str {
    let from = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES));
    &log[from..]
}

fn percent_encoded(bytes: &[u8]) -> String {
    let mut encoded = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
