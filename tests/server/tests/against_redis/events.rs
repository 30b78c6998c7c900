//! Tests of events that no command causes: the expiry of keys by the server itself, and the end of loading.

use crate::frames;
use crate::real::{Real, connect, encode, read_frame};
use kit::eventually;
use quorlock_test::Trouble;
use quorlock_test::internals::{Config, Fsync, Output, Server, Version};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(20);

fn pipeline(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>())).collect()
}

fn frames_in(outputs: &[Output]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for output in outputs {
        let Output::Bytes(_, mut bytes) = output.clone() else {
            panic!("the model closed the connection")
        };
        while !bytes.is_empty() {
            let rest = bytes.split_off(frames::length(&bytes));
            frames.push(std::mem::replace(&mut bytes, rest));
        }
    }
    frames
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| read_frame(stream).expect("a reply")).collect()
}

#[test]
fn expired_keys_are_removed_and_invalidated_by_both() {
    let mut real = Real::start(None);
    // Redis 8 does not expire keys while its clock is stopped, and Valkey 9 has its own clock.
    if real.version() >= Version::redis(7, 2, 0) {
        eprintln!("skipped: this server expires no keys while its clock is stopped");
        return;
    }
    let second = real.clock().now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let now = UNIX_EPOCH + Duration::from_secs(second + 1);
    real.clock().stop_at(now);
    let now_us = u64::try_from(now.duration_since(UNIX_EPOCH).expect("later").as_micros());
    let now_us = now_us.expect("fits in 64 bits");
    let config = Config { first_client_id: real.next_client_id(), ..Config::default() };
    let mut model = Server::new(config, now_us);
    let (mut stream, conn) = (connect(real.addr()), model.connect());
    let mut lines = vec!["HELLO 3".to_owned(), "CLIENT TRACKING ON OPTIN NOLOOP".to_owned()];
    for ttl in 1..=40 {
        lines.push(format!("SET k{ttl} v PX {ttl}"));
        lines.push("CLIENT CACHING YES".to_owned());
        lines.push(format!("PTTL k{ttl}"));
    }
    let request = pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    stream.write_all(&request).expect("the connection is open");
    let expected = frames_in(&model.receive(conn, &request, now_us));
    let got = read(&mut stream, expected.len());
    assert_eq!(got[1..], expected[1..]);

    real.clock().jump(Duration::from_millis(20));
    assert_eq!(real.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]), "+OK\r\n");
    let pushed: BTreeSet<_> = frames_in(&model.expire(now_us + 20_000)).into_iter().collect();
    assert_eq!(pushed.len(), 19, "the key with a ttl of 20 ms has not expired yet");
    let left = format!(":{}\r\n", model.keys(now_us + 20_000).count());
    eventually(SOON, "the server removes the expired keys", || real.ask(&["DBSIZE"]) == left);
    let got: BTreeSet<_> = read(&mut stream, pushed.len()).into_iter().collect();
    assert_eq!(got, pushed, "the same invalidations, in any order");
    let request = pipeline(&["PTTL k19", "PTTL k20", "PTTL k21"]);
    stream.write_all(&request).expect("the connection is open");
    let expected = frames_in(&model.receive(conn, &request, now_us + 20_000));
    assert_eq!(read(&mut stream, 3), expected);
}

#[test]
fn loading_replies_equal_those_of_a_loading_server() {
    // Loading takes about 3 s. The server replies to clients after every 1024 keys.
    let setup = kit::Server::builder().durable().clock().arg("--key-load-delay").arg("150");
    let server = setup.start();
    server.cmd(&["EVAL", "for i = 1, 20000 do redis.call('SET', 'k' .. i, 'x') end", "0"]);
    let at = 2_000_000_000_000_001;
    server.clock().stop_at(UNIX_EPOCH + Duration::from_micros(at));
    let request = pipeline(&[
        "SET a v NX PX 100",
        "CLIENT TRACKING ON OPTIN NOLOOP",
        "CLIENT CACHING YES",
        "PTTL a",
        "GET",
        "GET a",
        "DEL a",
        "FLUSHALL",
        "PING",
        "EVALSHA 0123456789012345678901234567890123456789 0",
        "EVAL return 0",
        "SCRIPT LOAD x",
        "SELECT 0",
        "CLIENT KILL ID 99999",
        "CONFIG GET appendfsync",
        "PUBSUB NUMSUB __sentinel__:hello",
        "FOO",
    ]);
    let config = Config { appendonly: true, appendfsync: Fsync::Always, ..Config::default() };
    let mut model = Server::new(config, at);
    model.set_trouble(Some(Trouble::Loading));
    let conn = model.connect();
    let expected = frames_in(&model.receive(conn, &request, at));
    assert!(expected.iter().filter(|frame| frame.starts_with(b"-LOADING")).count() > 5);

    server.kill();
    let got = std::thread::scope(|scope| {
        scope.spawn(|| server.restart());
        let mut stream = None;
        eventually(SOON, "the server listens", || {
            stream = TcpStream::connect(server.addr()).ok();
            stream.is_some()
        });
        let mut stream = stream.expect("the server listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        stream.write_all(&request).expect("the connection is open");
        read(&mut stream, expected.len())
    });
    for (expected, got) in expected.iter().zip(&got) {
        let is_same = frames::is_same(expected, got, false);
        assert!(is_same, "{} but {}", frames::shown(expected), frames::shown(got));
    }
}
