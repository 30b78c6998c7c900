//! Detects URLs with the wrong scheme: `rediss://` for a server without TLS, or `redis://` for a server with TLS.
//!
//! A server without TLS waits silently for the rest of a TLS handshake, and a server with TLS closes a connection that
//! does not begin with one. Both look like an outage, so this module asks the server in the other way.

use crate::nodes::Client;
use quorlock::{NodeInfo, NodeState};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A TLS record with an incomplete `ClientHello`. A server with TLS replies with an alert.
const CLIENT_HELLO: &[u8] = &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0];

/// The types of TLS records with which a server can reply: alert and handshake.
const TLS_REPLIES: [u8; 2] = [0x15, 0x16];

const PING: &[u8] = b"PING\r\n";

/// The first bytes of replies to `PING`: a status or an error.
const PING_REPLIES: [u8; 2] = [b'+', b'-'];

/// Asks the nodes that are down. If the schemes of a majority of the URLs are wrong, returns a message that names the
/// nodes.
pub(crate) async fn wrong_on_majority(client: &Client) -> Option<String> {
    let nodes = client.redlock.nodes();
    let mut wrong = Vec::new();
    for (node, url) in nodes.iter().zip(&client.config.nodes) {
        if matches!(node.state(), NodeState::Up) {
            continue;
        }
        if let Some(advice) = advice(node, url, client.connect_timeout).await {
            wrong.push(advice);
        }
    }
    (wrong.len() > nodes.len() / 2).then(|| wrong.join(", "))
}

async fn advice(node: &NodeInfo, url: &str, limit: Duration) -> Option<String> {
    let (scheme, _) = url.trim().split_once("://")?;
    let is = |schemes: [&str; 2]| schemes.iter().any(|other| scheme.eq_ignore_ascii_case(other));
    let name = node.name();
    if is(["rediss", "valkeys"]) {
        let reply = first_byte(name, PING, limit).await?;
        return PING_REPLIES
            .contains(&reply)
            .then(|| format!("{name} does not speak TLS: use redis://"));
    }
    if is(["redis", "valkey"]) {
        let reply = first_byte(name, CLIENT_HELLO, limit).await?;
        return TLS_REPLIES.contains(&reply).then(|| format!("{name} speaks TLS: use rediss://"));
    }
    None
}

/// Returns the first byte of the reply to `request`, or `None` if the server does not reply within `limit`.
async fn first_byte(name: &str, request: &[u8], limit: Duration) -> Option<u8> {
    let (host, port) = name.rsplit_once(':')?;
    let asked = async {
        let stream = TcpStream::connect((host, port.parse().ok()?)).await.ok()?;
        // A new connection accepts the few bytes of a request at once.
        stream.writable().await.ok()?;
        stream.try_write(request).ok()?;
        stream.readable().await.ok()?;
        let mut byte = [0];
        let count = stream.try_read(&mut byte).ok()?;
        (count > 0).then_some(byte[0])
    };
    timeout(limit, asked).await.ok()?
}
