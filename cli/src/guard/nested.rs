//! Detects requests for a lock that an outer `quorlock` process holds. They would deadlock, because the outer process
//! waits for its command.

use crate::exit::{Code, Failure};
use crate::nodes::{self, Client};
use crate::resource;
use quorlock::{Lease, NodeStatus};
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// This environment variable contains the locks of the outer `quorlock` processes, as JSON.
const HELD: &str = "QUORLOCK_HELD";

/// A lock of an outer `quorlock` process. It may already have been released, because a daemon can outlive the lock
/// under which it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldLock {
    /// The addresses of the nodes with their database numbers, sorted.
    nodes: Vec<String>,
    /// The keys, escaped by `resource::display_name`.
    keys: Vec<String>,
    /// The value of the keys while the lock is held.
    value: String,
}

#[derive(Debug)]
pub(crate) struct LockEnvironment {
    inherited: Vec<HeldLock>,
    /// The requested lock. Its value is empty until the lock is acquired.
    own: HeldLock,
    /// The names of the requested resources, one per line.
    names: OsString,
}

impl LockEnvironment {
    /// Checks that no outer `quorlock` process holds one of the `resources`. Contacts the nodes only if this process
    /// was started under a lock on one of them.
    ///
    /// # Errors
    /// If an outer `quorlock` process still holds one of the `resources` on the same nodes, fails with the exit code
    /// `conflict`.
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
                        resource::display_name(resource)
                    ),
                ));
            }
        }
        Ok(Self { inherited, own, names: OsString::from_vec(resources.join(&b'\n')) })
    }

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
        let keys =
            resources.iter().map(|resource| resource::display_name(&[prefix, resource].concat()));
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

/// Returns true if at least one node stores one of `values` for the lock. One node is sufficient, because the others
/// may be unreachable.
async fn is_held(client: &Client, resource: &[u8], values: &[&str]) -> Result<bool, Failure> {
    client.settle().await?;
    let status = client.redlock.status(resource).await?;
    let mut holders = status.nodes().iter().filter_map(NodeStatus::holder);
    Ok(holders.any(|holder| values.iter().any(|value| holder.has_value(value))))
}
