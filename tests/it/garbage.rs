//! Tests with peers that send valid RESP, but replies that no server would send.

use crate::{SOON, all_down, eventually, ms};
use quorlock::{AcquireError, Redlock, ReleaseOutcome};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

/// The maximum number of unsolicited bytes per peer. The limit ensures that a failing test terminates.
const MAX_UNSOLICITED: usize = 24 << 20;

/// The maximum number of bytes in a flood of pushes.
const LONGEST_FLOOD: usize = 40 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    /// The peer sends invalidation pushes continuously.
    Floods,
    /// The peer replies `+OK` this many times to every command after the set-up.
    RepliesOk(usize),
    /// The peer replies `+OK` to every command, even during the set-up.
    AlwaysRepliesOk,
    RefusesTime,
}

struct Peer {
    url: String,
    /// The number of bytes sent, including unsolicited bytes.
    sent: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Peer {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("the socket is bound").port();
        let (sent, is_stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, over) = (sent.clone(), is_stopped.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, over) = (counted.clone(), over.clone());
                thread::spawn(move || serve(&stream, port, behaviour, &counted, &over));
            }
        });
        Self { url: format!("redis://127.0.0.1:{port}"), sent, is_stopped }
    }
}

fn serve(
    stream: &TcpStream,
    port: u16,
    behaviour: Behaviour,
    sent: &Arc<AtomicUsize>,
    is_stopped: &Arc<AtomicBool>,
) {
    let mut requests = BufReader::new(stream);
    let replies = Arc::new(Mutex::new(stream.try_clone().expect("a socket")));
    let replying = Arc::new(AtomicBool::new(false));
    let (replies_ok, times) = match behaviour {
        Behaviour::RepliesOk(times) => (true, times),
        _ => (false, 1),
    };
    let (mut store, mut is_set_up) = (std::collections::HashSet::new(), false);
    while let Some(command) = command(&mut requests) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        // The set-up also sends `TIME`, so only a lock command marks the end of the set-up.
        is_set_up |= matches!(words.first(), Some(&("SET" | "EVALSHA")));
        let reply = match words.as_slice() {
            _ if behaviour == Behaviour::AlwaysRepliesOk => "+OK\r\n".to_owned(),
            ["HELLO", ..] => "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_owned(),
            ["CLIENT", "ID"] => ":7\r\n".to_owned(),
            ["INFO", ..] => {
                bulk(&format!("run_id:{port}\r\nrole:master\r\nuptime_in_seconds:1000000\r\n"))
            }
            ["CONFIG", ..] => "%0\r\n".to_owned(),
            ["SCRIPT", ..] => bulk("0123"),
            ["CLIENT", "TRACKING", ..] => {
                if behaviour == Behaviour::Floods {
                    let (replies, sent, over) = (replies.clone(), sent.clone(), is_stopped.clone());
                    let replying = replying.clone();
                    thread::spawn(move || flood(&replies, &replying, &sent, &over));
                }
                "+OK\r\n".to_owned()
            }
            ["TIME"] if behaviour == Behaviour::RefusesTime => "-NOPERM no TIME\r\n".to_owned(),
            ["TIME"] if !replies_ok || !is_set_up => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.expect("after 1970");
                let [seconds, micros] =
                    [now.as_secs().to_string(), now.subsec_micros().to_string()];
                format!("*2\r\n{}{}", bulk(&seconds), bulk(&micros))
            }
            ["SET", key, ..] if !replies_ok => {
                let is_free = store.insert((*key).to_owned());
                if is_free { "+OK\r\n" } else { "_\r\n" }.to_owned()
            }
            ["EVALSHA", _, _, key, ..] if !replies_ok => {
                format!(":{}\r\n", i32::from(store.remove(*key)))
            }
            _ => "+OK\r\n".to_owned(),
        };
        let copies = match words.first() {
            Some(&("SET" | "TIME" | "EVALSHA")) if is_set_up => times,
            _ if behaviour == Behaviour::AlwaysRepliesOk => 1000,
            _ => 1,
        };
        replying.store(true, Ordering::Relaxed);
        let written = replies.lock().expect("no panic").write_all(reply.repeat(copies).as_bytes());
        replying.store(false, Ordering::Relaxed);
        if written.is_err()
            || sent.fetch_add(reply.len() * copies, Ordering::Relaxed)
                > LONGEST_FLOOD + 2 * MAX_UNSOLICITED
        {
            return;
        }
    }
}

/// Sends pushes until the limit of a flood is reached, and pauses while a reply waits for the stream.
fn flood(
    replies: &Mutex<TcpStream>,
    replying: &AtomicBool,
    sent: &AtomicUsize,
    is_stopped: &AtomicBool,
) {
    let frame = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n{}", bulk(&"k".repeat(200)));
    let frames = frame.repeat(64);
    while !is_stopped.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) < LONGEST_FLOOD {
        if replying.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        if replies.lock().expect("no panic").write_all(frames.as_bytes()).is_err() {
            return;
        }
        sent.fetch_add(frames.len(), Ordering::Relaxed);
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn command(requests: &mut impl BufRead) -> Option<Vec<String>> {
    let length = |requests: &mut dyn BufRead| -> Option<usize> {
        let mut line = String::new();
        requests.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse().ok()
    };
    let count = length(requests)?;
    (0..count)
        .map(|_| {
            let mut bytes = vec![0; length(requests)? + 2];
            requests.read_exact(&mut bytes).ok()?;
            bytes.truncate(bytes.len() - 2);
            String::from_utf8(bytes).ok()
        })
        .collect()
}

fn client(peers: &[Peer]) -> Redlock {
    let builder = Redlock::builder().nodes(peers.iter().map(|peer| &peer.url));
    builder.node_timeout(ms(10_000)).ttl(ms(60_000)).build().expect("valid settings")
}

#[tokio::test]
async fn flood_of_pushes_does_not_delay_acquires() {
    let peers = [(); 3].map(|()| Peer::start(Behaviour::Floods));
    // A busy machine needs a long time to read a flood.
    let redlock = Redlock::builder().nodes(peers.iter().map(|peer| &peer.url));
    let redlock = redlock.node_timeout(ms(50_000)).ttl(ms(60_000)).build().expect("valid settings");
    let is_flooded = || peers.iter().all(|peer| peer.sent.load(Ordering::Relaxed) > 0);
    let first = redlock.acquire("first").wait(ms(60_000)).await.expect("the lock is free");
    eventually("all peers send pushes", is_flooded).await;
    let mut uses = 0;
    while peers.iter().any(|peer| peer.sent.load(Ordering::Relaxed) < LONGEST_FLOOD) {
        let lease = match redlock.try_acquire("r").await {
            Ok(lease) => lease,
            // A busy machine can run this task seconds after the lock was granted.
            Err(AcquireError::NotPolled { .. }) => continue,
            Err(error) => panic!("the lock is free: {error}"),
        };
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        uses += 1;
    }
    assert!(uses > 1, "{uses} acquires during the flood");
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn unmatched_replies_are_not_votes() {
    for (times, why) in [(1, "out of sync"), (1_000, "unsolicited reply")] {
        let peers = [(); 3].map(|()| Peer::start(Behaviour::RepliesOk(times)));
        let refused = client(&peers).try_acquire("r").await.expect_err("no reply is a grant");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
        assert_eq!(report.granted(), 0, "{report}");
        assert!(report.to_string().contains(why), "{report}");
    }
}

#[tokio::test]
async fn peer_that_replies_ok_to_everything_has_no_vote() {
    let peers = [(); 3].map(|()| Peer::start(Behaviour::AlwaysRepliesOk));
    let redlock = client(&peers);
    for _ in 0..20 {
        let refused = redlock.try_acquire("r").await.expect_err("no reply is a grant");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
        assert_eq!(report.granted(), 0, "{report}");
    }
    eventually("all nodes are down", || all_down(&redlock)).await;
}

#[tokio::test]
async fn node_that_refuses_time_has_a_vote() {
    let peers = [(); 3].map(|()| Peer::start(Behaviour::RefusesTime));
    let redlock = client(&peers);
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
