//! Faults that affect the proxied connections.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use kit::Direction::{Replies, Requests};
use kit::eventually;

use crate::line::{
    LIMIT, Line, accept, connect, passes, receives, receives_end, receives_nothing, receives_reset,
    sends,
};

#[test]
fn reset_resets_both_sides_and_the_next_connection_works() {
    let line = Line::open();
    let (client, server) = line.another();
    line.proxy.reset();
    assert_eq!(line.proxy.live(), 0);
    for side in [&client, &server, &line.client, &line.server] {
        receives_reset(side);
    }
    let (client, server) = line.another();
    passes(&client, &server);
}

#[test]
fn close_ends_both_sides_in_order() {
    let line = Line::open();
    line.proxy.hold(Replies);
    sends(&line.server, "lost");
    eventually(LIMIT, "the bytes are held", || line.proxy.bytes(Replies) == 4);
    // The proxy does not read the data of this client.
    line.proxy.hold_connects(true);
    let waiting = connect(&line.proxy);
    sends(&waiting, "unread");
    eventually(LIMIT, "the connection is held", || line.proxy.live() == 2);
    line.proxy.close();
    assert_eq!(line.proxy.live(), 0);
    for side in [&line.client, &line.server, &waiting] {
        receives_end(side);
    }
}

#[test]
fn forget_silences_live_connections_only() {
    let line = Line::open();
    passes(&line.client, &line.server);
    line.proxy.forget();
    assert_eq!(line.proxy.live(), 0);
    sends(&line.client, "request");
    receives_nothing(&line.server);
    sends(&line.server, "reply");
    receives_nothing(&line.client);
    let (client, server) = line.another();
    passes(&client, &server);
}

#[test]
fn reset_by_one_side_reaches_the_other() {
    let line = Line::open();
    passes(&line.client, &line.server);
    // Closing a socket with unread bytes sends a reset.
    sends(&line.server, "unread");
    eventually(LIMIT, "the bytes are there", || line.client.peek(&mut [0; 6]).unwrap() == 6);
    drop(line.client);
    receives_reset(&line.server);
    eventually(LIMIT, "the connection has ended", || line.proxy.live() == 0);
}

#[test]
fn refuse_closes_new_connections_only() {
    let line = Line::open();
    line.proxy.refuse(true);
    receives_end(&connect(&line.proxy));
    assert_eq!((line.proxy.accepted(), line.proxy.live()), (2, 1));
    passes(&line.client, &line.server);
    line.proxy.refuse(false);
    let (client, server) = line.another();
    passes(&client, &server);
}

#[test]
fn hold_connects_keeps_the_server_unaware() {
    let line = Line::open();
    line.proxy.hold_connects(true);
    let client = connect(&line.proxy);
    sends(&client, "request");
    receives_nothing(&client);
    line.listener.set_nonblocking(true).unwrap();
    assert_eq!(line.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    line.listener.set_nonblocking(false).unwrap();
    passes(&line.client, &line.server);
    assert_eq!(line.proxy.live(), 2);
    line.proxy.hold_connects(false);
    let server = accept(&line.listener);
    receives(&server, "request");
    passes(&client, &server);
}

#[test]
fn drop_ends_held_connections() {
    let line = Line::open();
    let addr = line.proxy.addr();
    line.proxy.hold(Requests);
    line.proxy.hold_connects(true);
    let waiting = connect(&line.proxy);
    sends(&line.client, "request");
    drop(line.proxy);
    receives_end(&line.client);
    receives_end(&line.server);
    assert!(matches!((&waiting).read(&mut [0]), Ok(0) | Err(_)));
    TcpStream::connect(addr).unwrap_err();
}

/// An idle proxy sleeps, even if it holds data of closed connections.
#[test]
fn idle_proxy_uses_no_processor_time() {
    let line = Line::open();
    sends(&line.client, "unread");
    sends(&line.server, "unread");
    let has_unread = |side: &TcpStream| side.peek(&mut [0; 6]).unwrap() == 6;
    eventually(LIMIT, "the bytes are there", || {
        has_unread(&line.client) && has_unread(&line.server)
    });
    line.proxy.hold(Requests);
    line.proxy.hold(Replies);
    // Closing a socket with unread bytes sends a reset.
    drop((line.client, line.server));
    if !cfg!(target_os = "linux") {
        return;
    }
    let name = format!("proxy-{}", line.proxy.addr().port());
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
