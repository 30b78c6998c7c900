//! Checks the faults that affect whole connections: reset, close, forget, refuse and held connects.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use kit::Direction::{Replies, Requests};
use kit::eventually;

use crate::proxied_connection::{
    LIMIT, ProxiedConnection, accept, connect, passes, receives, receives_end, receives_nothing,
    receives_reset, sends,
};

#[test]
fn reset_resets_both_sides_and_the_next_connection_works() {
    let conn = ProxiedConnection::open();
    let (client, server) = conn.another();
    conn.proxy.reset();
    assert_eq!(conn.proxy.live(), 0);
    for side in [&client, &server, &conn.client, &conn.server] {
        receives_reset(side);
    }
    let (client, server) = conn.another();
    passes(&client, &server);
}

#[test]
fn close_ends_both_sides_without_a_reset() {
    let conn = ProxiedConnection::open();
    conn.proxy.hold(Replies);
    sends(&conn.server, "lost");
    eventually(LIMIT, "the bytes are held", || conn.proxy.bytes(Replies) == 4);
    // The proxy does not read the data of this client.
    conn.proxy.hold_connects(true);
    let waiting = connect(&conn.proxy);
    sends(&waiting, "unread");
    eventually(LIMIT, "the connection is held", || conn.proxy.live() == 2);
    conn.proxy.close();
    assert_eq!(conn.proxy.live(), 0);
    for side in [&conn.client, &conn.server, &waiting] {
        receives_end(side);
    }
}

#[test]
fn forget_silences_live_connections_only() {
    let conn = ProxiedConnection::open();
    passes(&conn.client, &conn.server);
    conn.proxy.forget();
    assert_eq!(conn.proxy.live(), 0);
    sends(&conn.client, "request");
    receives_nothing(&conn.server);
    sends(&conn.server, "reply");
    receives_nothing(&conn.client);
    let (client, server) = conn.another();
    passes(&client, &server);
}

#[test]
fn reset_by_one_side_reaches_the_other() {
    let conn = ProxiedConnection::open();
    passes(&conn.client, &conn.server);
    // Closing a socket with unread bytes sends a reset.
    sends(&conn.server, "unread");
    eventually(LIMIT, "the bytes are there", || conn.client.peek(&mut [0; 6]).unwrap() == 6);
    drop(conn.client);
    receives_reset(&conn.server);
    eventually(LIMIT, "the connection has ended", || conn.proxy.live() == 0);
}

#[test]
fn refuse_closes_new_connections_only() {
    let conn = ProxiedConnection::open();
    conn.proxy.refuse(true);
    receives_end(&connect(&conn.proxy));
    assert_eq!((conn.proxy.accepted(), conn.proxy.live()), (2, 1));
    passes(&conn.client, &conn.server);
    conn.proxy.refuse(false);
    let (client, server) = conn.another();
    passes(&client, &server);
}

#[test]
fn hold_connects_keeps_the_server_unaware() {
    let conn = ProxiedConnection::open();
    conn.proxy.hold_connects(true);
    let client = connect(&conn.proxy);
    sends(&client, "request");
    receives_nothing(&client);
    conn.listener.set_nonblocking(true).unwrap();
    assert_eq!(conn.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    conn.listener.set_nonblocking(false).unwrap();
    passes(&conn.client, &conn.server);
    assert_eq!(conn.proxy.live(), 2);
    conn.proxy.hold_connects(false);
    let server = accept(&conn.listener);
    receives(&server, "request");
    passes(&client, &server);
}

#[test]
fn drop_ends_held_connections() {
    let conn = ProxiedConnection::open();
    let addr = conn.proxy.addr();
    conn.proxy.hold(Requests);
    conn.proxy.hold_connects(true);
    let waiting = connect(&conn.proxy);
    sends(&conn.client, "request");
    drop(conn.proxy);
    receives_end(&conn.client);
    receives_end(&conn.server);
    assert!(matches!((&waiting).read(&mut [0]), Ok(0) | Err(_)));
    TcpStream::connect(addr).unwrap_err();
}

/// Checks that an idle proxy sleeps, even if it holds data of closed connections.
#[test]
fn idle_proxy_uses_no_processor_time() {
    let conn = ProxiedConnection::open();
    sends(&conn.client, "unread");
    sends(&conn.server, "unread");
    let has_unread = |side: &TcpStream| side.peek(&mut [0; 6]).unwrap() == 6;
    eventually(LIMIT, "the bytes are there", || {
        has_unread(&conn.client) && has_unread(&conn.server)
    });
    conn.proxy.hold(Requests);
    conn.proxy.hold(Replies);
    // Closing a socket with unread bytes sends a reset.
    drop((conn.client, conn.server));
    if !cfg!(target_os = "linux") {
        return;
    }
    let name = format!("proxy-{}", conn.proxy.addr().port());
    let ticks = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let stats =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        let stat = stats.into_iter().find(|stat| stat.contains(&name)).expect("the proxy's thread");
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // User and system time are in ticks of 10 ms.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_millis(500));
    assert!(ticks() - before <= 10, "the proxy's thread was busy without any event");
}
