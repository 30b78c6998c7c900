//! Tests of the scripts of reader-writer locks on the server model, without a client. Random calls are compared with a
//! small model of one lock: its readers and its writer, each with the time until which the lock is guaranteed.

use proptest::prelude::*;
use quorlock_test::internals::{Config, ConnId, Kind, Output, Server};
use std::collections::BTreeMap;

const ACQUIRE: &str = include_str!("../../../src/wire/scripts/acquire.lua");
const ACQUIRE_FENCED: &str = include_str!("../../../src/wire/scripts/acquire_fenced.lua");
const ACQUIRE_SHARED: &str = include_str!("../../../src/wire/scripts/acquire_shared.lua");
const ACQUIRE_WRITE: &str = include_str!("../../../src/wire/scripts/acquire_write.lua");
const EXTEND: &str = include_str!("../../../src/wire/scripts/extend.lua");
const RELEASE: &str = include_str!("../../../src/wire/scripts/release.lua");
const RELEASE_SHARED: &str = include_str!("../../../src/wire/scripts/release_shared.lua");

const START_US: u64 = 1_700_000_000_000_300;
/// The request of a waiting reader, which goes first for 20 ms.
const REQUEST: &str = "20 r";
const READERS: &[u8] = b"quorlock:readers";

#[derive(Clone, Debug)]
enum Call {
    Wait(u64),
    Read { who: u8, mode: &'static str, ttl: u64, has_counter: bool },
    ReleaseReader { who: u8, cool_down: Option<u64> },
    Write { who: u8, waits: bool, ttl: u64, is_fenced: bool },
    ExtendWriter { who: u8, ttl: u64 },
    ReleaseWriter { who: u8 },
    Delete(&'static str),
    Overwrite { ttl: u64 },
    Expire,
}

fn call() -> impl Strategy<Value = Call> {
    let who = || 0_u8..4;
    let ttl = || prop_oneof![1_u64..5, 5_u64..60, Just(1_000)];
    let mode = prop_oneof![Just("wait"), Just("try"), Just("extend"), Just("extend")];
    prop_oneof![
        6 => prop_oneof![0_u64..3_000, 0_u64..50_000, Just(1_000), Just(1_100_000)].prop_map(Call::Wait),
        8 => (who(), mode, ttl(), any::<bool>())
            .prop_map(|(who, mode, ttl, has_counter)| Call::Read { who, mode, ttl, has_counter }),
        4 => (who(), prop::option::weighted(0.3, ttl()))
            .prop_map(|(who, cool_down)| Call::ReleaseReader { who, cool_down }),
        5 => (who(), any::<bool>(), ttl(), any::<bool>())
            .prop_map(|(who, waits, ttl, is_fenced)| Call::Write { who, waits, ttl, is_fenced }),
        1 => (who(), ttl()).prop_map(|(who, ttl)| Call::ExtendWriter { who, ttl }),
        3 => who().prop_map(|who| Call::ReleaseWriter { who }),
        1 => prop_oneof![Just("lock"), Just("readers"), Just("intent"), Just("waiting")]
            .prop_map(Call::Delete),
        1 => ttl().prop_map(|ttl| Call::Overwrite { ttl }),
        1 => Just(Call::Expire),
    ]
}

/// Times until which the lock is guaranteed, in µs since 1970, by value.
struct Lock {
    server: Server,
    conn: ConnId,
    now: u64,
    readers: BTreeMap<String, u64>,
    writer: Option<(String, u64)>,
    /// When the last reader that was refused stops waiting.
    waiting_until: u64,
}

impl Lock {
    fn new() -> Self {
        let mut server = Server::new(Config::default(), START_US);
        let conn = server.connect();
        let (readers, writer) = (BTreeMap::new(), None);
        Self { server, conn, now: START_US, readers, writer, waiting_until: 0 }
    }

    fn send(&mut self, words: &[&str]) -> String {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        match &self.server.receive(self.conn, &bytes, self.now)[..] {
            [Output::Bytes(_, reply)] => String::from_utf8_lossy(reply).into_owned(),
            other => panic!("no single reply: {other:?}"),
        }
    }

    fn eval(&mut self, script: &str, keys: &[&str], arguments: &[&str]) -> String {
        let count = keys.len().to_string();
        let words = [&["EVAL", script, &count], keys, arguments].concat();
        let reply = self.send(&words);
        assert!(!reply.starts_with('-'), "{reply}");
        reply
    }

    fn key(&self, name: &str) -> Option<(Kind, Option<u64>)> {
        let mut keys = self.server.keys(self.now);
        let (_, stored) = keys.find(|(key, _)| *key == name.as_bytes())?;
        Some((stored.kind, stored.expires_at_us))
    }

    fn after(&self, ms: u64) -> u64 {
        self.now + ms * 1_000
    }

    fn forget_ended(&mut self) {
        // The server keeps a key until the end of the millisecond of its expiry.
        let now = self.now;
        self.readers.retain(|_, until| now < *until + 1_000);
        self.writer = self.writer.take().filter(|(_, until)| now < *until + 1_000);
    }

    fn has_reader(&self, value: &str) -> bool {
        self.readers.get(value).is_some_and(|until| self.now < *until)
    }

    fn has_writer(&self, value: &str) -> bool {
        self.writer.as_ref().is_some_and(|(it, until)| it == value && self.now < *until)
    }

    fn other_writer(&self, value: &str) -> bool {
        self.writer.as_ref().is_some_and(|(it, until)| it != value && self.now < *until)
    }

    /// Returns true if a writer's intent is in force: during the first half of its key's lifetime.
    fn intent_blocks(&self) -> bool {
        let Some((Kind::String(intent), Some(expiry))) = self.key("intent") else { return false };
        let intent = String::from_utf8_lossy(&intent).into_owned();
        let ttl: u64 = intent.split(' ').next().and_then(|ttl| ttl.parse().ok()).expect("a ttl");
        let left = (expiry / 1_000).saturating_sub(self.now / 1_000);
        left > ttl + 1
    }

    fn read(&mut self, value: &str, mode: &str, ttl: u64, has_counter: bool) {
        let keys = ["lock", "readers", "intent", "waiting", "counter"];
        let keys = if has_counter && mode != "extend" { &keys[..] } else { &keys[..4] };
        let (is_blocked, ttl_ms) = (self.intent_blocks(), ttl.to_string());
        let arguments = match mode {
            "wait" => vec![value, &ttl_ms, "try", REQUEST],
            _ => vec![value, &ttl_ms, mode],
        };
        let reply = self.eval(ACQUIRE_SHARED, keys, &arguments);
        let is_granted = ["+OK", ":1\r", "*2\r\n+OK"].iter().any(|it| reply.starts_with(it));
        let (is_reader, is_writer) = (self.has_reader(value), self.has_writer(value));
        let may_be_held = is_reader
            || is_writer
            || self.readers.contains_key(value)
            || self.writer.as_ref().is_some_and(|(it, _)| it == value);
        assert!(!is_granted || !self.other_writer(value), "a reader beside a writer");
        assert!(is_granted || !is_reader && !is_writer, "a holder was refused: {reply}");
        assert!(mode != "extend" || !is_granted || may_be_held, "a reader was revived");
        assert!(!is_granted || !is_blocked || may_be_held, "a new reader passed an intent");
        if is_granted {
            let known = self.readers.get(value).copied();
            let own = self.writer.take_if(|(it, _)| it == value).map(|(_, until)| until);
            let until = self.after(ttl).max(known.unwrap_or(0)).max(own.unwrap_or(0));
            self.readers.insert(value.to_owned(), until);
            if own.is_none() {
                self.writer = None;
            }
            // The script may have prolonged the request: other readers may arrive a little later.
            if mode == "wait" && self.key("waiting").is_some() {
                self.waiting_until = self.waiting_until.max(self.after(20));
            }
        } else if mode == "wait" {
            assert!(reply.starts_with("*2\r\n:") || reply.starts_with("*3\r\n:"), "{reply}");
            let left = reply[5..].split('\r').next().and_then(|left| left.parse::<u64>().ok());
            let left = left.expect("every lock key expires");
            self.waiting_until = self.after(left + ttl);
        }
    }

    fn release_reader(&mut self, value: &str, cool_down: Option<u64>) {
        let ttl = cool_down.map(|ttl| ttl.to_string());
        let arguments: Vec<_> =
            std::iter::once(value).chain(ttl.iter().flat_map(|ttl| ["cool", ttl])).collect();
        let reply = self.eval(RELEASE_SHARED, &["lock", "readers"], &arguments);
        let is_released = [":1\r\n", ":2\r\n"].contains(&&*reply);
        let is_held = self.has_reader(value) || self.has_writer(value);
        let was_writer = self.writer.as_ref().is_some_and(|(it, _)| it == value);
        let may_be_held = self.readers.contains_key(value) || was_writer;
        assert!(is_released || !is_held, "{reply}");
        assert!(!is_released || may_be_held, "{reply}");
        self.readers.remove(value);
        let others = self.readers.values().any(|until| self.now < *until);
        assert!(reply != ":2\r\n" || !others, "the last reader was not the last one");
        if was_writer {
            self.writer = None;
        }
        if let Some(ttl) = cool_down.filter(|_| is_released) {
            let until = self.after(ttl);
            if was_writer {
                self.writer = Some(("cool".to_owned(), until));
            } else {
                self.readers.insert("cool".to_owned(), until);
            }
        }
    }

    fn write(&mut self, value: &str, waits: bool, ttl: u64, is_fenced: bool) {
        let inner = if is_fenced { ACQUIRE_FENCED } else { ACQUIRE };
        let source = format!("local function set_key(KEYS, ARGV)\n{inner}\nend\n{ACQUIRE_WRITE}");
        let ttl_ms = ttl.to_string();
        let intent = if waits { format!("{ttl} {value}") } else { String::new() };
        let mut keys = vec!["lock", "readers", "intent", "waiting"];
        let mut arguments = vec![&*ttl_ms, &intent];
        if is_fenced {
            keys.insert(1, "counter");
            arguments.extend(["0", "100000"]);
        }
        arguments.extend([value, &ttl_ms]);
        let is_free = self.key("lock").is_none();
        let reply = self.eval(&source, &keys, &arguments);
        let is_granted = reply.starts_with("+OK") || reply.starts_with(':');
        let has_readers = self.readers.values().any(|until| self.now < *until);
        assert!(!is_granted || !has_readers, "a writer beside a reader");
        assert!(!is_granted || !self.other_writer(value), "a writer beside a writer");
        assert!(is_granted || !self.has_writer(value), "the writer was refused");
        let readers_may_wait = self.now < self.waiting_until + 1_000;
        assert!(is_granted || !is_free || readers_may_wait, "a free lock was refused: {reply}");
        if is_granted {
            // A key that holds the value keeps its TTL.
            let known = self.writer.as_ref().filter(|(it, _)| !is_free && it == value);
            let until = known.map_or(self.after(ttl), |(_, until)| *until);
            self.writer = Some((value.to_owned(), until));
            self.readers.clear();
        } else if waits && has_readers && !readers_may_wait {
            assert!(self.key("intent").is_some(), "a waiting writer has no intent");
        }
    }

    fn play(&mut self, call: &Call) {
        let (reader, writer) = (|who: u8| format!("r{who}"), |who: u8| format!("w{who}"));
        match call {
            Call::Wait(us) => self.now += us,
            Call::Expire => {
                self.server.expire(self.now);
            }
            // The last value is the one of a writer, which becomes a reader.
            Call::Read { who: 3, mode, ttl, has_counter } => {
                self.read(&writer(0), mode, *ttl, *has_counter);
            }
            Call::Read { who, mode, ttl, has_counter } => {
                self.read(&reader(*who), mode, *ttl, *has_counter);
            }
            Call::ReleaseReader { who: 3, cool_down } => {
                self.release_reader(&writer(0), *cool_down);
            }
            Call::ReleaseReader { who, cool_down } => {
                self.release_reader(&reader(*who), *cool_down);
            }
            Call::Write { who, waits, ttl, is_fenced } => {
                self.write(&writer(*who), *waits, *ttl, *is_fenced);
            }
            Call::ExtendWriter { who, ttl } => {
                let (value, ms) = (writer(*who), ttl.to_string());
                let reply = self.eval(EXTEND, &["lock"], &[&value, &ms]);
                assert!(reply == ":1\r\n" || !self.has_writer(&value), "{reply}");
                if reply == ":1\r\n" {
                    let known = self.writer.as_ref().map_or(0, |(_, until)| *until);
                    self.writer = Some((value, self.after(*ttl).max(known)));
                }
            }
            Call::ReleaseWriter { who } => {
                let value = writer(*who);
                self.eval(RELEASE, &["lock"], &[&value]);
                self.writer = self.writer.take().filter(|(it, _)| *it != value);
            }
            other => self.interfere(other),
        }
        self.forget_ended();
    }

    /// Changes the keys as another program does.
    fn interfere(&mut self, call: &Call) {
        match call {
            Call::Delete(key) => {
                self.send(&["DEL", key]);
                match *key {
                    "lock" => {
                        self.writer = None;
                        self.readers.clear();
                    }
                    "readers" => self.readers.clear(),
                    _ => {}
                }
            }
            Call::Overwrite { ttl } => {
                self.send(&["SET", "lock", "foreign", "PX", &ttl.to_string()]);
                self.readers.clear();
                self.writer = Some(("foreign".to_owned(), self.after(*ttl)));
            }
            other => panic!("not a call of another program: {other:?}"),
        }
    }

    /// Checks that the lock key expires, and not before its last reader.
    fn check_keys(&self) {
        let Some((Kind::String(value), lock_expiry)) = self.key("lock") else { return };
        assert!(lock_expiry.is_some(), "the lock key never expires");
        let Some((readers, expiry)) = self.key("readers").filter(|_| value == READERS) else {
            return;
        };
        if let Kind::SortedSet(members) = readers {
            let last = members
                .values()
                .max()
                .map(|ms| (u64::try_from(*ms).expect("after 1970") + 1) * 1_000);
            assert!(lock_expiry >= last, "the lock key expires before its last reader");
        }
        assert_eq!(lock_expiry, expiry);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_and_writers_exclude_each_other(calls in prop::collection::vec(call(), 1..60)) {
        let mut lock = Lock::new();
        for call in &calls {
            lock.play(call);
            lock.check_keys();
        }
        // All keys have expired, except a counter.
        let counters = usize::from(lock.key("counter").is_some());
        lock.play(&Call::Wait(10_000_000));
        prop_assert!(lock.server.keys(lock.now).count() <= counters);
        lock.write("w0", true, 10, false);
        prop_assert!(lock.has_writer("w0"));
    }
}

#[test]
fn reader_in_its_last_millisecond_excludes_a_writer() {
    let mut lock = Lock::new();
    lock.read("a", "try", 10, false);
    lock.read("b", "try", 1_000, false);
    // The TTL of `a` ends 100 µs later, in this millisecond.
    lock.play(&Call::Wait(9_900));
    lock.release_reader("b", None);
    lock.write("w0", false, 10, false);
    assert!(!lock.has_writer("w0"), "the lock still has a reader");
    lock.play(&Call::Wait(2_000));
    lock.write("w0", false, 10, false);
    assert!(lock.has_writer("w0"));
}

#[test]
fn waiting_readers_go_first_despite_a_late_release() {
    let mut lock = Lock::new();
    lock.write("w0", false, 1_000, false);
    lock.read("a", "wait", 1_000, false);
    lock.play(&Call::ReleaseWriter { who: 0 });
    for _ in 0..2 {
        lock.write("w1", true, 1_000, false);
        assert!(!lock.has_writer("w1"), "a reader waits");
        lock.release_reader("b", None);
    }
    lock.read("a", "wait", 1_000, false);
    assert!(lock.has_reader("a"));
}

#[test]
fn second_reader_without_a_right_leaves_the_first_one() {
    for command in ["zadd", "zremrangebyscore", "pexpireat"] {
        let mut lock = Lock::new();
        lock.read("a", "try", 10, false);
        lock.server.configure(|config| config.forbidden.extend([command.to_owned()]));
        let keys = ["lock", "readers", "intent", "waiting"];
        let words = [&["EVAL", ACQUIRE_SHARED, "4"], &keys[..], &["b", "10", "try"]].concat();
        let reply = lock.send(&words);
        assert!(reply.starts_with("-ERR") && reply.contains("can't run this"), "{reply}");
        lock.server.configure(|config| config.forbidden.clear());
        lock.read("a", "extend", 5, false);
        lock.write("w0", false, 10, false);
        assert!(!lock.has_writer("w0"), "{command}: the lock still has a reader");
        lock.play(&Call::Wait(11_000));
        assert!(lock.key("lock").is_none(), "{command}");
    }
}

#[test]
fn only_reader_is_neither_released_nor_extended_by_another() {
    let mut lock = Lock::new();
    lock.read("a", "try", 10, false);
    lock.release_reader("b", None);
    lock.release_reader("b", Some(1_000));
    lock.read("b", "extend", 1_000, false);
    lock.write("w0", false, 10, false);
    assert!(lock.has_reader("a") && !lock.has_writer("w0"));
    lock.play(&Call::Wait(11_000));
    lock.write("w0", false, 10, false);
    assert!(lock.has_writer("w0"), "the lock has no reader any more");
}
