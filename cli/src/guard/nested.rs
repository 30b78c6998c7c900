//! Detects a `quorlock` that requests a lock held by a `quorlock` above it: it would wait indefinitely.

use crate::exit::{Code, Failure};
use crate::nodes::{self, Client};
use crate::resource;
use quorlock::{Lease, NodeStatus};
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// The variable with the locks of the processes above this one, as JSON.
const HELD: &str = "QUORLOCK_HELD";

/// A lock of a process above this one. It can have been released: a daemon outlives the lock it was started under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldLock {
    /// The addresses of the nodes with their databases, sorted.
    nodes: Vec<String>,
    /// The keys, escaped by `resource::shown`.
    keys: Vec<String>,
    /// The value of the keys while the lock is held.
    value: String,
}

/// The variables for a command that runs under a lock.
#[derive(Debug)]
pub(crate) struct LockEnvironment {
    inherited: Vec<HeldLock>,
    /// The requested lock; its value is not known yet.
    own: HeldLock,
    /// The names of its resources, as lines.
    names: OsString,
}

impl LockEnvironment {
    /// Contacts the nodes only if this process was started under a lock on one of `resources`.
    ///
    /// # Errors
    /// With the exit code `conflict` if a `quorlock` above this process still holds one of the `resources` on the same
    /// nodes.
    pub(crate) async fn new(
        client: &Client,
        resources: &[&[u8]],
        conflict: Code,
    ) -> Result<Self, Failure> {
        let (inherited, own) = (inherited_locks()?, HeldLock::new(client, resources));
        for (resource, key) in resources.iter().zip(&own.keys) {
            let same =
                inherited.iter().filter(|held| held.nodes == own.nodes && held.keys.contains(key));
            let values: Vec<&str> = same.map(|held| &*held.value).collect();
            if !values.is_empty() && is_held(client, resource, &values).await? {
                return Err(Failure::new(
                    conflict,
                    format!(
                        "{} is already held by an outer quorlock process: waiting would be a deadlock, because that \
                         process releases the lock only when its command ends",
                        resource::shown(resource)
                    ),
                ));
            }
        }
        Ok(Self { inherited, own, names: OsString::from_vec(resources.join(&b'\n')) })
    }

    /// The variables for a command that runs under `lease`.
    pub(super) fn variables(&self, lease: &Lease) -> io::Result<[(&'static str, OsString); 2]> {
        let own = HeldLock { value: lease.value().to_owned(), ..self.own.clone() };
        let held: Vec<&HeldLock> = self.inherited.iter().chain([&own]).collect();
        let held = serde_json::to_string(&held)?;
        Ok([("QUORLOCK_RESOURCE", self.names.clone()), (HELD, held.into())])
    }
}

impl HeldLock {
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

fn inherited_locks() -> Result<Vec<HeldLock>, Failure> {
    let Some(text) = env::var_os(HELD) else { return Ok(Vec::new()) };
    let text = text.to_str().unwrap_or_default();
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!(
            "invalid {HELD}: {error}; unset it (quorlock sets it for the commands that it runs)"
        ))
    })
}

/// True if any node has the lock with one of `values`. A minority is enough, because the other nodes may be
/// unreachable.
async fn is_held(client: &Client, resource: &[u8], values: &[&str]) -> Result<bool, Failure> {
    client.settle().await?;
    let status = client.redlock.status(resource).await?;
    let mut holders = status.nodes().iter().filter_map(NodeStatus::holder);
    Ok(holders.any(|holder| values.iter().any(|value| holder.has_value(value))))
}
