//! The real server and the connections of its administrator.

use crate::frames;
use quorlock_test::internals::Version;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const ADMIN: (&str, &str) = ("admin", "secret");

/// True if the server forbids `DEBUG` by default, as Redis 7.0 and later do. A configuration option permits `DEBUG`,
/// but older servers do not know this option.
static DEBUG_IS_FORBIDDEN: LazyLock<bool> = LazyLock::new(|| {
    let server = kit::Server::start();
    server.try_cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]).is_err()
});

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Normal,
    Busy,
    ReadOnly,
    MasterDown,
    OutOfMemory,
    Misconf,
    Forbidden(Vec<&'static str>),
}

pub struct Real {
    server: kit::Server,
    admin: TcpStream,
    /// The administrator's second connection, for use while `admin` runs a script.
    second: TcpStream,
}

pub fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the server listens");
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads one reply. If the stream ends before the reply is complete, returns the bytes received so far as an error.
pub fn read_frame(stream: &mut TcpStream) -> Result<Vec<u8>, Vec<u8>> {
    let mut frame = Vec::new();
    read_part(stream, &mut frame).map(|()| frame.clone()).map_err(|()| frame)
}

fn read_part(stream: &mut TcpStream, frame: &mut Vec<u8>) -> Result<(), ()> {
    let begin = frame.len();
    while !frame[begin..].ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(|_| ())?;
        frame.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&frame[begin..]).into_owned();
    let count = line[1..].trim_end().parse::<usize>().unwrap_or_default();
    match line.as_bytes()[0] {
        b'$' | b'=' if !line.starts_with("$-1") => {
            let at = frame.len();
            frame.resize(at + count + 2, b'?');
            stream.read_exact(&mut frame[at..]).map_err(|_| ())
        }
        b'*' | b'>' => (0..count).try_for_each(|_| read_part(stream, frame)),
        b'%' => (0..2 * count).try_for_each(|_| read_part(stream, frame)),
        _ => Ok(()),
    }
}

fn ask(stream: &mut TcpStream, words: &[&str]) -> String {
    stream.write_all(&encode(words)).expect("the connection is open");
    let reply = read_frame(stream).expect("an answer");
    String::from_utf8_lossy(&reply).into_owned()
}

impl Real {
    pub fn start(password: Option<&str>) -> Self {
        let mut builder = kit::Server::builder().clock().user(ADMIN.0, ADMIN.1);
        if let Some(password) = password {
            builder = builder.password(password);
        }
        if *DEBUG_IS_FORBIDDEN {
            builder = builder.arg("--enable-debug-command").arg("yes");
        }
        let server = builder.start();
        let [admin, second] = [(); 2].map(|()| {
            let mut stream = connect(server.addr());
            assert_eq!(ask(&mut stream, &["AUTH", ADMIN.0, ADMIN.1]), "+OK\r\n");
            stream
        });
        let mut real = Self { server, admin, second };
        real.expect_ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        real.expect_ok(&["CONFIG", "SET", "lua-time-limit", "1"]);
        real.break_snapshots();
        real
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    pub fn clock(&self) -> &kit::Clock {
        self.server.clock()
    }

    /// Returns true if the server reports exactly the time of its test clock. Valkey 9 does not, because it caches its
    /// time.
    pub fn follows_its_clock(&mut self) -> bool {
        let start = self.clock().now();
        let seconds = start.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        (0..100).all(|moved| {
            let shown = seconds + moved;
            self.clock().stop_at(UNIX_EPOCH + Duration::from_secs(shown));
            self.ask(&["TIME"]) == format!("*2\r\n$10\r\n{shown}\r\n$1\r\n0\r\n")
        })
    }

    pub fn ask(&mut self, words: &[&str]) -> String {
        ask(&mut self.admin, words)
    }

    fn expect_ok(&mut self, words: &[&str]) {
        assert_eq!(self.ask(words), "+OK\r\n", "{words:?}");
    }

    fn wait_until(&mut self, words: &[&str], is_so: impl Fn(&str) -> bool) {
        kit::eventually(REPLY_TIMEOUT, &words.join(" "), || is_so(&ask(&mut self.second, words)));
    }

    /// Makes the server's snapshots fail, by creating a directory at the path of the snapshot file.
    fn break_snapshots(&mut self) {
        let reply = self.ask(&["CONFIG", "GET", "dir"]);
        let dir = reply.lines().nth(4).expect("the directory is the second bulk string").to_owned();
        fs::create_dir(Path::new(&dir).join("dump.rdb")).expect("a directory");
        assert!(self.ask(&["BGSAVE"]).starts_with('+'));
        self.wait_until(&["INFO", "persistence"], |reply| reply.contains("bgsave_status:err"));
    }

    pub fn next_client_id(&mut self) -> u64 {
        let mut stream = connect(self.addr());
        ask(&mut stream, &["AUTH", ADMIN.0, ADMIN.1]);
        let id = ask(&mut stream, &["CLIENT", "ID"]);
        1 + id[1..].trim_end().parse::<u64>().expect("a number")
    }

    pub fn wait_for_end(&mut self, client_id: u64) {
        let id = client_id.to_string();
        self.wait_until(&["CLIENT", "LIST", "ID", &id], |reply| !reply.contains("addr="));
    }

    pub fn run_id(&mut self) -> String {
        let info = self.ask(&["INFO", "server"]);
        let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.expect("a run id").to_owned()
    }

    pub fn version(&mut self) -> Version {
        let info = self.ask(&["INFO", "server"]);
        let version_of = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            let parts: Vec<u32> = line.split('.').map_while(|part| part.parse().ok()).collect();
            <[u32; 3]>::try_from(parts).ok()
        };
        match (version_of("valkey_version:"), version_of("redis_version:")) {
            (Some([major, minor, patch]), _) => Version::valkey(major, minor, patch),
            (None, Some([major, minor, patch])) => Version::redis(major, minor, patch),
            (None, None) => panic!("no version in INFO"),
        }
    }

    pub fn uptime(&mut self) -> u64 {
        let info = self.ask(&["INFO", "server"]);
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        line.expect("an uptime").parse().expect("a number")
    }

    /// Puts the server into `condition`. The server must be operating normally.
    pub fn induce(&mut self, condition: &Condition) {
        match condition {
            Condition::Normal => {}
            Condition::Busy => {
                let endless = encode(&["EVAL", "while true do end", "0"]);
                self.admin.write_all(&endless).expect("the connection is open");
                self.wait_until(&["GET", "none"], |reply| reply.starts_with("-BUSY"));
            }
            Condition::MasterDown => {
                self.expect_ok(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
                self.expect_ok(&["REPLICAOF", "127.0.0.1", "1"]);
            }
            Condition::ReadOnly => self.expect_ok(&["REPLICAOF", "127.0.0.1", "1"]),
            Condition::OutOfMemory => self.expect_ok(&["CONFIG", "SET", "maxmemory", "1"]),
            Condition::Misconf => self.expect_ok(&["CONFIG", "SET", "save", crate::SAVE]),
            Condition::Forbidden(names) => {
                for name in names {
                    self.expect_ok(&["ACL", "SETUSER", "default", &format!("-{name}")]);
                }
            }
        }
    }

    pub fn clear(&mut self, condition: &Condition) {
        match condition {
            Condition::Normal => {}
            Condition::Busy => {
                assert_eq!(ask(&mut self.second, &["SCRIPT", "KILL"]), "+OK\r\n");
                let ended = read_frame(&mut self.admin).expect("an answer");
                assert!(ended.starts_with(b"-"), "{}", frames::shown(&ended));
            }
            Condition::MasterDown | Condition::ReadOnly => {
                self.expect_ok(&["REPLICAOF", "NO", "ONE"]);
                self.expect_ok(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
            }
            Condition::OutOfMemory => self.expect_ok(&["CONFIG", "SET", "maxmemory", "0"]),
            Condition::Misconf => self.expect_ok(&["CONFIG", "SET", "save", ""]),
            Condition::Forbidden(_) => self.expect_ok(&["ACL", "SETUSER", "default", "+@all"]),
        }
    }
}
