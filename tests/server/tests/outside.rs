//! Tests of the methods of the model that no command calls: expiry, changes by other programs, restarts and inspection.

use quorlock_test::Trouble;
use quorlock_test::internals::{Config, ConnId, Kind, Output, Server};
use std::iter;

const NOW: u64 = 1_000_000_000_300;
const MS: u64 = 1_000;

fn send(server: &mut Server, conn: ConnId, line: &str, now: u64) -> Vec<Output> {
    server.receive(conn, format!("{line}\r\n").as_bytes(), now)
}

fn text(output: &Output) -> (ConnId, String) {
    match output {
        Output::Bytes(to, bytes) => (*to, String::from_utf8_lossy(bytes).into_owned()),
        Output::Close(of) => (*of, "closed".to_owned()),
    }
}

/// Returns a server and two connections. The first one tracks the keys `a` and `b`, which expire after 10 ms and 20 ms.
fn watched() -> (Server, [ConnId; 2]) {
    let mut server = Server::new(Config::default(), NOW);
    let conns = [server.connect(), server.connect()];
    for (key, ttl) in [("a", 10), ("b", 20), ("c", 30)] {
        send(&mut server, conns[1], &format!("SET {key} v PX {ttl}"), NOW);
    }
    send(&mut server, conns[0], "HELLO 3\r\nCLIENT TRACKING ON OPTIN NOLOOP", NOW);
    for key in ["a", "b"] {
        send(&mut server, conns[0], &format!("CLIENT CACHING YES\r\nPTTL {key}"), NOW);
    }
    (server, conns)
}

fn keys(server: &Server, now: u64) -> Vec<String> {
    server.keys(now).map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
}

fn pushed(key: &str) -> String {
    let length = key.len();
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${length}\r\n{key}\r\n")
}

#[test]
fn keys_expire_after_their_last_millisecond() {
    let (mut server, [watcher, _]) = watched();
    let end = NOW / MS * MS + 11 * MS;
    assert_eq!(server.next_expiry(), Some(end));
    assert_eq!(server.expire(end - 1), []);
    assert_eq!(keys(&server, end - 1), ["a", "b", "c"]);
    assert_eq!(keys(&server, end), ["b", "c"], "an expired key is not visible before its removal");
    let outputs = server.expire(end);
    assert_eq!(outputs.iter().map(text).collect::<Vec<_>>(), [(watcher, pushed("a"))]);
    assert_eq!(server.next_expiry(), Some(end + 10 * MS));
    let outputs = server.expire(end + 50 * MS);
    assert_eq!(
        outputs.iter().map(text).collect::<Vec<_>>(),
        [(watcher, pushed("b"))],
        "nobody tracks c"
    );
    assert_eq!(server.next_expiry(), None);
}

#[test]
fn busy_and_replica_servers_expire_nothing() {
    for trouble in [Trouble::Busy, Trouble::Loading, Trouble::ReadOnly, Trouble::MasterDown] {
        let (mut server, _) = watched();
        server.set_trouble(Some(trouble));
        assert_eq!((server.next_expiry(), server.expire(NOW + 100 * MS)), (None, vec![]));
        server.set_trouble(None);
        assert_eq!(server.expire(NOW + 100 * MS).len(), 1, "{trouble:?}: one push for both keys");
    }
}

#[test]
fn put_replaces_the_value_and_notifies_watchers() {
    let (mut server, [watcher, _]) = watched();
    let outputs = server.put(b"a", b"theirs", 40, NOW);
    assert_eq!(outputs.iter().map(text).collect::<Vec<_>>(), [(watcher, pushed("a"))]);
    let end = NOW / MS * MS + 41 * MS;
    let found = server.keys(NOW).find(|(key, _)| *key == b"a").map(|(_, it)| it);
    let stored = found.map(|it| (it.db, it.kind, it.expires_at_us));
    assert_eq!(stored, Some((0, Kind::String(b"theirs".to_vec()), Some(end))));
    assert_eq!(keys(&server, end), [""; 0]);
}

#[test]
fn delete_and_flush_notify_watchers_once() {
    let (mut server, [watcher, _]) = watched();
    let outputs = server.delete(b"a", NOW);
    assert_eq!(outputs.iter().map(text).collect::<Vec<_>>(), [(watcher, pushed("a"))]);
    assert_eq!(server.delete(b"a", NOW), []);
    let outputs = server.flush(NOW);
    let null = (watcher, ">2\r\n$10\r\ninvalidate\r\n_\r\n".to_owned());
    assert_eq!(outputs.iter().map(text).collect::<Vec<_>>(), iter::once(null).collect::<Vec<_>>());
    assert_eq!(keys(&server, NOW), [""; 0]);
}

#[test]
fn restart_keeps_keys_only_if_persisted() {
    for keeps in [true, false] {
        let (mut server, [watcher, other]) = watched();
        server.disconnect(other);
        assert_eq!(server.connections(), 1);
        let old = server.client_id(watcher);
        let config = Config { run_id: "another".to_owned(), ..Config::default() };
        server.restart(config, keeps, NOW + MS);
        assert_eq!((server.connections(), server.client_id(watcher)), (0, None));
        assert_eq!(send(&mut server, watcher, "PING", NOW + MS), [], "the connection is closed");
        assert_eq!(keys(&server, NOW + MS).len(), if keeps { 3 } else { 0 });
        let new = server.connect();
        assert!(new > other && server.client_id(new) == old, "client ids start again");
        let outputs = server.expire(NOW + 100 * MS);
        assert_eq!(outputs, [], "nobody tracks a key");
    }
}

#[test]
fn keys_are_listed_with_database_and_expiry() {
    let (mut server, [_, other]) = watched();
    send(&mut server, other, "SELECT 1\r\nSADD s x\r\nLPUSH l x", NOW);
    let seen: Vec<_> =
        server.keys(NOW).map(|(key, it)| (key[0], it.db, it.expires_at_us)).collect();
    let end = |ttl: u64| Some(NOW / MS * MS + (ttl + 1) * MS);
    let expected = [
        (b'a', 0, end(10)),
        (b'b', 0, end(20)),
        (b'c', 0, end(30)),
        (b'l', 1, None),
        (b's', 1, None),
    ];
    assert_eq!(seen, expected);
    let kinds: Vec<_> = server.keys(NOW).skip(2).map(|(_, it)| it.kind).collect();
    let [Kind::String(value), Kind::List(list), Kind::Set(set)] = &kinds[..] else {
        panic!("{kinds:?}");
    };
    assert_eq!((&value[..], list.len(), set.len()), (&b"v"[..], 1, 1));
}

#[test]
fn quit_closes_the_connection_after_the_reply() {
    let (mut server, [_, other]) = watched();
    let outputs = send(&mut server, other, "QUIT\r\nPING", NOW);
    assert_eq!(outputs, [Output::Bytes(other, b"+OK\r\n".to_vec()), Output::Close(other)]);
    assert_eq!(server.connections(), 1);
}
