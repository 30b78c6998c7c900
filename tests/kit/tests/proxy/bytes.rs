//! Checks the faults that affect the proxied data: delay, hold, black hole and a cut reply.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use kit::Direction::{Replies, Requests};
use kit::eventually;

use crate::proxied_connection::{
    LIMIT, ProxiedConnection, passes, receives, receives_end, receives_nothing, receives_reset,
    sends,
};

#[test]
fn proxy_forwards_and_counts_bytes_and_connections() {
    let conn = ProxiedConnection::open();
    passes(&conn.client, &conn.server);
    assert_eq!((conn.proxy.bytes(Requests), conn.proxy.bytes(Replies)), (7, 5));
    let (client, server) = conn.another();
    passes(&client, &server);
    assert_eq!((conn.proxy.accepted(), conn.proxy.live()), (2, 2));
    drop(client);
    receives_end(&server);
    assert_eq!(conn.proxy.live(), 2);
    drop(server);
    eventually(LIMIT, "the connection has ended", || conn.proxy.live() == 1);
    passes(&conn.client, &conn.server);
}

#[test]
fn proxy_buffers_up_to_the_limit_and_forwards_everything() {
    const BYTES: usize = 100 << 20;
    const LIMIT_BYTES: u64 = 64 << 20;
    let conn = ProxiedConnection::open();
    conn.proxy.hold(Requests);
    let (client, mut server) = (&conn.client, &conn.server);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let chunk: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
            for _ in 0..BYTES >> 20 {
                (&*client).write_all(&chunk).unwrap();
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        eventually(LIMIT, "the buffer is full", || conn.proxy.bytes(Requests) >= LIMIT_BYTES);
        receives_nothing(server);
        assert!(conn.proxy.bytes(Requests) < LIMIT_BYTES + (1 << 20));
        conn.proxy.heal();
        let (mut buffer, mut total) = (vec![0; 1 << 16], 0_usize);
        loop {
            let len = server.read(&mut buffer).unwrap();
            if len == 0 {
                break;
            }
            let right =
                (total..).zip(&buffer[..len]).all(|(at, byte)| usize::from(*byte) == at % 256);
            assert!(right, "the bytes equal those that were sent");
            total += len;
        }
        assert_eq!(total, BYTES);
    });
    // The other direction of a half-closed connection still works.
    sends(server, "reply");
    receives(client, "reply");
}

#[test]
fn delay_applies_to_chunks_in_parallel() {
    const DELAY: Duration = Duration::from_millis(500);
    let conn = ProxiedConnection::open();
    conn.proxy.delay(Requests, DELAY);
    let start = Instant::now();
    // With one delay after another, the chunks would take at least 10 s.
    for number in 10..30 {
        sends(&conn.client, &format!("request {number},"));
        let arrived = (number - 9) * 11;
        eventually(LIMIT, "the chunk has arrived", || conn.proxy.bytes(Requests) >= arrived);
    }
    for number in 10..30 {
        receives(&conn.server, &format!("request {number},"));
    }
    let took = start.elapsed();
    assert!(took >= DELAY, "{took:?}");
    assert!(took < 10 * DELAY, "{took:?}");
}

#[test]
fn delay_applies_to_one_direction_and_to_the_end() {
    const DELAY: Duration = Duration::from_millis(200);
    let conn = ProxiedConnection::open();
    conn.proxy.delay(Replies, DELAY);
    sends(&conn.client, "request");
    receives(&conn.server, "request");
    let start = Instant::now();
    sends(&conn.server, "reply");
    drop(conn.server);
    receives(&conn.client, "reply");
    receives_end(&conn.client);
    assert!(start.elapsed() >= DELAY);
}

#[test]
fn shorter_delay_keeps_the_order_until_heal() {
    let conn = ProxiedConnection::open();
    conn.proxy.delay(Requests, Duration::from_mins(30));
    sends(&conn.client, "first,");
    eventually(LIMIT, "the chunk has arrived", || conn.proxy.bytes(Requests) == 6);
    conn.proxy.delay(Requests, Duration::ZERO);
    sends(&conn.client, "second");
    receives_nothing(&conn.server);
    conn.proxy.heal();
    receives(&conn.server, "first,second");
    passes(&conn.client, &conn.server);
}

#[test]
fn hold_keeps_bytes_and_the_end_until_heal() {
    let conn = ProxiedConnection::open();
    conn.proxy.hold(Replies);
    sends(&conn.client, "request");
    receives(&conn.server, "request");
    sends(&conn.server, "reply");
    let (client, server) = conn.another();
    sends(&server, "new");
    drop(conn.server);
    eventually(LIMIT, "the replies have arrived", || conn.proxy.bytes(Replies) == 8);
    receives_nothing(&conn.client);
    receives_nothing(&client);
    conn.proxy.heal();
    receives(&conn.client, "reply");
    receives_end(&conn.client);
    receives(&client, "new");
    passes(&client, &server);
}

#[test]
fn black_hole_discards_bytes_but_not_the_end() {
    let conn = ProxiedConnection::open();
    conn.proxy.hold(Requests);
    sends(&conn.client, "held");
    eventually(LIMIT, "the bytes are held", || conn.proxy.bytes(Requests) == 4);
    conn.proxy.black_hole(Requests);
    sends(&conn.client, "lost");
    eventually(LIMIT, "the bytes are lost", || conn.proxy.bytes(Requests) == 8);
    sends(&conn.server, "the other direction works");
    receives(&conn.client, "the other direction works");
    let (client, server) = conn.another();
    sends(&client, "lost");
    drop(client);
    eventually(LIMIT, "the bytes are lost", || conn.proxy.bytes(Requests) == 12);
    receives_nothing(&server);
    receives_nothing(&conn.server);
    conn.proxy.heal();
    receives_end(&server);
    passes(&conn.client, &conn.server);
}

#[test]
fn cut_next_reply_forwards_part_of_one_reply() {
    for cut in [0, 1, 4, 5, 100] {
        let conn = ProxiedConnection::open();
        passes(&conn.client, &conn.server);
        conn.proxy.cut_next_reply(cut);
        sends(&conn.client, "request");
        receives(&conn.server, "request");
        sends(&conn.server, "reply");
        receives(&conn.client, &"reply"[..cut.min(5)]);
        receives_reset(&conn.client);
        receives_reset(&conn.server);
        let (client, server) = conn.another();
        passes(&client, &server);
    }
}
