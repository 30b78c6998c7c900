//! The proxy before a real server.

use std::io::Read;

use kit::Direction::Replies;
use kit::{Proxy, Server, eventually};

use crate::line::{LIMIT, connect, receives, receives_nothing, receives_reset, sends};

#[test]
fn a_server_that_is_not_there_is_a_reset() {
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
fn a_command_runs_although_its_reply_is_held() {
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
fn a_stopped_server_accepts_and_answers_later() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    server.stop();
    let client = connect(&proxy);
    sends(&client, "PING\r\n");
    receives_nothing(&client);
    server.cont();
    receives(&client, "+PONG\r\n");
}
