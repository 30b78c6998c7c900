//! Generates random commands. Most of them are commands that quorlock also sends. They use few keys, so that clients
//! conflict.

use crate::rng::Rng;
use crate::scripts::{CounterArgs, Script, Scripts, counter_key, record_key};
use quorlock_test::internals::{Config, Version};

pub type Words = Vec<String>;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const VALUES: [&str; 4] = ["mine", "yours", "theirs+2", ""];
const TTLS: [&str; 8] = ["1", "2", "10", "50", "100", "1000", "9000", "60000"];
const COUNTS: [&str; 7] =
    ["0", "1", "7", "12", "9007199254740990", "9007199254740991", "9007199254740992"];
/// Times of a job's calls, and beginnings of its periods.
const TIMES: [&str; 4] = ["0", "9", "10", "1469000000000000"];
/// Values that other programs may write to the counters' keys.
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

pub struct Generator {
    pub rng: Rng,
    pub version: Version,
    pub scripts: Scripts,
}

pub fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), version: Config::default().version, scripts: Scripts::new() }
    }

    pub fn key(&mut self) -> String {
        self.rng.pick(&KEYS).to_owned()
    }

    pub fn value(&mut self) -> String {
        // The first value is more likely than the others, so that clients often hold each other's locks.
        let value = if self.rng.once_in(2) { VALUES[0] } else { self.rng.pick(&VALUES) };
        value.to_owned()
    }

    pub fn ttl(&mut self) -> String {
        self.rng.pick(&TTLS).to_owned()
    }

    fn keys(&mut self) -> Vec<String> {
        let from = self.rng.below(KEYS.len());
        let most = KEYS.len() - from;
        let count = if self.rng.once_in(2) { 1 } else { 1 + self.rng.below(most) };
        KEYS[from..from + count].iter().map(|key| (*key).to_owned()).collect()
    }

    fn counter_args(&mut self, modes: &[&'static str]) -> Option<CounterArgs> {
        let least = self.rng.pick(&COUNTS).to_owned();
        let counter = CounterArgs { least, mode: self.rng.pick(modes), ttl: self.ttl() };
        Some(counter).filter(|_| self.rng.once_in(2))
    }

    /// Returns a pipeline as quorlock sends it: the commands of several requests, usually followed by `TIME`.
    pub fn quorlock(&mut self, tracks: bool) -> Vec<Words> {
        match self.rng.below(60) {
            0 => return self.set_up(),
            1 => return self.inspection(),
            _ => {}
        }
        let mut pipeline = Vec::new();
        for _ in 0..=self.rng.below(4) {
            self.command(tracks, &mut pipeline);
        }
        if !self.rng.once_in(8) {
            pipeline.push(words("TIME"));
        }
        pipeline
    }

    fn command(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        match self.rng.below(17) {
            0..3 => self.acquire_one(tracks, pipeline),
            3..5 => self.acquire(tracks, pipeline),
            5..7 => self.extend(tracks, pipeline),
            7..9 => self.release(pipeline),
            9..11 => self.acquire_any(tracks, pipeline),
            11..15 => self.reader_or_writer(tracks, pipeline),
            15 => {
                let (key, number) = (self.key(), self.rng.pick(&COUNTS).to_owned());
                let ttl = if self.rng.once_in(3) { "0".to_owned() } else { self.ttl() };
                let by_source = self.rng.once_in(6);
                let (begin, record) = (self.rng.pick(&TIMES).to_owned(), self.record(&number));
                let arguments = [number, ttl, begin, record];
                pipeline.push(self.scripts.period(by_source, &key, arguments));
            }
            _ => {
                let mut keys = vec![self.key()];
                if self.rng.once_in(2) {
                    keys.push(counter_key(&keys[0]));
                }
                let by_source = self.rng.once_in(6);
                pipeline.push(self.scripts.read_script.call(by_source, &keys, None));
            }
        }
    }

    /// Returns a record for the counter of a job, or an empty string. Some records are invalid or belong to another number.
    fn record(&mut self, number: &str) -> String {
        let (time, value) = (self.rng.pick(&TIMES), self.value());
        match self.rng.below(8) {
            0 => String::new(),
            1 => value,
            2 => format!("7:start:1:{time}:{value}"),
            3 => format!("{number}:start:1:{value}"),
            4 => format!("{number}:end:1:{time}:a:{value}"),
            _ => format!("{number}:start:1:{time}:{value}"),
        }
    }

    fn acquire_one(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (key, value, ttl) = (self.key(), self.value(), self.ttl());
        let set = ["SET", &key, &value, "NX", "PX", &ttl];
        pipeline.push(set.map(str::to_owned).to_vec());
        let extras = self.rng.below(3);
        if extras > 0 {
            watch(tracks, &key, pipeline);
        }
        if extras > 1 {
            pipeline.push(["GETRANGE", &key, "0", "4200"].map(str::to_owned).to_vec());
        }
    }

    fn acquire(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (keys, counter) = (self.keys(), self.counter_args(&["incr", "incr", "touch"]));
        if tracks && self.rng.once_in(2) {
            for key in &keys {
                watch(true, key, pipeline);
            }
        }
        let arguments = [self.value(), self.ttl()];
        let by_source = self.rng.once_in(6);
        if let ([key], Some(counter)) = (keys.as_slice(), &counter)
            && counter.mode == "incr"
        {
            let call = self.scripts.acquire_with_token(by_source, key, counter);
            pipeline.push(with(call, &arguments));
            return;
        }
        if counter.is_none() && keys.len() > 1 && self.version.sets_all() {
            pipeline.push(set_all(&keys, &arguments));
        }
        let call = self.scripts.acquire.call(by_source, &keys, counter.as_ref());
        pipeline.push(with(call, &arguments));
    }

    fn acquire_any(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (keys, counter) = (self.keys(), self.counter_args(&["incr"]));
        if tracks && self.rng.once_in(2) {
            pipeline.push(words("CLIENT CACHING YES"));
        }
        let first = 1 + self.rng.below(keys.len());
        let arguments = (self.value(), self.ttl(), first, self.rng.once_in(2));
        let by_source = self.rng.once_in(6);
        let call = self.scripts.acquire_any(by_source, &keys, arguments, counter.as_ref());
        pipeline.push(call);
    }

    fn extend(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        let (keys, counter) = (self.keys(), self.counter_args(&["touch"]));
        let arguments = [self.value(), self.ttl()];
        let by_source = self.rng.once_in(6);
        let call = self.scripts.extend.call(by_source, &keys, counter.as_ref());
        pipeline.push(with(call, &arguments));
        if tracks && self.rng.once_in(2) {
            for key in &keys {
                watch(true, key, pipeline);
            }
        }
    }

    /// Appends a release to `pipeline`. Some releases replace the value instead of deleting the key, as in a cooldown
    /// or an adoption.
    fn release(&mut self, pipeline: &mut Vec<Words>) {
        if self.rng.once_in(4) {
            let (keys, value) = (self.keys(), self.value());
            let call = self.scripts.release_any.call(self.rng.once_in(6), &keys, None);
            return pipeline.push(with(call, &[value]));
        }
        let (keys, counter) = (self.keys(), self.counter_args(&["try", "try", "incr"]));
        let mut arguments = vec![self.value()];
        if self.rng.once_in(3) {
            arguments.extend([self.value(), self.ttl()]);
        }
        let by_source = self.rng.once_in(6);
        if let ([key], [_], None) = (keys.as_slice(), arguments.as_slice(), &counter)
            && let Some(delete) = self.version.conditional_delete(key)
        {
            pipeline.push(with(delete, &arguments));
        }
        let call = self.scripts.release.call(by_source, &keys, counter.as_ref());
        pipeline.push(with(call, &arguments));
    }

    pub fn set_up(&mut self) -> Vec<Words> {
        let lines = ["TIME", "CLIENT ID", "INFO server", "INFO replication", "INFO memory"];
        let mut pipeline: Vec<_> = lines.map(words).to_vec();
        pipeline.extend(["INFO persistence", "CONFIG GET appendfsync"].map(words));
        let load = |source: &String| vec!["SCRIPT".to_owned(), "LOAD".to_owned(), source.clone()];
        pipeline.extend(self.scripts.sources().map(load));
        pipeline.push(words("CLIENT TRACKING ON OPTIN NOLOOP"));
        pipeline
    }

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

    /// Returns a command of another program, which may use a lock's keys and counters in any way.
    pub fn foreign_command(&mut self) -> Vec<Words> {
        match self.rng.below(8) {
            0..2 => return vec![self.foreign_readers_command()],
            2..5 => return (0..4).map(|_| self.program()).collect(),
            _ => {}
        }
        let key = match self.rng.below(6) {
            0..2 => counter_key(&self.key()),
            2 => record_key(&self.key()),
            _ => self.key(),
        };
        let (value, ttl, long) = (self.value(), self.ttl(), "v".repeat(4_201));
        let line = match self.rng.below(29) {
            0 => vec!["SET", &key, &value],
            1 => vec!["SET", &key, &value, "PX", &ttl],
            2 => vec!["SET", &key, &value, "XX", "PX", &ttl],
            3..6 => vec!["SET", &key, self.rng.pick(&ODD_COUNTS)],
            6 => vec!["GET", &key],
            7 => vec!["DEL", &key],
            8 => vec!["DEL", "a", "b", &key],
            9 => vec!["PTTL", &key],
            10 => vec!["PEXPIRE", &key, &ttl],
            11 => vec!["PEXPIRE", &key, self.rng.pick(&["0", "-1", "x", "9223372036854775807"])],
            12 => vec![
                "SET",
                &key,
                "v",
                "PX",
                self.rng.pick(&["0", "-1", "x", "9223372036854775807"]),
            ],
            13..15 => vec!["SADD", &key, &value],
            15..17 => vec!["LPUSH", &key, &value],
            17 => vec![self.rng.pick(&["FLUSHALL", "FLUSHDB"])],
            18 => vec!["SCRIPT", self.rng.pick(&["FLUSH", "KILL"])],
            19 => vec![
                "SET",
                &key,
                "v",
                self.rng.pick(&["NX", "XX"]),
                self.rng.pick(&["XX", "PX", "FOO"]),
            ],
            20 => vec![self.rng.pick(&["GET", "TIME", "SET", "EVAL"]), &key, "more", "words"],
            21 => vec![self.rng.pick(&["FOO", "CLIENT", "SCRIPT"]), &key],
            22 => vec!["EVALSHA", "0123456789012345678901234567890123456789", "0"],
            23 => vec!["EVAL", "return 1", self.rng.pick(&["x", "-1", "7"])],
            24 => vec!["PING"],
            25 => vec!["SET", &key, self.rng.pick(&[&long, &long[1..]])],
            26 => {
                let places = ["0", "1", "-1", "-3", "5", "99", "x", "9223372036854775807"];
                vec!["GETRANGE", &key, self.rng.pick(&places), self.rng.pick(&places)]
            }
            27 => vec!["EXISTS", "a", &key, "b"],
            _ => vec!["HELLO"],
        };
        vec![line.into_iter().map(str::to_owned).collect()]
    }

    pub fn connection_command(&mut self, login: &str) -> Vec<Words> {
        let line = match self.rng.below(18) {
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
            12 => self.rng.pick(&["SELECT 0", "SELECT 0", "SELECT 1", "SELECT 99", "SELECT x"]),
            _ => return vec![words(login)],
        };
        // Most pipelines switch to RESP3, in which servers push invalidations.
        let hello = if self.rng.once_in(4) { "CLIENT ID" } else { "HELLO 3" };
        vec![words(line), words(hello)]
    }

    /// Returns the step of the clock in microseconds. A negative step moves the clock back.
    pub fn step_us(&mut self) -> i64 {
        match self.rng.below(24) {
            0..10 => 0,
            10 => 1,
            11 => 999,
            12..15 => 1_000,
            15..19 => 1_000 * i64::try_from(self.rng.below(40)).expect("a small number"),
            19..22 => 37_123,
            22 => 1_000_001,
            _ => -5_500,
        }
    }
}

pub fn watch(tracks: bool, key: &str, pipeline: &mut Vec<Words>) {
    if tracks {
        pipeline.push(words("CLIENT CACHING YES"));
    }
    pipeline.push(vec!["PTTL".to_owned(), key.to_owned()]);
}

fn set_all(keys: &[String], [value, ttl]: &[String; 2]) -> Words {
    let pairs = keys.iter().flat_map(|key| [key.clone(), value.clone()]);
    let set = ["MSETEX".to_owned(), keys.len().to_string()].into_iter().chain(pairs);
    set.chain(["NX", "PX", ttl].map(str::to_owned)).collect()
}

pub fn with(mut call: Words, arguments: &[String]) -> Words {
    call.extend_from_slice(arguments);
    call
}
