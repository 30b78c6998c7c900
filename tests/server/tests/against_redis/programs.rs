//! Random Lua scripts of other programs: they call any command, and return or raise any value.

use crate::generator::{Generator, Words};
use crate::scripts::{counter_key, reader_keys};

/// Numbers. Only the first [`TTLS`] are possible as TTLs, because the model has no scores above 2^53.
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "-1",
    "7",
    "2.5",
    "-3.99",
    "0.1",
    "1/3",
    "1e-7",
    "1e8",
    "1.2e8",
    "1e15",
    "123456789012345678",
    "9007199254740992",
    "1e17",
    "1e22",
    "1e300",
    "-1e300",
    "1/0",
    "-1/0",
    "0/0",
    "-0",
];
const TTLS: usize = 12;
const STRINGS: [&str; 16] = [
    "''",
    "'x'",
    "'a b'",
    "'-a b'",
    "'ERR'",
    "'a\\r\\nb\\n'",
    "'7'",
    "' 7\\n'",
    "'007'",
    "'1e3'",
    "'0x10'",
    "'0x1p4'",
    "'7x'",
    "'inf'",
    "'9007199254740993'",
    "'50'",
];
/// Statements that are invalid, or violate the rules of the sandbox.
const ODD: [&str; 31] = [
    "x = 1",
    "return y",
    "return _G.y",
    "KEYS = {}",
    "redis = nil",
    "redis.call = nil",
    "string.find = nil",
    "rawset(_G, 'x', 1)",
    "return os",
    "return print",
    "local a; return a.b",
    "local a; return a()",
    "return redis.nothing()",
    "return #nil",
    "return {} < {}",
    "return 'a' + 1",
    "return 'a' .. {}",
    "return (1",
    "return 1 return 2",
    "for",
    "\n\nlocal a\n\nreturn a.b",
    "return string.rep()",
    "return tostring()",
    "return ('x'):rep(3)",
    "return select('#', unpack(KEYS))",
    "return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}",
    "return redis.log(redis.LOG_DEBUG, 'x')",
    "return redis.log(9, 'x')",
    "return redis.log(1)",
    "return redis.sha1hex()",
    "return {redis.sha1hex(''), redis.sha1hex(12), redis.sha1hex(nil)}",
];

impl Generator {
    /// Returns an `EVAL` of a random script.
    pub fn program(&mut self) -> Words {
        let lock = self.key();
        let mut keys = vec![lock.clone(), counter_key(&lock)];
        keys.extend(reader_keys(&lock));
        let mut words = vec!["EVAL".to_owned(), self.source(), keys.len().to_string()];
        words.extend(keys);
        words.extend([self.value(), self.ttl()]);
        words
    }

    fn source(&mut self) -> String {
        let mut lines = Vec::new();
        for _ in 0..self.rng.below(3) {
            let call = self.call();
            lines.push(match self.rng.below(4) {
                0 => format!("local held = {call}"),
                1 => format!("for i = 1, #KEYS do redis.pcall('PTTL', KEYS[i]) end {call}"),
                _ => call,
            });
        }
        lines.push(match self.rng.below(12) {
            0 => self.rng.pick(&ODD).to_owned(),
            1 => format!("error({})", self.raised()),
            2 => format!("error({}, 0)", self.raised()),
            3 => format!("assert(false, {})", self.rng.pick(&STRINGS)),
            4 => format!("return {}, 1", self.expression(1)),
            5 => format!("local function f() return {} end\nreturn f()", self.expression(2)),
            6 => format!("return {{pcall(function() error({}) end)}}", self.raised()),
            _ => format!("return {}", self.expression(3)),
        });
        lines.join(self.rng.pick(&["\n", " "]))
    }

    /// Returns a value that a script may raise. A table without the field `err` would crash Redis 7.0.
    fn raised(&mut self) -> String {
        match self.rng.below(6) {
            0 => format!("{{err={}}}", self.rng.pick(&STRINGS[1..])),
            1 => format!("redis.error_reply({})", self.rng.pick(&STRINGS)),
            2 => "redis.pcall('foo')".to_owned(),
            3 => self.rng.pick(&["nil", "true", "7"]).to_owned(),
            _ => self.rng.pick(&STRINGS).to_owned(),
        }
    }

    fn expression(&mut self, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else { return self.literal() };
        match self.rng.below(16) {
            0 => {
                let parts: Vec<_> =
                    (0..self.rng.below(4)).map(|_| self.expression(depth)).collect();
                format!("{{{}}}", parts.join(", "))
            }
            1 => format!("{{ok={}}}", self.literal()),
            2 => format!("{{err={}}}", self.literal()),
            3 => format!("redis.error_reply({})", self.literal()),
            4 => format!("redis.status_reply({})", self.literal()),
            5 => format!("type({})", self.expression(depth)),
            6 => format!("tostring({})", self.rng.pick(&NUMBERS)),
            7 => format!("tonumber({})", self.rng.pick(&STRINGS)),
            8 => {
                let format = self.rng.pick(&["'%.0f'", "'%d'", "'%.14g'", "'%s'", "'%5.1f'"]);
                format!("string.format({format}, {})", self.rng.pick(&NUMBERS))
            }
            9 => format!("{{pcall({})}}", self.call().replacen('(', ", ", 1)),
            10 => format!("select(2, xpcall(function() {} end, type))", self.call()),
            11 => format!("{{{}, {}}}", self.call(), self.literal()),
            12..14 => self.literal(),
            _ => self.call(),
        }
    }

    fn literal(&mut self) -> String {
        match self.rng.below(8) {
            0 => self.rng.pick(&["nil", "true", "false", "type"]).to_owned(),
            1..3 => self.rng.pick(&NUMBERS).to_owned(),
            3 => self.rng.pick(&["KEYS[1]", "KEYS[9]", "ARGV[1]", "ARGV[2]", "#ARGV"]).to_owned(),
            _ => self.rng.pick(&STRINGS).to_owned(),
        }
    }

    /// Returns a call of a command. Usually its arguments are valid.
    fn call(&mut self) -> String {
        let key = self.rng.pick(&["KEYS[1]", "KEYS[1]", "KEYS[2]", "KEYS[3]"]);
        let literal = self.literal();
        let words = match self.rng.below(24) {
            0..3 => vec!["'SET'", key, &literal],
            3 => vec!["'SET'", key, "ARGV[1]", "'PX'", "ARGV[2]"],
            4 => vec!["'SET'", key, "ARGV[1]", "'NX'", "'PX'", self.rng.pick(&NUMBERS[..TTLS])],
            5..8 => vec!["'GET'", key],
            8 => vec!["'get'", key, &literal],
            9 => vec!["'MGET'", "unpack(KEYS)"],
            10 => vec!["'EXISTS'", key, "'a'"],
            11 => vec!["'DEL'", key],
            12 => vec!["'PTTL'", key],
            13 => vec!["'PEXPIRE'", key, self.rng.pick(&NUMBERS[..TTLS])],
            14 => vec!["'ZADD'", "KEYS[3]", self.rng.pick(&NUMBERS[..4]), &literal],
            15 => vec!["'ZREVRANGE'", "KEYS[3]", "0", "7", "'WITHSCORES'"],
            16 => vec!["'ZSCORE'", "KEYS[3]", &literal],
            17 => vec!["'SADD'", key, &literal],
            18 => vec!["'PING'", &literal],
            19 => vec![self.rng.pick(&["'FOO'", "''", "'QUIT'", "'TIME'", "'HELLO'"]), &literal],
            20 => vec![
                self.rng.pick(&["'CLIENT'", "'SCRIPT'", "'CONFIG'", "'AUTH'", "'EVAL'"]),
                self.rng.pick(&["'ID'", "'LOAD'", "'GET'", "'x'"]),
                "'x'",
            ],
            21 => vec!["'SELECT'", self.rng.pick(&["0", "1", "99"])],
            22 => vec![],
            _ => vec![&literal, "'x'"],
        };
        let run = self.rng.pick(&["redis.call", "redis.pcall"]);
        format!("{run}({})", words.join(", "))
    }
}
