//! Compares a real server with the model. Both receive the same commands while their clocks and conditions are the
//! same, and both must send the same replies.

use crate::frames;
use crate::generator::{Generator, Words};
use crate::real::{Condition, Real, connect, encode, read_frame};
use quorlock_test::internals::{Config, ConnId, Output, Server, Version};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LOG_LENGTH: usize = 12;
const PASSWORD: &str = "pw";
struct Client {
    conn: ConnId,
    stream: TcpStream,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Quorlock,
    Foreign,
    /// A client of another program that never logs in. The server may require a password.
    Unauthenticated,
}

pub struct Comparison {
    seed: u64,
    pub generator: Generator,
    pub real: Real,
    pub model: Server,
    clients: Vec<Client>,
    has_password: bool,
    is_exact: bool,
    pub is_old: bool,
    now_us: u64,
    pub condition: Condition,
    pub sent: usize,
    pub seen: BTreeMap<String, usize>,
    log: VecDeque<String>,
}

impl Comparison {
    pub fn new(seed: u64) -> Self {
        let has_password = seed.is_multiple_of(2);
        let real = Real::start(has_password.then_some(PASSWORD));
        let start = real.clock().now() + Duration::from_secs(100);
        real.clock().stop_at(start);
        let now = start.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        // The time has microseconds, so that rounding matters.
        let now_us =
            u64::try_from(now.as_micros()).expect("fits in 64 bits") / 1_000_000 * 1_000_000 + 300;
        let password = has_password.then(|| ("default".to_owned(), PASSWORD.to_owned()));
        let mut comparison = Self {
            seed,
            generator: Generator::new(seed),
            model: Server::new(Config::default(), now_us),
            real,
            clients: Vec::new(),
            has_password,
            is_exact: false,
            is_old: false,
            now_us,
            condition: Condition::Normal,
            sent: 0,
            seen: BTreeMap::new(),
            log: VecDeque::new(),
        };
        comparison.set_clock();
        let version = comparison.real.version();
        comparison.is_old = version < Version::redis(7, 0, 0);
        comparison.generator.version = version.clone();
        comparison.is_exact = version.has_exact_errors();
        let started_us = now_us - 1_000_000 * comparison.real.uptime();
        let config = Config {
            run_id: comparison.real.run_id(),
            version,
            first_client_id: comparison.real.next_client_id(),
            password,
            ..Config::default()
        };
        comparison.model = Server::new(config, started_us);
        for role in
            [Role::Quorlock, Role::Quorlock, Role::Foreign, Role::Foreign, Role::Unauthenticated]
        {
            comparison.connect_client(role);
        }
        comparison
    }

    /// Performs one step. In most steps, a random client sends a random pipeline of commands to both servers.
    pub fn step(&mut self) {
        self.change_condition();
        self.change_clock();
        let who = self.generator.rng.below(self.clients.len());
        let Client { conn, role, .. } = self.clients[who];
        match self.generator.rng.below(600) {
            0 if self.condition != Condition::Busy => self.reconnect(who),
            1 => self.send(conn, &[vec!["QUIT".to_owned()], vec!["PING".to_owned()]]),
            2 => self.send_bytes(conn, b"*1\r\n$x\r\n", "an invalid request"),
            3..8 => self.kill(conn),
            turn => {
                let is_quorlock = role == Role::Quorlock;
                let pipeline = match turn % 20 {
                    0 => self.generator.connection_command(&self.login()),
                    1..3 if is_quorlock => self.generator.foreign_command(),
                    1..7 if role == Role::Foreign => self.generator.quorlock(is_quorlock),
                    _ if is_quorlock => self.generator.quorlock(is_quorlock),
                    7..10 => self.generator.connection_command("PING"),
                    _ => self.generator.foreign_command(),
                };
                self.send(conn, &pipeline);
            }
        }
    }

    /// Checks that the real server has not sent more replies than the model, by sending a last `PING` to both.
    pub fn finish(&mut self) {
        let condition = std::mem::replace(&mut self.condition, Condition::Normal);
        self.real.clear(&condition);
        self.apply_to_model();
        for conn in self.clients.iter().map(|client| client.conn).collect::<Vec<_>>() {
            self.send(conn, &[vec!["PING".to_owned()]]);
        }
    }

    fn login(&self) -> String {
        if self.has_password { format!("AUTH {PASSWORD}") } else { "AUTH default x".to_owned() }
    }

    fn connect_client(&mut self, role: Role) {
        let stream = connect(self.real.addr());
        let conn = self.model.connect();
        self.clients.push(Client { conn, stream, role });
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Words>();
        let auth = format!(" AUTH default {PASSWORD}");
        let auth = if self.has_password { &auth } else { "" };
        let mut pipeline = match role {
            Role::Quorlock => vec![words(&format!("HELLO 3{auth}"))],
            Role::Unauthenticated => vec![words("HELLO 3")],
            _ if self.has_password => vec![words(&self.login())],
            Role::Foreign => vec![words("PING")],
        };
        pipeline.push(words("CLIENT SETNAME quorlock:nodes=1-00000000"));
        pipeline.push(words("CLIENT SETINFO LIB-NAME redis-rs"));
        self.send(conn, &pipeline);
        if role == Role::Quorlock && self.has(conn) {
            let set_up = self.generator.set_up();
            self.send(conn, &set_up);
        }
    }

    fn has(&self, conn: ConnId) -> bool {
        self.clients.iter().any(|client| client.conn == conn)
    }

    fn reconnect(&mut self, who: usize) {
        let Client { conn, role, stream } = self.clients.remove(who);
        let id = self.model.client_id(conn).expect("the connection is open");
        drop(stream);
        self.model.disconnect(conn);
        self.real.wait_for_end(id);
        self.connect_client(role);
    }

    /// Sends a random command and a `CLIENT KILL` of a random connection in one pipeline. The command may cause a
    /// notification to the killed connection.
    fn kill(&mut self, by: ConnId) {
        let other = self.generator.rng.below(self.clients.len());
        let id = self.model.client_id(self.clients[other].conn).expect("the connection is open");
        let id = if self.generator.rng.once_in(4) { 999_999 } else { id };
        let mut pipeline = self.generator.foreign_command();
        if !self.is_exact && pipeline[0][0].starts_with("FLUSH") {
            // Newer servers send the notification before the following command.
            return;
        }
        pipeline.push(vec!["CLIENT".into(), "KILL".into(), "ID".into(), id.to_string()]);
        self.send(by, &pipeline);
    }

    fn send(&mut self, conn: ConnId, pipeline: &[Words]) {
        // Only `clear` may end the script that keeps the server busy.
        let kills = pipeline.iter().any(|words| words[..] == ["SCRIPT", "KILL"]);
        if kills && self.condition == Condition::Busy {
            return;
        }
        // Scripts on old replicas still see expired keys.
        let is_replica = matches!(self.condition, Condition::ReadOnly | Condition::MasterDown);
        let runs = pipeline.iter().any(|words| words[0].starts_with("EVAL"));
        if runs && is_replica && self.is_old {
            return;
        }
        // Old servers push invalidations for a connection's own writes either before or after the reply.
        let tracks_own_writes = pipeline.iter().any(|words| {
            words.iter().any(|word| word == "ON") && !words.iter().any(|word| word == "NOLOOP")
        });
        if tracks_own_writes && self.is_old {
            return;
        }
        let mut bytes = Vec::new();
        for words in pipeline {
            bytes.extend(encode(words));
        }
        let lines = pipeline.iter().map(line).collect::<Vec<_>>();
        self.sent += pipeline.len();
        self.send_bytes(conn, &bytes, &lines.join("\n        "));
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8], shown: &str) {
        let at = format!("{}.{:06}", self.now_us / 1_000_000, self.now_us % 1_000_000);
        self.note(format!("at {at}, {:?}, {conn:?} sends\n        {shown}", self.condition));
        let client = self.clients.iter_mut().find(|client| client.conn == conn);
        client
            .expect("the client is connected")
            .stream
            .write_all(bytes)
            .expect("the connection is open");
        // The replies must not depend on where a request is cut. A pipeline with a kill is sent whole, because a server
        // discards unsent replies to the killed connection.
        let cut = self.generator.rng.below(bytes.len() + 1);
        let is_whole = shown.contains("CLIENT KILL") || !self.generator.rng.once_in(4);
        let cut = if is_whole { bytes.len() } else { cut };
        let mut outputs = self.model.receive(conn, &bytes[..cut], self.now_us);
        outputs.extend(self.model.receive(conn, &bytes[cut..], self.now_us));
        for output in outputs {
            match output {
                Output::Bytes(to, bytes) => self.expect(to, &bytes),
                Output::Close(to) => self.expect_end(to),
            }
        }
    }

    fn note(&mut self, what: String) {
        if self.log.len() == LOG_LENGTH {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    fn expect(&mut self, to: ConnId, mut bytes: &[u8]) {
        // A killed client may not receive all replies; see `kill`.
        let Some(who) = self.clients.iter().position(|client| client.conn == to) else { return };
        while !bytes.is_empty() {
            let (expected, rest) = bytes.split_at(frames::length(bytes));
            let got = read_frame(&mut self.clients[who].stream).unwrap_or_else(|part| part);
            if !frames::is_same(expected, &got, self.is_exact) {
                self.fail(to, &frames::shown(expected), &frames::shown(&got));
            }
            *self.seen.entry(frames::kind(expected)).or_default() += 1;
            bytes = rest;
        }
    }

    fn expect_end(&mut self, of: ConnId) {
        let who = self
            .clients
            .iter()
            .position(|client| client.conn == of)
            .expect("the client was connected");
        let Client { mut stream, role, .. } = self.clients.remove(who);
        let mut got = Vec::new();
        // A connection that is closed with unread bytes is reset.
        if let Err(error) = stream.read_to_end(&mut got)
            && error.kind() != std::io::ErrorKind::ConnectionReset
        {
            self.fail(of, "end of stream", &error.to_string());
        }
        if !got.is_empty() {
            self.fail(of, "end of stream", &frames::shown(&got));
        }
        self.connect_client(role);
    }

    fn fail(&self, to: ConnId, expected: &str, got: &str) -> ! {
        let log: Vec<_> = self.log.iter().map(|entry| format!("    {entry}\n")).collect();
        panic!(
            "seed {}, command {}, to {to:?}\nthe last steps:\n{}the model: {expected}\nthe server: {got}",
            self.seed,
            self.sent,
            log.concat()
        );
    }

    fn change_clock(&mut self) {
        // Valkey may read its clock some microseconds late, so its clock steps only by whole milliseconds.
        let step = self.generator.step_us();
        let step = if self.is_exact { step } else { step / 1_000 * 1_000 };
        if step != 0 {
            self.now_us = self.now_us.saturating_add_signed(step);
            self.set_clock();
        }
    }

    fn set_clock(&self) {
        let shown = std::time::UNIX_EPOCH + Duration::from_micros(self.now_us);
        self.real.clock().stop_at(shown);
    }
}

fn line(words: &Words) -> String {
    let word = |word: &String| match word.as_str() {
        "" => "''".to_owned(),
        long if long.len() > 100 => format!("<{} bytes>", long.len()),
        word => word.to_owned(),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}
