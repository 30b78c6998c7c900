//! Random commands for reader-writer locks: quorlock's scripts, and commands of other programs that use the same keys.

use crate::generator::{Generator, Words, watch, with, words};
use crate::scripts::{counter_key, reader_keys};

/// Scores that other programs may give to readers: in the past, in the future, and with many zeros.
const SCORES: [&str; 9] = [
    "5",
    "0",
    "-7",
    "x",
    "1e3",
    "1000000000000",
    "2000000000000",
    "9000000000000",
    "9007199254740000",
];
/// Writers' intents and readers' requests. Only other programs store the values without a number and a space.
const INTENTS: [&str; 8] = ["5 x", "0 x", "20 x", "1000 y", "4000000000000 y", "x", "", "1.5"];

impl Generator {
    /// Appends one of the scripts of a reader or a writer to `pipeline`.
    pub fn reader_or_writer(&mut self, tracks: bool, pipeline: &mut Vec<Words>) {
        if tracks && self.rng.once_in(2) {
            pipeline.push(words("CLIENT CACHING YES"));
        }
        let call = match self.rng.below(8) {
            0..4 => self.acquire_shared(),
            4..6 => self.acquire_write(),
            _ => self.release_shared(),
        };
        pipeline.push(call);
        if tracks && self.rng.once_in(4) {
            let key = self.locked_key();
            watch(true, &key, pipeline);
        }
    }

    /// Returns a key. The first one is more likely than the others, so that readers and writers conflict.
    fn locked_key(&mut self) -> String {
        if self.rng.once_in(2) { "a".to_owned() } else { self.key() }
    }

    fn acquire_shared(&mut self) -> Words {
        let key = self.locked_key();
        let mut keys = vec![key.clone()];
        keys.extend(reader_keys(&key));
        if self.rng.once_in(3) {
            keys.push(counter_key(&key));
        }
        let by_source = self.rng.once_in(6);
        let mode = self.rng.pick(&["try", "try", "try", "extend"]).to_owned();
        let mut arguments = vec![self.value(), self.ttl(), mode];
        if arguments[2] == "try" && !self.rng.once_in(3) {
            arguments.push(self.rng.pick(&INTENTS[..5]).to_owned());
        }
        with(self.scripts.acquire_shared.call(by_source, &keys, None), &arguments)
    }

    fn release_shared(&mut self) -> Words {
        let key = self.locked_key();
        let readers = reader_keys(&key).into_iter().next();
        let keys: Vec<_> = [key].into_iter().chain(readers).collect();
        let mut arguments = vec![self.value()];
        if self.rng.once_in(3) {
            arguments.extend([self.value(), self.ttl()]);
        }
        let by_source = self.rng.once_in(6);
        with(self.scripts.release_shared.call(by_source, &keys, None), &arguments)
    }

    fn acquire_write(&mut self) -> Words {
        let key = self.locked_key();
        let ttl = self.ttl();
        let value = self.value();
        let intent = if self.rng.once_in(3) { String::new() } else { format!("{ttl} {value}") };
        let mut arguments = vec![ttl.clone(), intent];
        let mut keys = vec![key.clone()];
        let is_fenced = self.rng.once_in(2);
        if is_fenced {
            keys.push(counter_key(&key));
            arguments.extend(["7".to_owned(), self.ttl()]);
        }
        keys.extend(reader_keys(&key));
        arguments.extend([value, ttl]);
        let by_source = self.rng.once_in(6);
        with(self.scripts.acquire_write(by_source, is_fenced, &keys), &arguments)
    }

    /// Returns a command of another program that uses the keys of a reader-writer lock.
    pub fn foreign_readers_command(&mut self) -> Words {
        let lock = self.locked_key();
        let beside = reader_keys(&lock);
        let (readers, any) = (&beside[0], self.rng.pick(&[&beside[0], &beside[1], &beside[2]]));
        let (value, ttl) = (self.value(), self.ttl());
        let line = match self.rng.below(24) {
            0..3 => vec!["ZADD", readers, self.rng.pick(&SCORES), &value],
            3 => vec!["ZADD", any, self.rng.pick(&SCORES), &value],
            4 => vec!["ZREM", any, &value],
            5 => vec!["ZSCORE", any, &value],
            6 => vec!["ZSCORE", readers, &value],
            7 => vec!["ZREVRANGE", readers, "0", "0", "WITHSCORES"],
            8 => vec!["ZREVRANGE", any, "0", "0", "withscores"],
            9 => vec!["ZREMRANGEBYSCORE", any, "-inf", self.rng.pick(&SCORES)],
            10 => vec!["PEXPIREAT", any, self.rng.pick(&SCORES)],
            11 => vec!["PEXPIREAT", &lock, self.rng.pick(&SCORES)],
            12 => vec!["SADD", any, &value],
            13..15 => vec!["DEL", any],
            15 => vec!["DEL", &lock, readers],
            16 => vec!["SET", &beside[1], self.rng.pick(&INTENTS), "PX", &ttl],
            17 => vec!["SET", any, self.rng.pick(&INTENTS)],
            18 => vec!["SET", &lock, "quorlock:readers"],
            19 => vec!["SET", &lock, "quorlock:readers", "PX", &ttl],
            20 => vec!["SET", readers, &value, "PX", &ttl],
            21 => vec!["SET", readers, &value],
            22 => vec![self.rng.pick(&["ZADD", "ZREM", "ZSCORE", "PEXPIREAT"]), readers],
            _ => vec!["PEXPIRE", any, &ttl],
        };
        line.into_iter().map(str::to_owned).collect()
    }
}
