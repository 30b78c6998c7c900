//! The same to both: what is said, what the clocks show, what is wrong. And the same of both.

use crate::author::{Author, Words};
use crate::frames;
use crate::real::{Real, Weather, connect, packed, read_frame};
use quorlock_test::internals::{Config, ConnId, Output, Server, Version};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// So many of the last turns are shown when something differs.
const SHOWN: usize = 12;
const PASSWORD: &str = "pw";
/// A client, and both ends of it.
struct Client {
    conn: ConnId,
    stream: TcpStream,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Quorlock,
    Stranger,
    /// It does not log in, where that is needed.
    Outsider,
}

pub struct Duel {
    seed: u64,
    pub author: Author,
    pub real: Real,
    pub model: Server,
    clients: Vec<Client>,
    has_password: bool,
    to_the_word: bool,
    pub is_old: bool,
    now_us: u64,
    pub weather: Weather,
    pub sent: usize,
    /// How often which kind of reply came.
    pub seen: BTreeMap<String, usize>,
    log: VecDeque<String>,
}

impl Duel {
    pub fn new(seed: u64) -> Self {
        let has_password = seed.is_multiple_of(2);
        let real = Real::start(has_password.then_some(PASSWORD));
        let start = real.clock().now() + Duration::from_secs(100);
        real.clock().stop_at(start);
        let now = start.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        // To a millisecond and a bit, so that rounding shows.
        let now_us = u64::try_from(now.as_micros()).expect("it fits") / 1_000_000 * 1_000_000 + 300;
        let password = has_password.then(|| ("default".to_owned(), PASSWORD.to_owned()));
        let mut duel = Self {
            seed,
            author: Author::new(seed),
            model: Server::new(Config::default(), now_us),
            real,
            clients: Vec::new(),
            has_password,
            to_the_word: false,
            is_old: false,
            now_us,
            weather: Weather::Fair,
            sent: 0,
            seen: BTreeMap::new(),
            log: VecDeque::new(),
        };
        duel.set_clock();
        let version = duel.real.version();
        duel.is_old = version < Version::redis(7, 0, 0);
        duel.author.version = version.clone();
        duel.to_the_word = version.has_exact_errors();
        let started_us = now_us - 1_000_000 * duel.real.uptime();
        let config = Config {
            run_id: duel.real.run_id(),
            version,
            first_client_id: duel.real.next_client_id(),
            password,
            ..Config::default()
        };
        duel.model = Server::new(config, started_us);
        for role in [Role::Quorlock, Role::Quorlock, Role::Stranger, Role::Stranger, Role::Outsider]
        {
            duel.join(role);
        }
        duel
    }

    /// One turn of somebody.
    pub fn play(&mut self) {
        self.change_weather();
        self.change_clock();
        let who = self.author.dice.below(self.clients.len());
        let Client { conn, role, .. } = self.clients[who];
        match self.author.dice.below(600) {
            0 if self.weather != Weather::Busy => self.leave(who),
            1 => self.say(conn, &[vec!["QUIT".to_owned()], vec!["PING".to_owned()]]),
            2 => self.say_bytes(conn, b"*1\r\n$x\r\n", "what is no command"),
            3..8 => self.kill(conn),
            turn => {
                let is_quorlock = role == Role::Quorlock;
                let pipeline = match turn % 20 {
                    0 => self.author.about_connection(&self.login()),
                    1..3 if is_quorlock => self.author.stranger(),
                    1..7 if role == Role::Stranger => self.author.quorlock(is_quorlock),
                    _ if is_quorlock => self.author.quorlock(is_quorlock),
                    7..10 => self.author.about_connection("PING"),
                    _ => self.author.stranger(),
                };
                self.say(conn, &pipeline);
            }
        }
    }

    /// Nothing more may have come from the real server than from the model.
    pub fn finish(&mut self) {
        let weather = std::mem::replace(&mut self.weather, Weather::Fair);
        self.real.mend(&weather);
        self.tell_model();
        for conn in self.clients.iter().map(|client| client.conn).collect::<Vec<_>>() {
            self.say(conn, &[vec!["PING".to_owned()]]);
        }
    }

    fn login(&self) -> String {
        if self.has_password { format!("AUTH {PASSWORD}") } else { "AUTH default x".to_owned() }
    }

    /// Somebody connects, and says what quorlock says first.
    fn join(&mut self, role: Role) {
        let stream = connect(self.real.addr());
        let conn = self.model.connect();
        self.clients.push(Client { conn, stream, role });
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Words>();
        let auth = format!(" AUTH default {PASSWORD}");
        let auth = if self.has_password { &auth } else { "" };
        let mut pipeline = match role {
            Role::Quorlock => vec![words(&format!("HELLO 3{auth}"))],
            Role::Outsider => vec![words("HELLO 3")],
            _ if self.has_password => vec![words(&self.login())],
            Role::Stranger => vec![words("PING")],
        };
        pipeline.push(words("CLIENT SETNAME quorlock:nodes=1-00000000"));
        pipeline.push(words("CLIENT SETINFO LIB-NAME redis-rs"));
        self.say(conn, &pipeline);
        if role == Role::Quorlock && self.has(conn) {
            let set_up = self.author.set_up();
            self.say(conn, &set_up);
        }
    }

    fn has(&self, conn: ConnId) -> bool {
        self.clients.iter().any(|client| client.conn == conn)
    }

    /// Somebody closes, and somebody like that comes.
    fn leave(&mut self, who: usize) {
        let Client { conn, role, stream } = self.clients.remove(who);
        let id = self.model.client_id(conn).expect("it is open");
        drop(stream);
        self.model.disconnect(conn);
        self.real.wait_for_end(id);
        self.join(role);
    }

    /// Ends somebody's connection, behind a change of which it may be told.
    fn kill(&mut self, by: ConnId) {
        let other = self.author.dice.below(self.clients.len());
        let id = self.model.client_id(self.clients[other].conn).expect("it is open");
        let id = if self.author.dice.once_in(4) { 999_999 } else { id };
        let mut pipeline = self.author.stranger();
        if !self.to_the_word && pipeline[0][0].starts_with("FLUSH") {
            // Newer servers write before they go on behind it.
            return;
        }
        pipeline.push(vec!["CLIENT".into(), "KILL".into(), "ID".into(), id.to_string()]);
        self.say(by, &pipeline);
    }

    fn say(&mut self, conn: ConnId, pipeline: &[Words]) {
        // The script that keeps the server busy is ours to end.
        let kills = pipeline.iter().any(|words| words[..] == ["SCRIPT", "KILL"]);
        if kills && self.weather == Weather::Busy {
            return;
        }
        // Scripts on old replicas still see keys whose time is over.
        let is_replica = matches!(self.weather, Weather::ReadOnly | Weather::MasterDown);
        let runs = pipeline.iter().any(|words| words[0].starts_with("EVAL"));
        if runs && is_replica && self.is_old {
            return;
        }
        // And old servers push what a connection does itself at any time, before the reply or behind it.
        let loops = pipeline.iter().any(|words| {
            words.iter().any(|word| word == "ON") && !words.iter().any(|word| word == "NOLOOP")
        });
        if loops && self.is_old {
            return;
        }
        let mut bytes = Vec::new();
        for words in pipeline {
            bytes.extend(packed(words));
        }
        let lines = pipeline.iter().map(line).collect::<Vec<_>>();
        self.sent += pipeline.len();
        self.say_bytes(conn, &bytes, &lines.join("\n        "));
    }

    fn say_bytes(&mut self, conn: ConnId, bytes: &[u8], shown: &str) {
        let at = format!("{}.{:06}", self.now_us / 1_000_000, self.now_us % 1_000_000);
        self.note(format!("at {at}, {:?}, {conn:?} says\n        {shown}", self.weather));
        let client = self.clients.iter_mut().find(|client| client.conn == conn);
        client.expect("it is open").stream.write_all(bytes).expect("it is open");
        // However it is cut; but what was not written before somebody is killed is lost, so a server must
        // have all of that at once.
        let cut = self.author.dice.below(bytes.len() + 1);
        let is_whole = shown.contains("CLIENT KILL") || !self.author.dice.once_in(4);
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
        if self.log.len() == SHOWN {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    /// The real server must have sent the same.
    fn expect(&mut self, to: ConnId, mut bytes: &[u8]) {
        // Whose end comes next may not be told all of it; see `kill`.
        let Some(who) = self.clients.iter().position(|client| client.conn == to) else { return };
        while !bytes.is_empty() {
            let (expected, rest) = bytes.split_at(frames::length(bytes));
            let got = read_frame(&mut self.clients[who].stream).unwrap_or_else(|part| part);
            if !frames::is_same(expected, &got, self.to_the_word) {
                self.fail(to, &frames::shown(expected), &frames::shown(&got));
            }
            *self.seen.entry(frames::kind(expected)).or_default() += 1;
            bytes = rest;
        }
    }

    fn expect_end(&mut self, of: ConnId) {
        let who = self.clients.iter().position(|client| client.conn == of).expect("it was open");
        let Client { mut stream, role, .. } = self.clients.remove(who);
        let mut got = Vec::new();
        // Closed with unread bytes, it is reset.
        if let Err(error) = stream.read_to_end(&mut got)
            && error.kind() != std::io::ErrorKind::ConnectionReset
        {
            self.fail(of, "the end", &error.to_string());
        }
        if !got.is_empty() {
            self.fail(of, "the end", &frames::shown(&got));
        }
        self.join(role);
    }

    fn fail(&self, to: ConnId, expected: &str, got: &str) -> ! {
        let log: Vec<_> = self.log.iter().map(|entry| format!("    {entry}\n")).collect();
        panic!(
            "seed {}, command {}, to {to:?}\nthe last turns:\n{}the model: {expected}\nthe server: {got}",
            self.seed,
            self.sent,
            log.concat()
        );
    }

    fn change_clock(&mut self) {
        // Valkey may read its clock some microseconds late.
        let step = self.author.step_us();
        let step = if self.to_the_word { step } else { step / 1_000 * 1_000 };
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
