//! Settings that all clients of a deployment must share. Each client names its connections after them, so that a check
//! can compare clients.

use super::requests::{CLIENTS_REPLY, Requests};
use redis::Value;
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// Prefix of connection names.
const MARK: &str = "quorlock:";

/// A client's nodes and settings. Displays as the name of its connections, which can be parsed again:
///
/// ```text
/// quorlock:nodes=5-9f3ac21b,quorum=3,max_ttl=60000ms,prefix=2b1c5e0a
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint {
    nodes: usize,
    quorum: usize,
    /// Of the addresses and databases of all nodes, independent of their order.
    set: Digest,
    max_ttl_ms: u64,
    /// Of the key prefix.
    prefix: Digest,
}

/// First 32 bits of a `UUIDv5`: stable across versions and platforms, not collision-resistant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Digest(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedClient {
    /// As the server sees it.
    pub(crate) address: String,
    pub(crate) fingerprint: Fingerprint,
}

impl Fingerprint {
    /// `places`: address and database of each node.
    pub(crate) fn new(
        mut places: Vec<String>,
        quorum: usize,
        max_ttl: Duration,
        prefix: &[u8],
    ) -> Self {
        places.sort_unstable();
        Self {
            nodes: places.len(),
            quorum,
            set: Digest::of(places.join("\n").as_bytes()),
            max_ttl_ms: u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX),
            prefix: Digest::of(prefix),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(crate) fn quorum(&self) -> usize {
        self.quorum
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        Duration::from_millis(self.max_ttl_ms)
    }

    /// True if both list the same nodes by the same addresses.
    pub(crate) fn has_same_nodes(&self, other: &Self) -> bool {
        (self.nodes, self.set) == (other.nodes, other.set)
    }

    pub(crate) fn has_same_prefix(&self, other: &Self) -> bool {
        self.prefix == other.prefix
    }

    fn parse(name: &str) -> Option<Self> {
        // Later versions may append fields.
        let mut parts = name.strip_prefix(MARK)?.split(',');
        let mut next = |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix('=');
        let (nodes, set) = next("nodes")?.split_once('-')?;
        Some(Self {
            nodes: nodes.parse().ok()?,
            set: Digest::parse(set)?,
            quorum: next("quorum")?.parse().ok()?,
            max_ttl_ms: next("max_ttl")?.strip_suffix("ms")?.parse().ok()?,
            prefix: Digest::parse(next("prefix")?)?,
        })
    }
}

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        Self(Uuid::new_v5(&Uuid::NAMESPACE_URL, bytes).as_fields().0)
    }

    fn parse(text: &str) -> Option<Self> {
        u32::from_str_radix(text, 16).ok().map(Self)
    }
}

pub(crate) fn ask_clients(requests: &mut Requests) {
    requests.allow_reply(CLIENTS_REPLY);
    requests.command("CLIENT", 1).arg("LIST").end();
}

/// The clients of this library in a reply to `CLIENT LIST`; `None` for an error reply.
pub(crate) fn named_clients(reply: &Value) -> Option<Vec<NamedClient>> {
    let text = match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::VerbatimString { text, .. } => text.into(),
        _ => return None,
    };
    Some(text.lines().filter_map(named_client).collect())
}

fn named_client(line: &str) -> Option<NamedClient> {
    let field = |key: &str| line.split(' ').find_map(|field| field.strip_prefix(key));
    let fingerprint = Fingerprint::parse(field("name=")?)?;
    Some(NamedClient { address: field("addr=")?.to_owned(), fingerprint })
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, quorum, set, max_ttl_ms, prefix } = self;
        write!(f, "{MARK}nodes={nodes}-{:08x},quorum={quorum},", set.0)?;
        write!(f, "max_ttl={max_ttl_ms}ms,prefix={:08x}", prefix.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[&str], seconds: u64, prefix: &str) -> Fingerprint {
        let places: Vec<_> = places.iter().map(|place| (*place).to_owned()).collect();
        let quorum = places.len() / 2 + 1;
        Fingerprint::new(places, quorum, Duration::from_secs(seconds), prefix.as_bytes())
    }

    #[test]
    fn connection_name_round_trips() {
        let ours = of(&["a:6379/0", "b:6379/0", "c:6379/0"], 60, "app:");
        let name = ours.to_string();
        assert_eq!(name, "quorlock:nodes=3-c5d5b5b4,quorum=2,max_ttl=60000ms,prefix=5b61accd");
        assert_eq!(Fingerprint::parse(&name), Some(ours));
        assert_eq!(Fingerprint::parse(&format!("{name},more=1")), Some(ours), "a later version");
        assert!(name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "valid for CLIENT SETNAME");
        let turned = of(&["c:6379/0", "a:6379/0", "b:6379/0"], 60, "app:");
        assert_eq!(turned, ours, "order does not matter");
        for other in [
            of(&["a:6379/0", "b:6379/0", "d:6379/0"], 60, "app:"),
            of(&["a:6379/0", "b:6379/0", "c:6379/1"], 60, "app:"),
            of(&["a:6379/0", "b:6379/0"], 60, "app:"),
        ] {
            assert!(other != ours && !other.has_same_nodes(&ours), "{other}");
        }
        let longer = of(&["a:6379/0", "b:6379/0", "c:6379/0"], 61, "app:");
        assert!(longer.has_same_nodes(&ours) && longer.max_ttl() > ours.max_ttl());
        assert!(!of(&["a:6379/0"], 60, "").has_same_prefix(&ours));
    }

    #[test]
    fn foreign_connection_names_are_rejected() {
        for name in [
            "",
            "quorlock",
            "quorlock:",
            "worker-7",
            "quorlock:nodes=3,quorum=2,max_ttl=60000ms,prefix=0",
            "quorlock:nodes=3-8,quorum=2,max_ttl=60000,prefix=0",
            "quorlock:nodes=-8,quorum=2,max_ttl=1ms,prefix=0",
            "quorlock:quorum=2,nodes=3-8,max_ttl=1ms,prefix=0",
        ] {
            assert_eq!(Fingerprint::parse(name), None, "{name}");
        }
    }

    #[test]
    fn named_clients_are_found_in_client_list() {
        let ours = of(&["a:6379/0"], 60, "");
        let list = format!(
            "id=3 addr=10.0.0.7:5000 laddr=10.0.0.1:6379 fd=8 name={ours} age=1 cmd=client|list\n\
             id=4 addr=10.0.0.8:5000 laddr=10.0.0.1:6379 fd=9 name= age=1 cmd=get\n\
             id=5 fd=9 name={ours}\n"
        );
        let found = |list: &Value| named_clients(list).map(|found| found.len());
        let reply = Value::BulkString(list.clone().into_bytes());
        let one = NamedClient { address: "10.0.0.7:5000".to_owned(), fingerprint: ours };
        assert_eq!(named_clients(&reply), Some(vec![one]));
        let format = redis::VerbatimFormat::Text;
        assert_eq!(found(&Value::VerbatimString { format, text: list }), Some(1));
        let refused = redis::parse_redis_value(b"-NOPERM no\r\n").expect("an error reply");
        assert_eq!((found(&refused), found(&Value::Nil)), (None, None));
    }
}
