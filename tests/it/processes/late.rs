//! A holder that was stopped past its deadline, and goes on as if nothing had been.

use crate::{SOON, client, eventually, ms};
use kit::{Child, Cluster, Pipes, Server};
use quorlock::{FencingToken, Redlock};
use redis::AsyncCommands;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;

const NODES: &str = "QUORLOCK_LATE_NODES";
const RESOURCE: &str = "QUORLOCK_LATE_RESOURCE";

/// What the lock protects: a key that remembers the highest token, and refuses lower ones.
const WRITE: &str = "local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
                     if tonumber(ARGV[1]) < seen then return 0 end \
                     redis.call('HSET', KEYS[1], 'token', ARGV[1], 'text', ARGV[2]) return 1";

/// Writes to the resource; false if it refuses.
async fn write(resource: &str, token: FencingToken, text: &str) -> bool {
    let connection = redis::Client::open(resource).expect("a URL");
    let mut connection = connection.get_multiplexed_async_connection().await.expect("it is up");
    let mut command = redis::cmd("EVAL");
    command.arg(WRITE).arg(1).arg("document").arg(token.to_string()).arg(text);
    command.query_async(&mut connection).await.expect("it is up")
}

async fn text_of(resource: &str) -> Option<String> {
    let connection = redis::Client::open(resource).expect("a URL");
    let mut connection = connection.get_multiplexed_async_connection().await.expect("it is up");
    connection.hget("document", "text").await.expect("it is up")
}

/// The next line of what a process prints that begins with this word; the rest of it.
pub(super) fn told(lines: &mut impl BufRead, word: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        let length = lines.read_line(&mut line).expect("text");
        assert!(length > 0, "it ended before it told {word:?}");
        if let Some(rest) = line.split(word).nth(1) {
            return rest.trim().to_owned();
        }
    }
}

#[tokio::test]
#[ignore = "runs as a child process of the test below"]
async fn holder() {
    let Ok(nodes) = std::env::var(NODES) else { return };
    let redlock = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(1_000)).build();
    let redlock = redlock.expect("good settings");
    let lease = redlock.acquire("r").ttl(ms(3_000)).fenced().await.expect("a free lock");
    let token = lease.token().expect("it is fenced");
    println!("token {token}");
    // Here it is stopped, and until the parent says so it sees nothing of what happens.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("text");
    println!("valid {}", lease.is_valid());
    let resource = std::env::var(RESOURCE).expect("set by the parent");
    println!("accepted {}", write(&resource, token, "the late holder's").await);
}

#[tokio::test]
async fn a_holder_stopped_past_its_deadline_knows_it_and_its_late_write_is_refused() {
    let (cluster, server) = (Cluster::start(5), Server::start());
    let resource = server.url();
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--ignored", "--exact", "processes::late::holder", "--nocapture"]);
    command.env(NODES, cluster.urls().join(",")).env(RESOURCE, &resource);
    let (child, pipes) = Child::spawn(&mut command);
    let Pipes { mut stdin, stdout, stderr: _ } = pipes;
    let mut lines = BufReader::new(stdout);
    let first: FencingToken = told(&mut lines, "token ").parse().expect("a token");
    child.stop();
    let lease = client(&cluster).acquire("r").wait(SOON).fenced().await.expect("it expires");
    let second = lease.token().expect("it is fenced");
    assert!(second > first, "{second} after {first}");
    assert!(write(&resource, second, "the next holder's").await);
    child.cont();
    stdin.write_all(b"go on\n").expect("it reads");
    assert_eq!(told(&mut lines, "valid "), "false", "it knows at once");
    assert_eq!(told(&mut lines, "accepted "), "false", "and who does not ask is refused");
    assert_eq!(text_of(&resource).await.as_deref(), Some("the next holder's"));
    assert!(write(&resource, second, "again").await, "the holder may write more than once");
    assert_eq!(child.wait(SOON), Some(0));
    lease.release().await.expect("nodes are up");
    let is_free = || cluster.none_has("r");
    eventually("nothing is held", is_free).await;
}
