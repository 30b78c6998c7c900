//! Commands that run under the lock that they want: they would wait for themselves.

use crate::exit::{Code, Failure};
use crate::nodes::{self, Client};
use crate::resource;
use quorlock::{Lease, NodeStatus};
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// Locks that this process was started under, as JSON.
const HELD: &str = "QUORLOCK_HELD";

/// A lock of a process above this one. A daemon that was started under it can outlive it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// The addresses of the nodes with their databases, sorted.
    nodes: Vec<String>,
    /// The keys, as text: no two keys have the same.
    keys: Vec<String>,
    /// The value that the keys have while it is held.
    value: String,
}

/// The mark of a lock for the commands that run under it.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Locks that this process was started under.
    above: Vec<Held>,
    /// The wanted lock, without its value.
    own: Held,
    /// The names of its resources, as lines.
    names: OsString,
}

impl Mark {
    /// The mark of a lock of `resources`. Asks the nodes only if this process was started under such a lock.
    ///
    /// # Errors
    /// One with the exit code `conflict` if a `quorlock` that this process runs under still holds one of the `resources` on
    /// the same nodes.
    pub(crate) async fn new(
        client: &Client,
        resources: &[&[u8]],
        conflict: Code,
    ) -> Result<Self, Failure> {
        let (above, own) = (inherited()?, Held::new(client, resources));
        for (resource, key) in resources.iter().zip(&own.keys) {
            let same =
                above.iter().filter(|held| held.nodes == own.nodes && held.keys.contains(key));
            let values: Vec<&str> = same.map(|held| &*held.value).collect();
            if !values.is_empty() && is_held(client, resource, &values).await? {
                return Err(Failure::new(
                    conflict,
                    format!(
                        "{} is held by the quorlock that this command runs under: it would wait for itself",
                        resource::shown(resource)
                    ),
                ));
            }
        }
        Ok(Self { above, own, names: OsString::from_vec(resources.join(&b'\n')) })
    }

    /// The variables for a command that runs under `lease`.
    pub(super) fn variables(&self, lease: &Lease) -> io::Result<[(&'static str, OsString); 2]> {
        let own = Held { value: lease.value().to_owned(), ..self.own.clone() };
        let held: Vec<&Held> = self.above.iter().chain([&own]).collect();
        let held = serde_json::to_string(&held)?;
        Ok([("QUORLOCK_RESOURCE", self.names.clone()), (HELD, held.into())])
    }
}

impl Held {
    /// A lock of `resources` that is not held yet.
    fn new(client: &Client, resources: &[&[u8]]) -> Self {
        let nodes = client.redlock.nodes();
        let databases = client.config.nodes.iter().map(|url| nodes::database(url));
        let pairs = nodes.iter().zip(databases);
        let mut nodes: Vec<_> =
            pairs.map(|(node, database)| format!("{}/{database}", node.name())).collect();
        nodes.sort_unstable();
        let prefix = client.config.key_prefix.as_deref().unwrap_or_default().as_bytes();
        let keys = resources.iter().map(|resource| resource::shown(&[prefix, resource].concat()));
        let keys = keys.collect();
        Self { nodes, keys, value: String::new() }
    }
}

/// Locks that this process was started under.
fn inherited() -> Result<Vec<Held>, Failure> {
    let Some(text) = env::var_os(HELD) else { return Ok(Vec::new()) };
    let text = text.to_str().unwrap_or_default();
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{HELD} is quorlock's own, and is not as it was set: {error}"))
    })
}

/// True if any node has the lock with one of `values`. A minority is enough: the others may not answer now.
async fn is_held(client: &Client, resource: &[u8], values: &[&str]) -> Result<bool, Failure> {
    client.settle().await?;
    let status = client.redlock.status(resource).await?;
    let mut holders = status.nodes().iter().filter_map(NodeStatus::holder);
    Ok(holders.any(|holder| values.iter().any(|value| holder.has_value(value))))
}
