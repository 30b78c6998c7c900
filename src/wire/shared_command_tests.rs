//! Tests of the encoded commands of readers and writers.

use super::super::reply::answer;
use super::super::shared_lock::SharedKeys;
use super::tests::{Fixture, cool_down, expect, ms, until};
use super::*;
use crate::protocol::Vote;
use crate::wire::{Answer, Grant};

const KEYS: &str = "k#quorlock:readers:{k} k#quorlock:writer:{k} k#quorlock:waiting:{k}";

fn shared(is_reader: bool, waits: bool) -> Fixture {
    let keys = SharedKeys::for_key(b"k").expect("a key that can have readers");
    let keys = Box::leak(Box::new(keys));
    let (_, reservation) = keys.reservation(is_reader, 30, &Value::of(b"me"));
    let reservation = waits.then(|| &*Box::leak(Box::new(reservation)));
    let sharing = Some(Sharing { keys, is_reader, reservation, is_refused: false });
    Fixture { sharing, ..Fixture::keys(&["k"]) }
}

fn acquire(wants: ConflictDetails) -> Command {
    Command::Acquire { ttl: ms(9_000), wants, any: None }
}

#[test]
fn reader_acquires_extends_and_releases_by_script() {
    let (reader, caching) = (shared(true, true), "CLIENT CACHING YES");
    let script = format!("EVALSHA acquire_shared 4 k {KEYS} mine 9000 try 30 me");
    expect(&acquire(ConflictDetails::Nothing), &reader, true, &[&script], (0, 0, 0));
    expect(&acquire(ConflictDetails::Watch), &reader, false, &[&script], (0, 0, 0));
    expect(&acquire(ConflictDetails::Watch), &reader, true, &[caching, &script], (1, 0, 0));
    let script = format!("EVALSHA acquire_shared 4 k {KEYS} mine 9000 try");
    let once = shared(true, false);
    expect(&acquire(ConflictDetails::Nothing), &once, true, &[&script], (0, 0, 0));
    let script = format!("EVALSHA acquire_shared 4 k {KEYS} mine 8000 try");
    expect(&Command::Repair { until: until(8_000) }, &reader, true, &[&script], (0, 0, 0));
    // A reader's lease has no use for pushes, because each reader changes the key.
    let extend = Command::Extend { until: until(8_000), watches: true };
    let script = format!("EVALSHA acquire_shared 4 k {KEYS} mine 8000 extend");
    expect(&extend, &reader, true, &[&script], (0, 0, 0));
    let release = "EVALSHA release_shared 2 k k#quorlock:readers:{k} mine";
    expect(&Command::Release { cooling: None }, &reader, true, &[release], (0, 0, 0));
    let replace = format!("{release} nobody 500");
    expect(&cool_down(until(500)), &reader, true, &[&replace], (0, 0, 0));
    expect(&cool_down(until(0)), &reader, true, &[release], (0, 0, 0));
}

#[test]
fn reader_with_a_token_reads_the_counter() {
    let reader = Fixture { sharing: shared(true, false).sharing, ..Fixture::keys(&["k"]) };
    let reader = reader.fenced(None);
    let script = format!("EVALSHA acquire_shared 5 k {KEYS} k#quorlock:token:{{k}} mine 9000 try");
    expect(&acquire(ConflictDetails::Nothing), &reader, true, &[&script], (0, 0, 0));
    let script = format!("EVALSHA acquire_shared 4 k {KEYS} mine 8000 try");
    expect(&Command::Repair { until: until(8_000) }, &reader, true, &[&script], (0, 0, 0));
}

#[test]
fn writer_acquires_by_script_and_otherwise_acts_like_any_holder() {
    let (writer, caching) = (shared(false, true), "CLIENT CACHING YES");
    let script = format!("EVALSHA acquire_write 4 k {KEYS} 9000 30 me mine 9000");
    expect(&acquire(ConflictDetails::Nothing), &writer, true, &[&script], (0, 0, 0));
    let lines = [caching, "PTTL k", &script];
    expect(&acquire(ConflictDetails::Watch), &writer, true, &lines, (2, 0, 0));
    let script = format!("EVALSHA acquire_write 4 k {KEYS} 9000  mine 9000");
    let once = shared(false, false);
    expect(&acquire(ConflictDetails::Nothing), &once, true, &[&script], (0, 0, 0));
    let script = format!(
        "EVALSHA acquire_write_fenced 5 k k#quorlock:token:{{k}} {KEYS} 9000  7 60000 mine 9000"
    );
    expect(&acquire(ConflictDetails::Nothing), &once.fenced(None), true, &[&script], (0, 0, 0));
    let repair = Command::Repair { until: until(8_000) };
    expect(&repair, &writer, true, &["SET k mine NX PX 8000"], (0, 0, 0));
    let extend = Command::Extend { until: until(8_000), watches: false };
    expect(&extend, &writer, true, &["EVALSHA extend 1 k mine 8000"], (0, 0, 0));
    let release = ["DEL k#quorlock:writer:{k}", "EVALSHA release 1 k mine"];
    expect(&Command::Release { cooling: None }, &writer, true, &release, (1, 0, 0));
}

#[test]
fn replies_report_the_counter_and_remaining_readers() {
    let read = |request, wire: &str| {
        let reply = redis::parse_redis_value(wire.as_bytes()).expect("a well-formed reply");
        answer(request, &reply, &Value::of(b"v"))
    };
    let counter = read(RequestKind::Acquire, "*2\r\n+OK\r\n$1\r\n7\r\n");
    assert_eq!(counter, Answer::Granted(Grant { counter: Some(7), ..Grant::default() }));
    let released = [1, 2, 0, -1, 3].map(|reply| {
        match read(RequestKind::ReleaseShared, &format!(":{reply}\r\n")) {
            Answer::Granted(grant) => (Vote::Granted, grant.leaves_readers),
            other => (other.vote(), false),
        }
    });
    let [granted, missing, denied, failed] =
        [Vote::Granted, Vote::Missing, Vote::Denied, Vote::Failed].map(|vote| (vote, false));
    assert_eq!(released, [(Vote::Granted, true), granted, missing, denied, failed]);
}
