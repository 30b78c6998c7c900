//! What is written to a node, byte by byte, and which replies are announced.

use super::super::abilities::NativeDelete;
use super::super::counters::CounterKeys;
use super::super::script::sources;
use super::*;
use crate::wire::Answer;
use proptest::prelude::*;
use redis::Value as Reply;
use std::num::NonZeroU16;
use std::time::Duration;

const NOW: Time = Time::from_nanos(5_000_000_000);

/// The names of the scripts, in the order in which nodes are told them.
const SCRIPTS: [&str; 8] =
    ["acquire", "ACQUIRE", "draw", "extend", "EXTEND", "release", "RELEASE", "look"];

/// What claims are about: one key or a set, alone or with counters beside them.
#[derive(Debug)]
struct About {
    keys: Keys,
    value: Value,
    fence: Option<Counters>,
}

impl About {
    fn keys(names: &[&str]) -> Self {
        let keys = names.iter().map(|name| name.as_bytes().into()).collect();
        Self { keys: Keys::all(keys).expect("some keys"), value: Value::of(b"mine"), fence: None }
    }

    /// With counters that are asked for 7 at least; and the committed token, if there is one.
    fn fenced(self, token: Option<u64>) -> Self {
        let counters = CounterKeys::beside(&self.keys, ms(60_000)).expect("no braces");
        let fence = Counters::new(Arc::new(counters), 7);
        if let Some(token) = token {
            fence.draw(NOW);
            fence.commit(token, &[]);
        }
        Self { fence: Some(fence), ..self }
    }

    fn subject(&self) -> Subject<'_> {
        let node = NodeId::new(0);
        Subject { node, keys: &self.keys, value: &self.value, fence: self.fence.as_ref() }
    }
}

fn ms(ms: u64) -> Ttl {
    Ttl::from_duration(Duration::from_millis(ms)).expect("a good ttl")
}

fn until(ms: u64) -> Time {
    NOW.after(Duration::from_millis(ms))
}

/// The commands in these bytes: arrays of bulk strings, and nothing else.
fn parsed(mut bytes: &[u8]) -> Vec<Vec<String>> {
    fn number(bytes: &mut &[u8], mark: u8) -> usize {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a whole line");
        let line = std::str::from_utf8(&bytes[..end]).expect("digits");
        *bytes = &bytes[end + 2..];
        let digits = line.strip_prefix(mark as char).expect("its mark");
        digits.parse().expect("a number")
    }
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let words = (0..number(&mut bytes, b'*')).map(|_| {
            let length = number(&mut bytes, b'$');
            let (word, rest) = bytes.split_at(length);
            bytes = rest.strip_prefix(b"\r\n").expect("the end of a word");
            String::from_utf8(word.to_vec()).expect("text")
        });
        commands.push(words.collect());
    }
    commands
}

/// One command as people read it: scripts by their names.
fn shown(mut command: Vec<String>) -> String {
    if let [name, text, ..] = command.as_mut_slice() {
        let of = |source: &str| match name.as_str() {
            "EVAL" => source.to_owned(),
            _ => redis::Script::new(source).get_hash().to_owned(),
        };
        let place = sources().position(|source| *text == of(source));
        if let (Some(place), "EVAL" | "EVALSHA") = (place, name.as_str()) {
            *text = SCRIPTS[place].to_owned();
        }
    }
    command.join(" ")
}

fn written(command: &Command, about: &About, form: Form, tracks: bool) -> (Vec<u8>, ReplyShape) {
    written_where(command, about, form, Abilities { tracks, deletes: None })
}

fn written_where(
    command: &Command,
    about: &About,
    form: Form,
    can: Abilities,
) -> (Vec<u8>, ReplyShape) {
    // What stands in a pipeline before does not matter.
    let mut requests = Requests::default();
    requests.command("PING", 0).end();
    let before = requests.bytes().len();
    let shape = command.write(about.subject(), form, NOW, can, &mut requests);
    (requests.bytes()[before..].to_vec(), shape)
}

/// What is written, the script by its hash; and the places of verdict, ttl and holder.
#[track_caller]
fn expect(command: &Command, about: &About, tracks: bool, lines: &[&str], places: (u16, u16, u16)) {
    let (bytes, shape) = written(command, about, Form::Hash, tracks);
    let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
    assert_eq!(commands, lines, "{command:?}");
    let (verdict, ttl, holder) = (places.0, NonZeroU16::new(places.1), NonZeroU16::new(places.2));
    let len = u16::try_from(lines.len()).expect("few lines");
    let caching = lines.iter().rposition(|line| *line == "CLIENT CACHING YES");
    let watch = caching.map(|place| u16::try_from(place).expect("few lines"));
    let expected = ReplyShape { asked: shape.asked, len, verdict, ttl, holder, watch };
    assert_eq!(shape, expected, "{command:?}");
    let (bytes, by_source) = written(command, about, Form::Source, tracks);
    let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
    let lines: Vec<_> = lines.iter().map(|line| line.replace("EVALSHA", "EVAL")).collect();
    assert_eq!((commands, by_source), (lines, expected), "with its source: {command:?}");
}

#[test]
fn scripts_are_told_apart() {
    let all: Vec<_> = sources().collect();
    for (name, source) in SCRIPTS.iter().zip(&all) {
        let verb = match name.to_lowercase().as_str() {
            "acquire" => "-- Sets all keys",
            "draw" => "-- Sets one lock, and draws",
            "extend" => "-- Makes the remaining ttl",
            "release" => "-- Ends locks",
            _ => "-- Reads a lock",
        };
        assert!(source.contains(verb), "{name}");
        let is_fenced = source.contains("local function unfenced(KEYS, ARGV)");
        assert_eq!(is_fenced, name.chars().all(char::is_uppercase), "{name}");
    }
    assert_eq!(all.len(), SCRIPTS.len());
}

#[test]
fn one_key_is_acquired_without_a_script() {
    let (k, ttl) = (About::keys(&["k"]), ms(9_000));
    let (bytes, _) =
        written(&Command::Acquire { ttl, wants: Wants::Nothing }, &k, Form::Hash, true);
    let set = "*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nmine\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n9000\r\n";
    assert_eq!(bytes, set.as_bytes());
    let set = "SET k mine NX PX 9000";
    let (caching, pttl, get) = ("CLIENT CACHING YES", "PTTL k", "GETRANGE k 0 4200");
    for (wants, tracks, lines, ttl_at, holder_at) in [
        (Wants::Nothing, false, vec![set], 0, 0),
        (Wants::Nothing, true, vec![set], 0, 0),
        (Wants::Watch, false, vec![set, pttl], 1, 0),
        (Wants::Watch, true, vec![set, caching, pttl], 2, 0),
        (Wants::WatchAndHolder, false, vec![set, pttl, get], 1, 2),
        (Wants::WatchAndHolder, true, vec![set, caching, pttl, get], 2, 3),
    ] {
        expect(&Command::Acquire { ttl, wants }, &k, tracks, &lines, (0, ttl_at, holder_at));
    }
    // A token that is wanted later changes nothing for a repair: there is none to be kept.
    let repair = Command::Repair { until: until(8_000) };
    let set = ["SET k mine NX PX 8000"];
    expect(&repair, &k, true, &set, (0, 0, 0));
    expect(&repair, &About::keys(&["k"]).fenced(None), true, &set, (0, 0, 0));
}

#[test]
fn sets_and_fenced_keys_are_acquired_by_a_script() {
    let (ttl, ab) = (ms(9_000), About::keys(&["a", "b"]));
    let script = "EVALSHA acquire 2 a b mine 9000";
    let (caching, a, b) = ("CLIENT CACHING YES", "PTTL a", "PTTL b");
    for wants in [Wants::Nothing, Wants::Watch, Wants::WatchAndHolder] {
        let acquire = Command::Acquire { ttl, wants };
        expect(&acquire, &ab, false, &[script], (0, 0, 0));
        let watched = [caching, a, caching, b, script];
        let lines = if wants == Wants::Nothing { &watched[4..] } else { &watched[..] };
        expect(&acquire, &ab, true, lines, (u16::try_from(lines.len()).expect("few") - 1, 0, 0));
    }
    let fenced = About::keys(&["k"]).fenced(None);
    let script = "EVALSHA draw 2 k k#quorlock:token:{k} 7 60000 mine 9000";
    expect(&Command::Acquire { ttl, wants: Wants::Nothing }, &fenced, true, &[script], (0, 0, 0));
    let set =
        "EVALSHA ACQUIRE 4 a b a#quorlock:token:{a} b#quorlock:token:{b} 7 draw 60000 1 mine 9000";
    let fenced_set = About::keys(&["a", "b"]).fenced(None);
    expect(&Command::Acquire { ttl, wants: Wants::Nothing }, &fenced_set, true, &[set], (0, 0, 0));
    let lines = [caching, "PTTL k", script];
    expect(&Command::Acquire { ttl, wants: Wants::Watch }, &fenced, true, &lines, (2, 0, 0));
    let repair = Command::Repair { until: until(8_000) };
    expect(&repair, &ab, true, &["EVALSHA acquire 2 a b mine 8000"], (0, 0, 0));
    let script = "EVALSHA ACQUIRE 2 k k#quorlock:token:{k} 9 keep 60000 1 mine 8000";
    expect(&repair, &About::keys(&["k"]).fenced(Some(9)), true, &[script], (0, 0, 0));
}

#[test]
fn extensions_are_watched_from_their_end_on() {
    let (k, ab) = (About::keys(&["k"]), About::keys(&["a", "b"]));
    let [quiet, watched] =
        [false, true].map(|watches| Command::Extend { until: until(8_000), watches });
    let (caching, script) = ("CLIENT CACHING YES", "EVALSHA extend 1 k mine 8000");
    expect(&quiet, &k, true, &[script], (0, 0, 0));
    expect(&watched, &k, false, &[script], (0, 0, 0));
    expect(&watched, &k, true, &[script, caching, "PTTL k"], (0, 0, 0));
    let script = "EVALSHA extend 2 a b mine 8000";
    expect(&watched, &ab, true, &[script, caching, "PTTL a", caching, "PTTL b"], (0, 0, 0));
    let uncommitted = About::keys(&["k"]).fenced(None);
    expect(&quiet, &uncommitted, true, &["EVALSHA extend 1 k mine 8000"], (0, 0, 0));
    let fenced = About::keys(&["k"]).fenced(Some(9));
    let script = "EVALSHA EXTEND 2 k k#quorlock:token:{k} 9 keep 60000 -1 mine 8000";
    expect(&watched, &fenced, true, &[script, caching, "PTTL k"], (0, 0, 0));
    let script = "EVALSHA EXTEND 2 k k#quorlock:token:{k} 12 keep 60000 -1 mine 1";
    expect(&Command::Raise { token: 12 }, &uncommitted, true, &[script], (0, 0, 0));
}

fn cool_down(until: Time) -> Command {
    let cooling = Some(Arc::new(CoolDown { value: Value::of(b"nobody"), until }));
    Command::Release { cooling }
}

#[test]
fn locks_are_ended_by_one_script() {
    let (k, fenced) = (About::keys(&["k"]), || About::keys(&["k"]).fenced(None));
    let adopt = Command::Adopt { ttl: ms(9_000), from: Arc::new(Value::of(b"theirs")) };
    expect(&adopt, &k, true, &["EVALSHA release 1 k theirs mine 9000"], (0, 0, 0));
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 7 draw 60000 1 theirs mine 9000";
    expect(&adopt, &fenced(), true, &[script], (0, 0, 0));

    let release = Command::Release { cooling: None };
    expect(&release, &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&release, &fenced(), true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 9 try 60000 1 mine";
    expect(&release, &About::keys(&["k"]).fenced(Some(9)), true, &[script], (0, 0, 0));
    // The counter stands at the hint at the least.
    let even = About::keys(&["k"]).fenced(Some(7));
    expect(&release, &even, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&release, &About::keys(&["b", "a"]), true, &["EVALSHA release 2 a b mine"], (0, 0, 0));

    let swap = "EVALSHA release 1 k mine nobody 500";
    expect(&cool_down(until(500)), &k, true, &[swap], (0, 0, 0));
    // A counter outlives by half of its ttl what stands in the lock's place.
    let script = "EVALSHA RELEASE 2 k k#quorlock:token:{k} 7 try 60000 1 mine nobody 31000";
    expect(&cool_down(until(31_000)), &even, true, &[script], (0, 0, 0));
    expect(&cool_down(NOW), &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::ForceDelete, &k, true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::ForceDelete, &fenced(), true, &["EVALSHA release 1 k mine"], (0, 0, 0));
    expect(&Command::Look, &k, true, &["EVALSHA look 1 k"], (0, 0, 0));
}

#[test]
fn one_key_is_deleted_by_a_command_of_the_servers_own_where_it_has_one() {
    let release = || Command::Release { cooling: None };
    let [one, two] = [&["k"][..], &["a", "b"]].map(About::keys);
    let fenced = |token| About::keys(&["k"]).fenced(Some(token));
    for (deletes, line) in
        [(NativeDelete::DelIfEq, "DELIFEQ k mine"), (NativeDelete::DelEx, "DELEX k IFEQ mine")]
    {
        let can = Abilities { tracks: true, deletes: Some(deletes) };
        let first = |command: &Command, about: &About, form| {
            let (bytes, shape) = written_where(command, about, form, can);
            let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
            let [command] = commands.as_slice() else { panic!("{commands:?}") };
            (command.clone(), shape.asked)
        };
        let native = (line.to_owned(), Asked::Delete);
        assert_eq!(first(&release(), &one, Form::Native), native);
        assert_eq!(first(&Command::ForceDelete, &one, Form::Native), native);
        assert_eq!(first(&release(), &fenced(7), Form::Native), native);
        for (command, about, form) in [
            (&release(), &one, Form::Hash),
            (&release(), &two, Form::Native),
            (&release(), &fenced(9), Form::Native),
            (&cool_down(until(500)), &one, Form::Native),
        ] {
            let (script, asked) = first(command, about, form);
            assert!(script.starts_with("EVALSHA") && asked == Asked::Release, "{script}");
        }
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let other = || Arc::new(Value::of(b"other"));
    let wants = prop_oneof![Just(Wants::Nothing), Just(Wants::Watch), Just(Wants::WatchAndHolder)];
    let cooling = move |ms| Arc::new(CoolDown { value: Value::of(b"nobody"), until: until(ms) });
    prop_oneof![
        wants.prop_map(|wants| Command::Acquire { ttl: ms(9_000), wants }),
        Just(Command::Adopt { ttl: ms(9_000), from: other() }),
        Just(Command::Raise { token: 12 }),
        any::<bool>().prop_map(|watches| Command::Extend { until: until(8_000), watches }),
        Just(Command::Repair { until: until(8_000) }),
        proptest::option::of((0..9_u64).prop_map(cooling))
            .prop_map(|cooling| Command::Release { cooling }),
        Just(Command::Look),
        Just(Command::ForceDelete),
    ]
}

fn any_about() -> impl Strategy<Value = About> {
    let token = proptest::option::of(proptest::option::of(1..99_u64));
    (1..4_usize, token).prop_map(|(keys, token)| {
        let about = About::keys(&["a", "b", "c"][..keys]);
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
    /// Which command says what is told by what is written: `SET` or a script is what matters, and after
    /// a `SET`, `PTTL` and `GET` are asked for the sake of what is in the way. Without either, `PTTL` is.
    #[test]
    fn replies_are_read_where_their_commands_stand_and_nowhere_else(
        command in any_command(), about in any_about(), tracks: bool, by_source: bool,
        replies in proptest::collection::vec(any_reply(), 12), others in any_reply(),
    ) {
        let form = if by_source { Form::Source } else { Form::Hash };
        let (bytes, shape) = written(&command, &about, form, tracks);
        let commands = parsed(&bytes);
        let place = |names: &[&str]| commands.iter().position(|it| names.contains(&it[0].as_str()));
        let verdict = place(&["SET", "EVAL", "EVALSHA"]).or_else(|| place(&["PTTL"]));
        let verdict = verdict.expect("a command that matters");
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
        prop_assert_eq!(&shape.read(&replies, &mine), &read, "looked past its replies");
        let watch = shape.watch.map(usize::from);
        let read_places = [Some(verdict), told(shape.ttl), told(shape.holder), watch];
        let mut changed = own.to_vec();
        for (place, reply) in changed.iter_mut().enumerate() {
            if !read_places.contains(&Some(place)) {
                *reply = others.clone();
            }
        }
        prop_assert_eq!(&shape.read(&changed, &mine), &read, "looked at what says nothing");
        let cut = shape.read(&own[..verdict], &mine);
        prop_assert!(matches!(cut, Answer::Failed(_)), "{:?} without a verdict", cut);
    }

    #[test]
    fn a_key_that_is_extended_or_set_anew_stands_until_then(
        now in 0..u64::MAX / 2, left in 0..Duration::from_hours(1).as_nanos(),
    ) {
        let (now, left) = (Time::from_nanos(now), Duration::from_nanos_u128(left));
        let until = now.after(left);
        for command in [Command::Extend { until, watches: false }, Command::Repair { until }] {
            let stands_until = now.after(command.lasting(now).expect("it sets").as_duration());
            prop_assert!(stands_until >= until, "{command:?} ends early");
            prop_assert!(stands_until <= until.after(Duration::from_millis(1)));
        }
    }
}

#[test]
fn words_that_are_always_the_same_are_written_as_all_others() {
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
