//! A stub of a node for unit tests. It replies to the commands that set up a connection, to `SET NX`, and to the
//! scripts that extend or release one key.

use super::{Address, Stream, Transport};
use crate::sync::lock;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// The capacity of a stream in each direction, in bytes. It is smaller than most commands, so that commands arrive in
/// pieces.
const CAPACITY: usize = 64;

const INFO: &str = "redis_version:7.0.15\r\nrun_id:0123\r\nuptime_in_seconds:86400\r\nrole:master";

/// A transport that connects every address to the same stub node. Keys do not expire.
pub(crate) struct StubNode {
    state: Arc<Mutex<State>>,
    addresses: Mutex<Vec<String>>,
}

struct State {
    started: Instant,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    connections: usize,
}

impl StubNode {
    pub(crate) fn new() -> Arc<Self> {
        let state = State { started: Instant::now(), keys: BTreeMap::new(), connections: 0 };
        Arc::new(Self { state: Arc::new(Mutex::new(state)), addresses: Mutex::default() })
    }

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        lock(&self.state).keys.keys().cloned().collect()
    }

    /// Returns the addresses to which clients have connected, one for each connection, oldest first.
    pub(crate) fn addresses(&self) -> Vec<String> {
        lock(&self.addresses).clone()
    }

    /// Waits until the client has closed all connections. Panics after 20 s.
    pub(crate) async fn until_closed(&self) {
        let closed = async {
            while lock(&self.state).connections > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), closed).await.expect("no open connection");
    }
}

impl Transport for StubNode {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            lock(&self.addresses).push(to.to_string());
            let (client, node) = duplex(CAPACITY);
            lock(&self.state).connections += 1;
            tokio::spawn(serve(node, self.state.clone()));
            Ok(Box::new(client) as Box<dyn Stream>)
        })
    }
}

async fn serve(mut stream: DuplexStream, state: Arc<Mutex<State>>) {
    let mut input = Vec::new();
    let mut bytes = [0; CAPACITY];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        input.extend_from_slice(&bytes[..count]);
        while let Some((command, length)) = command(&input) {
            input.drain(..length);
            let reply = lock(&state).reply(&command);
            // The write fails if the client has closed the stream.
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    }
    lock(&state).connections -= 1;
}

fn command(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut rest) = number(input)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, word) = number(rest)?;
        words.push(word.get(..length)?.to_vec());
        rest = word.get(length + 2..)?;
    }
    Some((words, input.len() - rest.len()))
}

/// Parses a line such as `$3`. Returns the number in the line and the bytes after the line.
fn number(input: &[u8]) -> Option<(usize, &[u8])> {
    let end = input.windows(2).position(|bytes| bytes == b"\r\n")?;
    let digits = std::str::from_utf8(&input[1..end]).expect("a line of ASCII");
    Some((digits.parse().expect("a length"), &input[end + 2..]))
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

impl State {
    fn reply(&mut self, command: &[Vec<u8>]) -> String {
        let words: Vec<_> = command.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"HELLO", ..] => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            [b"CLIENT", b"ID"] => ":7\r\n".to_owned(),
            [b"CLIENT" | b"SCRIPT", ..] => "+OK\r\n".to_owned(),
            [b"INFO", ..] => bulk(INFO),
            [b"CONFIG", ..] => "%0\r\n".to_owned(),
            [b"TIME"] => {
                let time = self.started.elapsed();
                let [seconds, micros] = [time.as_secs(), u64::from(time.subsec_micros())];
                format!("*2\r\n{}{}", bulk(&seconds.to_string()), bulk(&micros.to_string()))
            }
            [b"SET", key, value, b"NX", b"PX", _] => {
                if self.keys.contains_key(key) {
                    return "_\r\n".to_owned();
                }
                self.keys.insert(key.to_vec(), value.to_vec());
                "+OK\r\n".to_owned()
            }
            [b"PTTL", key] => {
                if self.keys.contains_key(key) { ":-1" } else { ":-2" }.to_owned() + "\r\n"
            }
            [b"GETRANGE", ..] => bulk(""),
            // The extend script, whose last argument is the TTL.
            [b"EVALSHA", _, b"1", key, value, _] => format!(":{}\r\n", self.holds(key, value)),
            // The release script.
            [b"EVALSHA", _, b"1", key, value] => {
                let holds = self.holds(key, value);
                if holds == 1 {
                    self.keys.remove(key);
                }
                format!(":{holds}\r\n")
            }
            _ => "-ERR unknown command\r\n".to_owned(),
        }
    }

    /// Returns the reply of a script that checks the holder: 1 if `key` holds `value`, 0 if the key is missing, and -1
    /// if it holds another value.
    fn holds(&self, key: &[u8], value: &[u8]) -> i8 {
        match self.keys.get(key) {
            Some(held) if held == value => 1,
            Some(_) => -1,
            None => 0,
        }
    }
}
