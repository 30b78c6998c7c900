//! Checks the proxy in front of a real server.

use std::io::Read;

use kit::Direction::Replies;
use kit::{Proxy, Server, eventually};

use crate::proxied_connection::{
    LIMIT, connect, receives, receives_nothing, receives_reset, sends,
};

#[test]
fn connection_to_a_killed_server_is_reset() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    server.kill();
    receives_reset(&connect(&proxy));
    assert_eq!(proxy.live(), 0);
    server.restart();
    let client = connect(&proxy);
    sends(&client, "PING\r\n");
    receives(&client, "+PONG\r\n");
    server.kill();
    let end = (&client).read(&mut [0]);
    assert!(end.is_err() || end.is_ok_and(|len| len == 0), "the connection has ended");
}

#[test]
fn command_runs_while_its_reply_is_held() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let client = connect(&proxy);
    proxy.hold(Replies);
    sends(&client, "SET k v\r\n");
    eventually(LIMIT, "the reply is held", || proxy.bytes(Replies) == 5);
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
    receives_nothing(&client);
    server.kill();
    proxy.heal();
    receives(&client, "+OK\r\n");
}

#[test]
fn stopped_server_accepts_and_replies_later() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    server.stop();
    let client = connect(&proxy);
    sends(&client, "PING\r\n");
    receives_nothing(&client);
    server.cont();
    receives(&client, "+PONG\r\n");
}

#[test]
fn discard_pushes_discards_pushes_and_no_replies() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let (client, other) = (connect(&proxy), connect(&proxy));
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    sends(&client, "HELLO 3\r\nCLIENT TRACKING ON\r\n");
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"+OK\r\n") {
        let mut byte = [0];
        (&client).read_exact(&mut byte).unwrap();
        greeting.extend(byte);
    }
    let change = |discarded_pushes: u64| {
        // The server pushes changes only for keys that the client has read.
        sends(&client, "GET k\r\n");
        receives(&client, if discarded_pushes == 0 { "_\r\n" } else { "$1\r\nv\r\n" });
        sends(&other, "SET k v\r\n");
        receives(&other, "+OK\r\n");
    };
    change(0);
    receives(&client, push);
    proxy.discard_pushes(true);
    for discarded_pushes in 1..4 {
        change(discarded_pushes);
        eventually(LIMIT, "the push is discarded", || proxy.discarded_pushes() == discarded_pushes);
        receives_nothing(&client);
    }
    proxy.heal();
    change(4);
    receives(&client, push);
    assert_eq!(proxy.discarded_pushes(), 3);
}

#[test]
fn set_target_affects_only_new_and_held_connections() {
    let servers = [(); 2].map(|()| Server::start());
    for (server, value) in servers.iter().zip(["1", "2"]) {
        server.set("k", value);
    }
    let proxy = Proxy::start(servers[0].addr());
    let send = |client| {
        sends(client, "GET k\r\n");
        client
    };
    let live = connect(&proxy);
    receives(send(&live), "$1\r\n1\r\n");
    proxy.hold_connects(true);
    let held = connect(&proxy);
    proxy.set_target(servers[1].addr());
    proxy.hold_connects(false);
    receives(send(&live), "$1\r\n1\r\n");
    receives(send(&held), "$1\r\n2\r\n");
    receives(send(&connect(&proxy)), "$1\r\n2\r\n");
    proxy.reset();
    receives_reset(&live);
}
