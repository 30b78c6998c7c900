//! Tests of the encoded commands and their reply shapes.

use super::super::counters::CounterKeys;
use super::super::script::sources;
use super::*;
use crate::wire::Answer;
use proptest::prelude::*;
use redis::Value as Reply;
use std::num::NonZeroU16;
use std::time::Duration;

const NOW: Time = Time::from_nanos(5_000_000_000);

/// Names of the scripts with a part of their comments, in the order of `SCRIPT LOAD`. Upper case marks the fenced variant.
const SCRIPTS: [(&str, &str); 15] = [
    ("acquire", "-- Sets all keys"),
    ("ACQUIRE", "-- Sets all keys"),
    ("acquire_fenced", "-- Sets one key"),
    ("acquire_any", "-- Sets the first of several keys"),
    ("extend", "-- Raises the TTL"),
    ("EXTEND", "-- Raises the TTL"),
    ("release", "-- Deletes each key"),
    ("RELEASE", "-- Deletes each key"),
    ("release_any", "-- Deletes the key"),
    ("read", "-- Reads value"),
    ("acquire_shared", "-- Adds a reader"),
    ("acquire_write", "-- Sets all keys"),
    ("acquire_write_fenced", "-- Sets one key"),
    ("release_shared", "-- Removes a reader"),
    ("period", "-- Compares"),
];

#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) keys: Keys,
    pub(super) value: Value,
    pub(super) fence: Option<Counters>,
    pub(super) sharing: Option<Sharing<'static>>,
}

impl Fixture {
    pub(super) fn keys(names: &[&str]) -> Self {
        let keys = names.iter().map(|name| name.as_bytes().into()).collect();
        let (keys, value) = (Keys::all(keys).expect("some keys"), Value::of(b"mine"));
        Self { keys, value, fence: None, sharing: None }
    }

    /// Adds fencing counters whose minimum after an increment is 7. Commits `token`, if given.
    pub(super) fn fenced(self, token: Option<u64>) -> Self {
        let counters =
            CounterKeys::for_keys(&self.keys, ms(60_000)).expect("keys that can have counters");
        let fence = Counters::new(Arc::new(counters), 7);
        if let Some(token) = token {
            fence.increment(NOW);
            fence.commit(token, &[]);
        }
        Self { fence: Some(fence), ..self }
    }

    fn subject(&self) -> CommandTarget<'_> {
        let (keys, value, fence) = (&self.keys, &self.value, self.fence.as_ref());
        CommandTarget { node: NodeId::new(0), keys, value, fence, sharing: self.sharing }
    }
}

pub(super) fn ms(ms: u64) -> Ttl {
    Ttl::from_duration(Duration::from_millis(ms)).expect("a good ttl")
}

pub(super) fn until(ms: u64) -> Time {
    NOW.after(Duration::from_millis(ms))
}

pub(super) fn parsed(mut bytes: &[u8]) -> Vec<Vec<String>> {
    fn number(bytes: &mut &[u8], mark: u8) -> usize {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a whole line");
        let line = std::str::from_utf8(&bytes[..end]).expect("digits");
        *bytes = &bytes[end + 2..];
        let digits = line.strip_prefix(mark as char).expect("the type byte");
        digits.parse().expect("a number")
    }
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let words = (0..number(&mut bytes, b'*')).map(|_| {
            let length = number(&mut bytes, b'$');
            let (word, rest) = bytes.split_at(length);
            bytes = rest.strip_prefix(b"\r\n").expect("the end of a string");
            String::from_utf8(word.to_vec()).expect("text")
        });
        commands.push(words.collect());
    }
    commands
}

/// Formats a command, with a script's name in place of its source or hash.
pub(super) fn shown(mut command: Vec<String>) -> String {
    if let [name, text, ..] = command.as_mut_slice() {
        let of = |source: &str| match name.as_str() {
            "EVAL" => source.to_owned(),
            _ => redis::Script::new(source).get_hash().to_owned(),
        };
        let place = sources().position(|source| *text == of(source));
        if let (Some(place), "EVAL" | "EVALSHA") = (place, name.as_str()) {
            *text = SCRIPTS[place].0.to_owned();
        }
    }
    command.join(" ")
}

fn acquire(ttl: Ttl, wants: ConflictDetails) -> Command {
    Command::Acquire { ttl, wants, any: None }
}

fn written(command: &Command, about: &Fixture, form: Form, tracks: bool) -> (Vec<u8>, ReplyShape) {
    let can = Capabilities { tracks, ..Capabilities::default() };
    written_where(command, about, form, can)
}

pub(super) fn written_where(
    command: &Command,
    about: &Fixture,
    form: Form,
    can: Capabilities,
) -> (Vec<u8>, ReplyShape) {
    // A preceding command must not affect the reply shape.
    let mut requests = Requests::default();
    requests.command("PING", 0).end();
    let before = requests.bytes().len();
    let shape = command.write(about.subject(), form, NOW, can, &mut requests);
    (requests.bytes()[before..].to_vec(), shape)
}

/// Asserts that `command` is encoded as `lines`, both with `EVALSHA` and with `EVAL`. `places` contains the expected
/// positions of the replies with the vote, the TTL and the holder.
#[track_caller]
pub(super) fn expect(
    command: &Command,
    about: &Fixture,
    tracks: bool,
    lines: &[&str],
    places: (u16, u16, u16),
) {
    let (bytes, shape) = written(command, about, Form::Hash, tracks);
    let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
    assert_eq!(commands, lines, "{command:?}");
    let (verdict, ttl, holder) = (places.0, NonZeroU16::new(places.1), NonZeroU16::new(places.2));
    let len = u16::try_from(lines.len()).expect("few lines");
    let caching = lines.iter().rposition(|line| *line == "CLIENT CACHING YES");
    let watch = caching.map(|place| u16::try_from(place).expect("few lines"));
    let expected = ReplyShape { request: shape.request, len, verdict, ttl, holder, watch };
    assert_eq!(shape, expected, "{command:?}");
    let (bytes, by_source) = written(command, about, Form::Source, tracks);
    let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
    let lines: Vec<_> = lines.iter().map(|line| line.replace("EVALSHA", "EVAL")).collect();
    assert_eq!((commands, by_source), (lines, expected), "EVAL form: {command:?}");
}

#[test]
fn script_names_match_their_sources() {
    let all: Vec<_> = sources().collect();
    for ((name, verb), source) in SCRIPTS.iter().zip(&all) {
        assert!(source.contains(verb), "{name}");
        let is_fenced = source.contains("local function unfenced(KEYS, ARGV)");
        assert_eq!(is_fenced, name.chars().all(char::is_uppercase), "{name}");
    }
    assert_eq!(all.len(), SCRIPTS.len());
}

#[test]
fn single_key_is_acquired_without_script() {
    let (k, ttl) = (Fixture::keys(&["k"]), ms(9_000));
    let (bytes, _) = written(&acquire(ttl, ConflictDetails::Nothing), &k, Form::Hash, true);
    let set = "*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nmine\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n9000\r\n";
    assert_eq!(bytes, set.as_bytes());
    let set = "SET k mine NX PX 9000";
    let (caching, pttl, get) = ("CLIENT CACHING YES", "PTTL k", "GETRANGE k 0 4200");
    for (wants, tracks, lines, ttl_at, holder_at) in [
        (ConflictDetails::Nothing, false, vec![set], 0, 0),
        (ConflictDetails::Nothing, true, vec![set], 0, 0),
        (ConflictDetails::Watch, false, vec![set, pttl], 1, 0),
        (ConflictDetails::Watch, true, vec![set, caching, pttl], 2, 0),
        (ConflictDetails::WatchAndHolder, false, vec![set, pttl, get], 1, 2),
        (ConflictDetails::WatchAndHolder, true, vec![set, caching, pttl, get], 2, 3),
    ] {
        expect(&acquire(ttl, wants), &k, tracks, &lines, (0, ttl_at, holder_at));
    }
    // A repair does not update the counters before a token is committed.
    let repair = Command::Repair { until: until(8_000) };
    let set = ["SET k mine NX PX 8000"];
    expect(&repair, &k, true, &set, (0, 0, 0));
    expect(&repair, &Fixture::keys(&["k"]).fenced(None), true, &set, (0, 0, 0));
}

#[test]
fn multiple_and_fenced_keys_are_acquired_by_script() {
    let (ttl, ab) = (ms(9_000), Fixture::keys(&["a", "b"]));
    let script = "EVALSHA acquire 2 a b mine 9000";
    let (caching, a, b) = ("CLIENT CACHING YES", "PTTL a", "PTTL b");
    for wants in [ConflictDetails::Nothing, ConflictDetails::Watch, ConflictDetails::WatchAndHolder]
    {
        let acquire = acquire(ttl, wants);
        expect(&acquire, &ab, false, &[script], (0, 0, 0));
        let watched = [caching, a, caching, b, script];
        let lines = if wants == ConflictDetails::Nothing { &watched[4..] } else { &watched[..] };
        expect(&acquire, &ab, true, lines, (u16::try_from(lines.len()).expect("few") - 1, 0, 0));
    }
    let fenced = Fixture::keys(&["k"]).fenced(None);
    let script = "EVALSHA acquire_fenced 2 k k#quorlock:token:{k} 7 60000 mine 9000";
    expect(&acquire(ttl, ConflictDetails::Nothing), &fenced, true, &[script], (0, 0, 0));
    let set =
        "EVALSHA ACQUIRE 4 a b a#quorlock:token:{a} b#quorlock:token:{b} 7 incr 60000 mine 9000";
    let fenced_set = Fixture::keys(&["a", "b"]).fenced(None);
    expect(&acquire(ttl, ConflictDetails::Nothing), &fenced_set, true, &[set], (0, 0, 0));
    let lines = [caching, "PTTL k", script];
    expect(&acquire(ttl, ConflictDetails::Watch), &fenced, true, &lines, (2, 0, 0));
    let repair = Command::Repair { until: until(8_000) };
    expect(&repair, &ab, true, &["EVALSHA acquire 2 a b mine 8000"], (0, 0, 0));
    let script = "EVALSHA ACQUIRE 2 k k#quorlock:token:{k} 9 touch 60000 mine 8000";
    expect(&repair, &Fixture::keys(&["k"]).fenced(Some(9)), true, &[script], (0, 0, 0));
}

#[test]
fn extension_subscribes_after_its_script() {
    let (k, ab) = (Fixture::keys(&["k"]), Fixture::keys(&["a", "b"]));
    let [quiet, watched] =
        [false, true].map(|watches| Command::Extend { until: until(8_000), watches });
    let (caching, script) = ("CLIENT CACHING YES", "EVALSHA extend 1 k mine 8000");
    expect(&quiet, &k, true, &[script], (0, 0, 0));
    expect(&watched, &k, false, &[script], (0, 0, 0));
    expect(&watched, &k, true, &[script, caching, "PTTL k"], (0, 0, 0));
    let script = "EVALSHA extend 2 a b mine 8000";
    expect(&watched, &ab, true, &[script, caching, "PTTL a", caching, "PTTL b"], (0, 0, 0));
    let uncommitted = Fixture::keys(&["k"]).fenced(None);
    expect(&quiet, &uncommitted, true, &["EVALSHA extend 1 k mine 8000"], (0, 0, 0));
    let fenced = Fixture::keys(&["k"]).fenced(Some(9));
    let script = "EVALSHA EXTEND 2 k k#quorlock:token:{k} 9 touch 60000 mine 8000";
    expect(&watched, &fenced, true, &[script, caching, "PTTL k"], (0, 0, 0));
    let script = "EVALSHA EXTEND 2 k k#quorlock:token:{k} 12 touch 60000 mine 1";
    expect(&Command::ConfirmToken { token: 12 }, &uncommitted, true, &[script], (0, 0, 0));
}

pub(super) fn cool_down(until: Time) -> Command {
    let cooling = Some(Arc::new(CoolDown { value: Value::of(b"nobody"), until }));
    Command::Release { cooling }
}

#[test]
fn adopt_release_and_force_delete_use_the_release_script() {
    let (k, fenced) = (Fixture::keys(&["k"]), || Fixture::keys(&["k"]).fenced(None));
    let adopt = Command::Adopt { ttl: ms(9_000), from: Arc::new(Value::of(b"theirs")) };
    expect(&adopt, &k, true, &["EVALSHA release 1 k theirs mine 9000"], (0, 0, 0));
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 7 incr 60000 theirs mine 9000";
    expect(&adopt, &fenced(), true, &[script], (0, 0, 0));

    let release = Command::Release { cooling: None };
    expect(&release, &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&release, &fenced(), true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 9 try 60000 mine";
    expect(&release, &Fixture::keys(&["k"]).fenced(Some(9)), true, &[script], (0, 0, 0));
    // The token equals the hint, so the counter is already high enough.
    let even = Fixture::keys(&["k"]).fenced(Some(7));
    expect(&release, &even, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&release, &Fixture::keys(&["b", "a"]), true, &["EVALSHA release 2 a b mine"], (0, 0, 0));

    let swap = "EVALSHA release 1 k mine nobody 500";
    expect(&cool_down(until(500)), &k, true, &[swap], (0, 0, 0));
    // The counter must outlive the cool-down value by half of the counter's TTL.
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 7 try 60000 mine nobody 31000";
    expect(&cool_down(until(31_000)), &even, true, &[script], (0, 0, 0));
    expect(&cool_down(NOW), &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::ForceDelete, &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::ForceDelete, &fenced(), true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::Read, &k, true, &["EVALSHA read 1 k"], (0, 0, 0));
    let observe = "EVALSHA read 2 k k#quorlock:token:{k}";
    expect(&Command::Observe, &fenced(), false, &[observe], (0, 0, 0));
    let watched = ["CLIENT CACHING YES", "PTTL k", observe];
    expect(&Command::Observe, &fenced(), true, &watched, (2, 0, 0));
}

fn any_command() -> impl Strategy<Value = Command> {
    let other = || Arc::new(Value::of(b"other"));
    let wants = prop_oneof![
        Just(ConflictDetails::Nothing),
        Just(ConflictDetails::Watch),
        Just(ConflictDetails::WatchAndHolder)
    ];
    let cooling = move |ms| Arc::new(CoolDown { value: Value::of(b"nobody"), until: until(ms) });
    prop_oneof![
        wants.prop_map(|wants| acquire(ms(9_000), wants)),
        Just(Command::Adopt { ttl: ms(9_000), from: other() }),
        Just(Command::ConfirmToken { token: 12 }),
        any::<bool>().prop_map(|watches| Command::Extend { until: until(8_000), watches }),
        Just(Command::Repair { until: until(8_000) }),
        proptest::option::of((0..9_u64).prop_map(cooling))
            .prop_map(|cooling| Command::Release { cooling }),
        Just(Command::Read),
        Just(Command::Observe),
        Just(Command::ForceDelete),
    ]
}

fn any_about() -> impl Strategy<Value = Fixture> {
    let token = proptest::option::of(proptest::option::of(1..99_u64));
    (1..4_usize, token).prop_map(|(keys, token)| {
        let about = Fixture::keys(&["a", "b", "c"][..keys]);
        if let Some(token) = token { about.fenced(token) } else { about }
    })
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let bulk = |text: &str| Reply::BulkString(text.as_bytes().to_vec());
    let error = redis::parse_redis_value(b"-BUSY x\r\n").expect("an error reply");
    prop_oneof![
        4 => Just(Reply::Nil),
        2 => Just(Reply::Okay),
        4 => (-4..100_i64).prop_map(Reply::Int),
        2 => Just(bulk("held")),
        1 => Just(error),
        1 => Just(Reply::Array(vec![Reply::Int(70), Reply::Int(1), bulk("held")])),
        1 => Just(Reply::Array(vec![Reply::Nil, bulk("12")])),
    ]
}

proptest! {
    /// Checks that the reply shape points to the replies that matter. The expected positions are derived from the
    /// encoded commands. The verdict is the reply to `SET` or to the script, otherwise to `PTTL`. After a `SET`, the
    /// replies to `PTTL` and `GETRANGE` describe the conflict.
    #[test]
    fn only_relevant_replies_affect_the_answer(
        command in any_command(), about in any_about(), tracks: bool, by_source: bool,
        replies in proptest::collection::vec(any_reply(), 12), others in any_reply(),
    ) {
        let form = if by_source { Form::Source } else { Form::Hash };
        let (bytes, shape) = written(&command, &about, form, tracks);
        let commands = parsed(&bytes);
        let place = |names: &[&str]| commands.iter().position(|it| names.contains(&it[0].as_str()));
        let verdict = place(&["SET", "EVAL", "EVALSHA"]).or_else(|| place(&["PTTL"]));
        let verdict = verdict.expect("a relevant command");
        let is_plain = commands[verdict][0] == "SET";
        let beside = |name| place(&[name]).filter(|_| is_plain).filter(|place| *place > 0);
        let told = |place: Option<NonZeroU16>| place.map(|place| usize::from(place.get()));
        prop_assert_eq!(shape.len(), commands.len());
        prop_assert_eq!(
            (usize::from(shape.verdict), told(shape.ttl), told(shape.holder)),
            (verdict, beside("PTTL"), beside("GETRANGE"))
        );
        let (own, _) = replies.split_at(commands.len());
        let mine = Value::of(b"mine");
        let read = shape.read(own, &mine);
        prop_assert_eq!(&shape.read(&replies, &mine), &read, "later replies matter");
        let watch = shape.watch.map(usize::from);
        let read_places = [Some(verdict), told(shape.ttl), told(shape.holder), watch];
        let mut changed = own.to_vec();
        for (place, reply) in changed.iter_mut().enumerate() {
            if !read_places.contains(&Some(place)) {
                *reply = others.clone();
            }
        }
        prop_assert_eq!(&shape.read(&changed, &mine), &read, "irrelevant replies matter");
        let cut = shape.read(&own[..verdict], &mine);
        prop_assert!(matches!(cut, Answer::Failed(_)), "{:?} without a verdict", cut);
    }

    #[test]
    fn extended_or_repaired_key_expires_at_until_or_later(
        now in 0..u64::MAX / 2, left in 0..Duration::from_hours(1).as_nanos(),
    ) {
        let (now, left) = (Time::from_nanos(now), Duration::from_nanos_u128(left));
        let until = now.after(left);
        for command in [Command::Extend { until, watches: false }, Command::Repair { until }] {
            let stands_until = now.after(command.key_ttl(now).expect("a command with a TTL").as_duration());
            prop_assert!(stands_until >= until, "{command:?} expires early");
            prop_assert!(stands_until <= until.after(Duration::from_millis(1)));
        }
    }
}

#[test]
fn precomputed_words_match_encoded_arguments() {
    let all: [(_, &[&str]); 5] = [
        (TIME, &["TIME"]),
        (SET, &["SET"]),
        (NX_PX, &["NX", "PX"]),
        (PTTL, &["PTTL"]),
        (CLIENT_CACHING_YES, &["CLIENT", "CACHING", "YES"]),
    ];
    for (words, each) in all {
        let (mut together, mut singly) = (Requests::default(), Requests::default());
        together.command("NAME", each.len()).words(words).end();
        singly.command("NAME", each.len()).args(each).end();
        assert_eq!(together.bytes(), singly.bytes(), "{each:?}");
        together.command_of(words, 1).arg("last").end();
        singly.command(each[0], each.len()).args(&each[1..]).arg("last").end();
        assert_eq!((together.bytes(), together.len()), (singly.bytes(), singly.len()), "{each:?}");
    }
}
