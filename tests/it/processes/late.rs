//! Tests of a holder whose process is stopped until its lease has expired, and then continues.

use crate::{SOON, client, eventually, ms};
use kit::{Child, Cluster, Pipes, Server};
use quorlock::{FencingToken, Redlock, ReleaseOutcome};
use redis::AsyncCommands;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;

const NODES: &str = "QUORLOCK_LATE_NODES";
const RESOURCE: &str = "QUORLOCK_LATE_RESOURCE";

/// A script that writes to the protected resource. The resource is a hash that stores the highest token, and the script
/// refuses lower tokens.
const WRITE: &str = "local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
                     if tonumber(ARGV[1]) < seen then return 0 end \
                     redis.call('HSET', KEYS[1], 'token', ARGV[1], 'text', ARGV[2]) return 1";

/// Writes to the resource. Returns false if the resource refuses the token.
async fn write(resource: &str, token: FencingToken, text: &str) -> bool {
    let connection = redis::Client::open(resource).expect("a URL");
    let mut connection =
        connection.get_multiplexed_async_connection().await.expect("the server is up");
    let mut command = redis::cmd("EVAL");
    command.arg(WRITE).arg(1).arg("document").arg(token.to_string()).arg(text);
    command.query_async(&mut connection).await.expect("the server is up")
}

async fn text_of(resource: &str) -> Option<String> {
    let connection = redis::Client::open(resource).expect("a URL");
    let mut connection =
        connection.get_multiplexed_async_connection().await.expect("the server is up");
    connection.hget("document", "text").await.expect("the server is up")
}

/// Reads lines until one contains `word`. Returns the rest of that line after `word`.
pub(super) fn read_value(lines: &mut impl BufRead, word: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        let length = lines.read_line(&mut line).expect("text");
        assert!(length > 0, "the output ended before {word:?}");
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
    let redlock = redlock.expect("valid settings");
    let lease = redlock.acquire("r").ttl(ms(3_000)).fenced().await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced");
    println!("token {token}");
    // The parent stops this process at this point, before it sends a line.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("text");
    println!("valid {}", lease.is_valid());
    let resource = std::env::var(RESOURCE).expect("set by the parent");
    println!("accepted {}", write(&resource, token, "the late holder's").await);
}

#[tokio::test]
async fn late_write_of_a_stopped_holder_is_refused() {
    let (cluster, server) = (Cluster::start(5), Server::start());
    let resource = server.url();
    let mut command = Command::new(std::env::current_exe().expect("the executable has a path"));
    command.args(["--ignored", "--exact", "processes::late::holder", "--nocapture"]);
    command.env(NODES, cluster.urls().join(",")).env(RESOURCE, &resource);
    let (child, pipes) = Child::spawn(&mut command);
    let Pipes { mut stdin, stdout, stderr: _ } = pipes;
    let mut lines = BufReader::new(stdout);
    let first: FencingToken = read_value(&mut lines, "token ").parse().expect("a token");
    child.stop();
    let lease = client(&cluster).acquire("r").wait(SOON).fenced().await.expect("the lease expires");
    let second = lease.token().expect("the lease is fenced");
    assert!(second > first, "{second} after {first}");
    assert!(write(&resource, second, "the next holder's").await);
    child.cont();
    stdin.write_all(b"continue\n").expect("the child reads");
    assert_eq!(read_value(&mut lines, "valid "), "false", "the lease is invalid at once");
    assert_eq!(read_value(&mut lines, "accepted "), "false", "a write without a check is refused");
    assert_eq!(text_of(&resource).await.as_deref(), Some("the next holder's"));
    assert!(write(&resource, second, "again").await, "the holder can write again");
    assert_eq!(child.wait(SOON), Some(0));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let is_free = || cluster.none_has("r");
    eventually("the lock is free", is_free).await;
}
