//! Faults that affect the proxied data.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use kit::Direction::{Replies, Requests};
use kit::eventually;

use crate::line::{
    LIMIT, Line, passes, receives, receives_end, receives_nothing, receives_reset, sends,
};

#[test]
fn proxy_forwards_and_counts_bytes_and_connections() {
    let line = Line::open();
    passes(&line.client, &line.server);
    assert_eq!((line.proxy.bytes(Requests), line.proxy.bytes(Replies)), (7, 5));
    let (client, server) = line.another();
    passes(&client, &server);
    assert_eq!((line.proxy.accepted(), line.proxy.live()), (2, 2));
    drop(client);
    receives_end(&server);
    assert_eq!(line.proxy.live(), 2);
    drop(server);
    eventually(LIMIT, "the connection has ended", || line.proxy.live() == 1);
    passes(&line.client, &line.server);
}

#[test]
fn proxy_buffers_up_to_the_limit_and_forwards_everything() {
    const BYTES: usize = 100 << 20;
    const LIMIT_BYTES: u64 = 64 << 20;
    let line = Line::open();
    line.proxy.hold(Requests);
    let (client, mut server) = (&line.client, &line.server);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let chunk: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
            for _ in 0..BYTES >> 20 {
                (&*client).write_all(&chunk).unwrap();
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        eventually(LIMIT, "the buffer is full", || line.proxy.bytes(Requests) >= LIMIT_BYTES);
        receives_nothing(server);
        assert!(line.proxy.bytes(Requests) < LIMIT_BYTES + (1 << 20));
        line.proxy.heal();
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
    let line = Line::open();
    line.proxy.delay(Requests, DELAY);
    let start = Instant::now();
    // With one delay after another, the chunks would take at least 10 s.
    for number in 10..30 {
        sends(&line.client, &format!("request {number},"));
        let arrived = (number - 9) * 11;
        eventually(LIMIT, "the chunk has arrived", || line.proxy.bytes(Requests) >= arrived);
    }
    for number in 10..30 {
        receives(&line.server, &format!("request {number},"));
    }
    let took = start.elapsed();
    assert!(took >= DELAY, "{took:?}");
    assert!(took < 10 * DELAY, "{took:?}");
}

#[test]
fn delay_applies_to_one_direction_and_to_the_end() {
    const DELAY: Duration = Duration::from_millis(200);
    let line = Line::open();
    line.proxy.delay(Replies, DELAY);
    sends(&line.client, "request");
    receives(&line.server, "request");
    let start = Instant::now();
    sends(&line.server, "reply");
    drop(line.server);
    receives(&line.client, "reply");
    receives_end(&line.client);
    assert!(start.elapsed() >= DELAY);
}

#[test]
fn shorter_delay_keeps_the_order_until_heal() {
    let line = Line::open();
    line.proxy.delay(Requests, Duration::from_mins(30));
    sends(&line.client, "first,");
    eventually(LIMIT, "the chunk has arrived", || line.proxy.bytes(Requests) == 6);
    line.proxy.delay(Requests, Duration::ZERO);
    sends(&line.client, "second");
    receives_nothing(&line.server);
    line.proxy.heal();
    receives(&line.server, "first,second");
    passes(&line.client, &line.server);
}

#[test]
fn hold_keeps_bytes_and_the_end_until_heal() {
    let line = Line::open();
    line.proxy.hold(Replies);
    sends(&line.client, "request");
    receives(&line.server, "request");
    sends(&line.server, "reply");
    let (client, server) = line.another();
    sends(&server, "new");
    drop(line.server);
    eventually(LIMIT, "the replies have arrived", || line.proxy.bytes(Replies) == 8);
    receives_nothing(&line.client);
    receives_nothing(&client);
    line.proxy.heal();
    receives(&line.client, "reply");
    receives_end(&line.client);
    receives(&client, "new");
    passes(&client, &server);
}

#[test]
fn black_hole_discards_bytes_but_not_the_end() {
    let line = Line::open();
    line.proxy.hold(Requests);
    sends(&line.client, "held");
    eventually(LIMIT, "the bytes are held", || line.proxy.bytes(Requests) == 4);
    line.proxy.black_hole(Requests);
    sends(&line.client, "lost");
    eventually(LIMIT, "the bytes are lost", || line.proxy.bytes(Requests) == 8);
    sends(&line.server, "the other direction works");
    receives(&line.client, "the other direction works");
    let (client, server) = line.another();
    sends(&client, "lost");
    drop(client);
    eventually(LIMIT, "the bytes are lost", || line.proxy.bytes(Requests) == 12);
    receives_nothing(&server);
    receives_nothing(&line.server);
    line.proxy.heal();
    receives_end(&server);
    passes(&line.client, &line.server);
}

#[test]
fn cut_next_reply_forwards_part_of_one_reply() {
    for cut in [0, 1, 4, 5, 100] {
        let line = Line::open();
        passes(&line.client, &line.server);
        line.proxy.cut_next_reply(cut);
        sends(&line.client, "request");
        receives(&line.server, "request");
        sends(&line.server, "reply");
        receives(&line.client, &"reply"[..cut.min(5)]);
        receives_reset(&line.client);
        receives_reset(&line.server);
        let (client, server) = line.another();
        passes(&client, &server);
    }
}
