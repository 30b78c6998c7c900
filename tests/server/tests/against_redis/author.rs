//! What is said to servers: mostly what quorlock says, on few keys, so that it meets.

use crate::dice::Dice;
use crate::scripts::{Follow, Script, Scripts, companion};
use quorlock_test::internals::{Config, Version};

/// One command.
pub type Words = Vec<String>;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const VALUES: [&str; 4] = ["mine", "yours", "theirs+2", ""];
const TTLS: [&str; 8] = ["1", "2", "10", "50", "100", "1000", "9000", "60000"];
const COUNTS: [&str; 7] =
    ["0", "1", "7", "12", "9007199254740990", "9007199254740991", "9007199254740992"];
/// What others write where counters stand.
const ODD_COUNTS: [&str; 12] = [
    "3",
    "x",
    "",
    "-1",
    "1.5",
    "2.0",
    " 4 ",
    "0x10",
    "1e3",
    "9007199254740991",
    "9007199254740992",
    "-0",
];

pub struct Author {
    pub dice: Dice,
    /// The server that is spoken to.
    pub version: Version,
    scripts: Scripts,
}

fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

impl Author {
    pub fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), version: Config::default().version, scripts: Scripts::new() }
    }

    fn key(&mut self) -> String {
        self.dice.pick(&KEYS).to_owned()
    }

    fn value(&mut self) -> String {
        // Mostly the same, so that locks are held.
        let value = if self.dice.once_in(2) { VALUES[0] } else { self.dice.pick(&VALUES) };
        value.to_owned()
    }

    fn ttl(&mut self) -> String {
        self.dice.pick(&TTLS).to_owned()
    }

    /// One key, or a sorted set of them.
    fn keys(&mut self) -> Vec<String> {
        let from = self.dice.below(KEYS.len());
        let most = KEYS.len() - from;
        let count = if self.dice.once_in(2) { 1 } else { 1 + self.dice.below(most) };
        KEYS[from..from + count].iter().map(|key| (*key).to_owned()).collect()
    }

    fn follow(&mut self, modes: &[&'static str]) -> Option<Follow> {
        let least = self.dice.pick(&COUNTS).to_owned();
        let follow = Follow { least, mode: self.dice.pick(modes), ttl: self.ttl() };
        Some(follow).filter(|_| self.dice.once_in(2))
    }

    /// A pipeline of quorlock's: commands of several claims, and the node's time.
    pub fn quorlock(&mut self, tracks: bool) -> Vec<Words> {
        match self.dice.below(60) {
            0 => return self.set_up(),
            1 => return self.inspection(),
            _ => {}
        }
        let mut pipeline = Vec::new();
        for _ in 0..=self.dice.below(4) {
            self.command(tracks, &mut pipeline);
        }
        if !self.dice.once_in(8) {
            pipeline.push(words("TIME"));
        }
        pipeline
    }

    fn command(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        match self.dice.below(10) {
            0..3 => self.acquire_one(tracks, pipeline),
            3..5 => self.acquire(tracks, pipeline),
            5..7 => self.extend(tracks, pipeline),
            7..9 => self.release(pipeline),
            _ => {
                let key = [self.key()];
                let by_source = self.dice.once_in(6);
                pipeline.push(self.scripts.look.call(by_source, &key, None));
            }
        }
    }

    fn acquire_one(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (key, value, ttl) = (self.key(), self.value(), self.ttl());
        let set = ["SET", &key, &value, "NX", "PX", &ttl];
        pipeline.push(set.map(str::to_owned).to_vec());
        let wants = self.dice.below(3);
        if wants > 0 {
            watch(tracks, &key, pipeline);
        }
        if wants > 1 {
            pipeline.push(["GETRANGE", &key, "0", "4200"].map(str::to_owned).to_vec());
        }
    }

    fn acquire(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (keys, follow) = (self.keys(), self.follow(&["incr", "incr", "touch"]));
        if tracks && self.dice.once_in(2) {
            for key in &keys {
                watch(true, key, pipeline);
            }
        }
        let arguments = [self.value(), self.ttl()];
        let by_source = self.dice.once_in(6);
        if let ([key], Some(follow)) = (keys.as_slice(), &follow)
            && follow.mode == "incr"
        {
            let call = self.scripts.draw(by_source, key, follow);
            pipeline.push(with(call, &arguments));
            return;
        }
        if follow.is_none() && keys.len() > 1 && self.version.sets_all() {
            pipeline.push(set_all(&keys, &arguments));
        }
        let call = self.scripts.acquire.call(by_source, &keys, follow.as_ref());
        pipeline.push(with(call, &arguments));
    }

    fn extend(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (keys, follow) = (self.keys(), self.follow(&["touch"]));
        let arguments = [self.value(), self.ttl()];
        let by_source = self.dice.once_in(6);
        let call = self.scripts.extend.call(by_source, &keys, follow.as_ref());
        pipeline.push(with(call, &arguments));
        if tracks && self.dice.once_in(2) {
            for key in &keys {
                watch(true, key, pipeline);
            }
        }
    }

    /// Also a release with a cool-down, and taking over what was handed over.
    fn release(&mut self, pipeline: &mut Vec<Words>) {
        let (keys, follow) = (self.keys(), self.follow(&["try", "try", "incr"]));
        let mut arguments = vec![self.value()];
        if self.dice.once_in(3) {
            arguments.extend([self.value(), self.ttl()]);
        }
        let by_source = self.dice.once_in(6);
        if let ([key], [_], None) = (keys.as_slice(), arguments.as_slice(), &follow)
            && let Some(delete) = self.version.deletes_by(key)
        {
            pipeline.push(with(delete, &arguments));
        }
        let call = self.scripts.release.call(by_source, &keys, follow.as_ref());
        pipeline.push(with(call, &arguments));
    }

    /// What quorlock asks on a new connection.
    pub fn set_up(&mut self) -> Vec<Words> {
        let lines = ["TIME", "CLIENT ID", "INFO server", "INFO replication", "INFO memory"];
        let mut pipeline: Vec<_> = lines.map(words).to_vec();
        pipeline.extend(["INFO persistence", "CONFIG GET appendfsync"].map(words));
        let load = |source: &String| vec!["SCRIPT".to_owned(), "LOAD".to_owned(), source.clone()];
        pipeline.extend(self.scripts.sources().map(load));
        pipeline.push(words("CLIENT TRACKING ON OPTIN NOLOOP"));
        pipeline
    }

    /// What quorlock asks at a check.
    fn inspection(&mut self) -> Vec<Words> {
        let key = self.key();
        let mut pipeline =
            vec![words("PING"), words("INFO"), words("PUBSUB NUMSUB __sentinel__:hello")];
        for setting in
            ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxmemory"]
        {
            pipeline.push(words(&format!("CONFIG GET {setting}")));
        }
        pipeline.push(words("CONFIG GET maxmemory-policy"));
        for line in ["SET K v XX PX 1", "GET K", "DEL K", "PTTL K", "PEXPIRE K 1"] {
            pipeline.push(words(&line.replace('K', &key)));
        }
        let script: &Script = &self.scripts.release;
        pipeline.push(vec![
            "SCRIPT".to_owned(),
            "LOAD".to_owned(),
            self.scripts.acquire.plain.clone(),
        ]);
        for by_source in [false, true] {
            pipeline.push(with(
                script.call(by_source, std::slice::from_ref(&key), None),
                &["v".to_owned()],
            ));
        }
        pipeline
    }

    /// A command or two of somebody else, who may use a lock's keys and counters for anything.
    pub fn stranger(&mut self) -> Vec<Words> {
        let key = if self.dice.once_in(3) { companion(&self.key()) } else { self.key() };
        let (value, ttl, long) = (self.value(), self.ttl(), "v".repeat(4_201));
        let line = match self.dice.below(29) {
            0 => vec!["SET", &key, &value],
            1 => vec!["SET", &key, &value, "PX", &ttl],
            2 => vec!["SET", &key, &value, "XX", "PX", &ttl],
            3..6 => vec!["SET", &key, self.dice.pick(&ODD_COUNTS)],
            6 => vec!["GET", &key],
            7 => vec!["DEL", &key],
            8 => vec!["DEL", "a", "b", &key],
            9 => vec!["PTTL", &key],
            10 => vec!["PEXPIRE", &key, &ttl],
            11 => vec!["PEXPIRE", &key, self.dice.pick(&["0", "-1", "x", "9223372036854775807"])],
            12 => vec![
                "SET",
                &key,
                "v",
                "PX",
                self.dice.pick(&["0", "-1", "x", "9223372036854775807"]),
            ],
            13..15 => vec!["SADD", &key, &value],
            15..17 => vec!["LPUSH", &key, &value],
            17 => vec![self.dice.pick(&["FLUSHALL", "FLUSHDB"])],
            18 => vec!["SCRIPT", self.dice.pick(&["FLUSH", "KILL"])],
            19 => vec![
                "SET",
                &key,
                "v",
                self.dice.pick(&["NX", "XX"]),
                self.dice.pick(&["XX", "PX", "FOO"]),
            ],
            20 => vec![self.dice.pick(&["GET", "TIME", "SET", "EVAL"]), &key, "more", "words"],
            21 => vec![self.dice.pick(&["FOO", "CLIENT", "SCRIPT"]), &key],
            22 => vec!["EVALSHA", "0123456789012345678901234567890123456789", "0"],
            23 => vec!["EVAL", "return 1", self.dice.pick(&["x", "-1", "7"])],
            24 => vec!["PING"],
            25 => vec!["SET", &key, self.dice.pick(&[&long, &long[1..]])],
            26 => {
                let places = ["0", "1", "-1", "-3", "5", "99", "x", "9223372036854775807"];
                vec!["GETRANGE", &key, self.dice.pick(&places), self.dice.pick(&places)]
            }
            27 => vec!["EXISTS", "a", &key, "b"],
            _ => vec!["HELLO"],
        };
        vec![line.into_iter().map(str::to_owned).collect()]
    }

    /// What changes the connection itself.
    pub fn about_connection(&mut self, login: &str) -> Vec<Words> {
        let line = match self.dice.below(18) {
            14 => return vec![words("AUTH bob x")],
            16 => "CLIENT SETNAME quorlock:nodes=5-9f3ac21b,quorum=3",
            17 => return vec![vec!["CLIENT".into(), "SETNAME".into(), "no space".into()]],
            15 => return vec![words("HELLO 3 AUTH default wrong")],
            0..4 => "CLIENT TRACKING ON OPTIN NOLOOP",
            4 => "CLIENT TRACKING ON OPTIN",
            5 => "CLIENT TRACKING ON NOLOOP",
            6 => "CLIENT TRACKING ON",
            7 => "CLIENT TRACKING OFF",
            8 => "CLIENT CACHING YES",
            9 => "CLIENT CACHING NO",
            10 => "HELLO 2",
            11 => "HELLO 4",
            12 => self.dice.pick(&["SELECT 0", "SELECT 0", "SELECT 1", "SELECT 99", "SELECT x"]),
            _ => return vec![words(login)],
        };
        // What it is told is told in the newer protocol, mostly.
        let hello = if self.dice.once_in(4) { "CLIENT ID" } else { "HELLO 3" };
        vec![words(line), words(hello)]
    }

    /// By how many microseconds the clock moves on, or back.
    pub fn step_us(&mut self) -> i64 {
        match self.dice.below(24) {
            0..10 => 0,
            10 => 1,
            11 => 999,
            12..15 => 1_000,
            15..19 => 1_000 * i64::try_from(self.dice.below(40)).expect("few"),
            19..22 => 37_123,
            22 => 1_000_001,
            _ => -5_500,
        }
    }
}

fn watch(tracks: bool, key: &str, pipeline: &mut Vec<Words>) {
    if tracks {
        pipeline.push(words("CLIENT CACHING YES"));
    }
    pipeline.push(vec!["PTTL".to_owned(), key.to_owned()]);
}

/// `MSETEX` of the keys, with a value and a TTL.
fn set_all(keys: &[String], [value, ttl]: &[String; 2]) -> Words {
    let pairs = keys.iter().flat_map(|key| [key.clone(), value.clone()]);
    let set = ["MSETEX".to_owned(), keys.len().to_string()].into_iter().chain(pairs);
    set.chain(["NX", "PX", ttl].map(str::to_owned)).collect()
}

fn with(mut call: Words, arguments: &[String]) -> Words {
    call.extend_from_slice(arguments);
    call
}
