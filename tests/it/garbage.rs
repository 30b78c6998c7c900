//! Peers that speak RESP, and say what no server says.

use crate::{SOON, all_down, eventually, ms};
use quorlock::{AcquireError, Redlock};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

/// The most that a peer says unasked, so that a test that goes wrong ends.
const MOST_SAID: usize = 24 << 20;

/// How many bytes a flood has at the most.
const LONGEST_FLOOD: usize = 40 << 20;

/// What a peer does besides answering as a server does.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// It pushes invalidations without end.
    Floods,
    /// It answers whatever comes after the set-up by `+OK`, so many times.
    SaysOk(usize),
    /// It answers even the set-up so.
    AlwaysSaysOk,
    /// It does not tell what time it is.
    RefusesTime,
}

/// A peer that stands where a server should, until the end of the test process.
struct Peer {
    url: String,
    /// How many bytes it has said unasked.
    said: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Peer {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (said, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, over) = (said.clone(), is_over.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, over) = (counted.clone(), over.clone());
                thread::spawn(move || serve(&stream, port, manner, &counted, &over));
            }
        });
        Self { url: format!("redis://127.0.0.1:{port}"), said, is_over }
    }
}

fn serve(
    stream: &TcpStream,
    port: u16,
    manner: Manner,
    said: &Arc<AtomicUsize>,
    is_over: &Arc<AtomicBool>,
) {
    let mut requests = BufReader::new(stream);
    let replies = Arc::new(Mutex::new(stream.try_clone().expect("a socket")));
    let replying = Arc::new(AtomicBool::new(false));
    let (says_ok, times) = match manner {
        Manner::SaysOk(times) => (true, times),
        _ => (false, 1),
    };
    let (mut store, mut is_set_up) = (std::collections::HashSet::new(), false);
    while let Some(command) = command(&mut requests) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        // The set-up asks for the time, too.
        is_set_up |= matches!(words.first(), Some(&("SET" | "EVALSHA")));
        let reply = match words.as_slice() {
            _ if manner == Manner::AlwaysSaysOk => "+OK\r\n".to_owned(),
            ["HELLO", ..] => "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_owned(),
            ["CLIENT", "ID"] => ":7\r\n".to_owned(),
            ["INFO", ..] => {
                bulk(&format!("run_id:{port}\r\nrole:master\r\nuptime_in_seconds:1000000\r\n"))
            }
            ["CONFIG", ..] => "%0\r\n".to_owned(),
            ["SCRIPT", ..] => bulk("0123"),
            ["CLIENT", "TRACKING", ..] => {
                if manner == Manner::Floods {
                    let (replies, said, over) = (replies.clone(), said.clone(), is_over.clone());
                    let replying = replying.clone();
                    thread::spawn(move || flood(&replies, &replying, &said, &over));
                }
                "+OK\r\n".to_owned()
            }
            ["TIME"] if manner == Manner::RefusesTime => "-NOPERM no TIME\r\n".to_owned(),
            ["TIME"] if !says_ok || !is_set_up => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.expect("after 1970");
                let [seconds, micros] =
                    [now.as_secs().to_string(), now.subsec_micros().to_string()];
                format!("*2\r\n{}{}", bulk(&seconds), bulk(&micros))
            }
            ["SET", key, ..] if !says_ok => {
                let is_free = store.insert((*key).to_owned());
                if is_free { "+OK\r\n" } else { "_\r\n" }.to_owned()
            }
            ["EVALSHA", _, _, key, ..] if !says_ok => {
                format!(":{}\r\n", i32::from(store.remove(*key)))
            }
            _ => "+OK\r\n".to_owned(),
        };
        let endless = match words.first() {
            Some(&("SET" | "TIME" | "EVALSHA")) if is_set_up => times,
            _ if manner == Manner::AlwaysSaysOk => 1000,
            _ => 1,
        };
        replying.store(true, Ordering::Relaxed);
        let written = replies.lock().expect("no panic").write_all(reply.repeat(endless).as_bytes());
        replying.store(false, Ordering::Relaxed);
        if written.is_err()
            || said.fetch_add(reply.len() * endless, Ordering::Relaxed)
                > LONGEST_FLOOD + 2 * MOST_SAID
        {
            return;
        }
    }
}

/// Pushes without end, but for the replies: whoever waits for the stream to send one has it next.
fn flood(
    replies: &Mutex<TcpStream>,
    replying: &AtomicBool,
    said: &AtomicUsize,
    is_over: &AtomicBool,
) {
    let frame = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n{}", bulk(&"k".repeat(200)));
    let frames = frame.repeat(64);
    while !is_over.load(Ordering::Relaxed) && said.load(Ordering::Relaxed) < LONGEST_FLOOD {
        if replying.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        if replies.lock().expect("no panic").write_all(frames.as_bytes()).is_err() {
            return;
        }
        said.fetch_add(frames.len(), Ordering::Relaxed);
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The next command, an array of strings.
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
    builder.node_timeout(ms(10_000)).ttl(ms(60_000)).build().expect("good settings")
}

#[tokio::test]
async fn a_flood_of_pushes_holds_up_neither_votes_nor_orders() {
    let peers = [(); 3].map(|()| Peer::start(Manner::Floods));
    // A busy machine reads a flood slowly.
    let redlock = Redlock::builder().nodes(peers.iter().map(|peer| &peer.url));
    let redlock = redlock.node_timeout(ms(50_000)).ttl(ms(60_000)).build().expect("good settings");
    let is_flooded = || peers.iter().all(|peer| peer.said.load(Ordering::Relaxed) > 0);
    let first = redlock.acquire("first").wait(ms(60_000)).await.expect("a free lock");
    eventually("they flood", is_flooded).await;
    let mut uses = 0;
    while peers.iter().any(|peer| peer.said.load(Ordering::Relaxed) < LONGEST_FLOOD) {
        let lease = redlock.try_acquire("r").await.expect("a free lock");
        lease.release().await.expect("they answer");
        uses += 1;
    }
    assert!(uses > 1, "used {uses} times meanwhile");
    first.release().await.expect("they answer");
}

#[tokio::test]
async fn replies_that_are_out_of_step_are_no_votes() {
    for (times, why) in [(1, "out of sync"), (1_000, "unsolicited reply")] {
        let peers = [(); 3].map(|()| Peer::start(Manner::SaysOk(times)));
        let refused = client(&peers).try_acquire("r").await.expect_err("nobody has granted it");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
        assert_eq!(report.granted(), 0, "{report}");
        assert!(report.to_string().contains(why), "{report}");
    }
}

#[tokio::test]
async fn a_peer_that_says_ok_to_everything_is_no_server() {
    let peers = [(); 3].map(|()| Peer::start(Manner::AlwaysSaysOk));
    let redlock = client(&peers);
    for _ in 0..20 {
        let refused = redlock.try_acquire("r").await.expect_err("nobody has granted it");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
        assert_eq!(report.granted(), 0, "{report}");
    }
    eventually("all are down", || all_down(&redlock)).await;
}

#[tokio::test]
async fn a_node_that_does_not_tell_the_time_has_a_vote() {
    let peers = [(); 3].map(|()| Peer::start(Manner::RefusesTime));
    let redlock = client(&peers);
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    lease.release().await.expect("they answer");
}
