//! Detects requests for a lock that an outer `quorlock` process holds, and for a semaphore of which outer processes hold
//! all permits. They would deadlock, because an outer process waits for its command. Readers can be nested in a reader.

use crate::exit::{Code, Failure};
use crate::nodes::{self, Client};
use crate::resource;
use crate::target::Target;
use quorlock::{Lease, NodeStatus, Semaphore, Status};
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::io;

/// This environment variable contains the locks of the outer `quorlock` processes, as JSON.
const HELD: &str = "QUORLOCK_HELD";

/// The value of a lock's key while readers hold the lock. Nodes do not report the value of each reader.
const READERS: &str = "quorlock:readers";

/// A lock of an outer `quorlock` process. It may already have been released, because a daemon can outlive the lock
/// under which it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldLock {
    /// The addresses of the nodes with their database numbers, sorted.
    nodes: Vec<String>,
    /// The keys, escaped by `resource::display_name`. Empty for a permit of a semaphore.
    keys: Vec<String>,
    /// The prefixed name of the semaphore, escaped in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    semaphore: Option<String>,
    /// The value of the keys while the lock is held: the value of the lease, or [`READERS`].
    value: String,
}

#[derive(Debug)]
pub(crate) struct LockEnvironment {
    inherited: Vec<HeldLock>,
    /// The requested lock. Its value is [`READERS`] for a reader, and otherwise empty until the lock is acquired.
    own: HeldLock,
    /// The names of the requested resources, one per line, or the name of the semaphore.
    names: OsString,
}

impl LockEnvironment {
    /// Checks that no outer `quorlock` process holds one of the requested resources, and that outer processes do not
    /// hold all permits of the requested semaphore. Contacts the nodes only if this process was started under the same
    /// lock.
    ///
    /// # Errors
    /// If a request would be a deadlock on the same nodes, fails with the exit code `conflict`.
    pub(crate) async fn new(
        client: &Client,
        target: Target<'_>,
        conflict: Code,
    ) -> Result<Self, Failure> {
        let inherited = inherited_locks()?;
        let own = HeldLock::new(client, target);
        let deadlock = match target {
            Target::Resources(names) => own.find_held(client, names, &inherited).await?,
            Target::Shared(lock) => own.find_held(client, &[lock.resource()], &inherited).await?,
            Target::Permit(semaphore) => own.find_full(client, semaphore, &inherited).await?,
        };
        match deadlock {
            Some(message) => Err(Failure::new(conflict, message)),
            None => Ok(Self { inherited, own, names: target.lines() }),
        }
    }

    pub(super) fn variables(&self, lease: &Lease) -> io::Result<[(&'static str, OsString); 2]> {
        let mut own = self.own.clone();
        if !own.is_reader() {
            lease.value().clone_into(&mut own.value);
        }
        let held: Vec<&HeldLock> = self.inherited.iter().chain([&own]).collect();
        let held = serde_json::to_string(&held)?;
        Ok([("QUORLOCK_RESOURCE", self.names.clone()), (HELD, held.into())])
    }
}

impl HeldLock {
    fn new(client: &Client, target: Target<'_>) -> Self {
        let nodes = client.redlock.nodes();
        let databases = client.config.nodes.iter().map(|url| nodes::database(url));
        let pairs = nodes.iter().zip(databases);
        let mut nodes: Vec<_> =
            pairs.map(|(node, database)| format!("{}/{database}", node.name())).collect();
        nodes.sort_unstable();
        let prefix = client.config.key_prefix.as_deref().unwrap_or_default().as_bytes();
        let key = |name: &[u8]| resource::display_name(&[prefix, name].concat());
        let (keys, semaphore) = match target {
            Target::Resources(names) => (names.iter().map(|name| key(name)).collect(), None),
            Target::Shared(lock) => (vec![key(lock.resource())], None),
            Target::Permit(semaphore) => (Vec::new(), Some(key(semaphore.name()))),
        };
        let value = if matches!(target, Target::Shared(_)) { READERS } else { "" };
        Self { nodes, keys, semaphore, value: value.to_owned() }
    }

    fn is_reader(&self) -> bool {
        self.value == READERS
    }

    /// Finds a requested resource that an outer process holds, and returns the message about it.
    async fn find_held(
        &self,
        client: &Client,
        names: &[&[u8]],
        inherited: &[Self],
    ) -> Result<Option<String>, Failure> {
        for (name, key) in names.iter().zip(&self.keys) {
            let values = self.values(inherited, |held| {
                held.keys.contains(key) && !(self.is_reader() && held.is_reader())
            });
            if values.is_empty() {
                continue;
            }
            client.settle().await?;
            if has_value(&client.redlock.status(name).await?, &values) {
                return Ok(Some(format!(
                    "{} is already held by an outer quorlock process: waiting would be a deadlock, because that \
                     process releases the lock only when its command ends",
                    resource::display_name(name)
                )));
            }
        }
        Ok(None)
    }

    /// Returns a message if outer processes hold all permits of the requested semaphore.
    async fn find_full(
        &self,
        client: &Client,
        semaphore: &Semaphore,
        inherited: &[Self],
    ) -> Result<Option<String>, Failure> {
        let permits = semaphore.permits();
        let values = self.values(inherited, |held| held.semaphore == self.semaphore);
        if values.len() < permits {
            return Ok(None);
        }
        client.settle().await?;
        let status = semaphore.status().await?;
        let own = status.details().iter().take(permits);
        if own.filter(|permit| has_value(permit, &values)).count() < permits {
            return Ok(None);
        }
        Ok(Some(format!(
            "{} has no free permit, and all are held by outer quorlock processes: waiting would be a deadlock, because \
             these processes release their permits only when their commands end",
            resource::display_name(semaphore.name())
        )))
    }

    /// Returns the values of the inherited locks on the same nodes for which `is_same` returns true.
    fn values<'a>(&self, inherited: &'a [Self], is_same: impl Fn(&Self) -> bool) -> Vec<&'a str> {
        let same = inherited.iter().filter(|held| held.nodes == self.nodes && is_same(held));
        same.map(|held| &*held.value).collect()
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
fn has_value(status: &Status, values: &[&str]) -> bool {
    let mut holders = status.nodes().iter().filter_map(NodeStatus::holder);
    holders.any(|holder| values.iter().any(|value| holder.has_value(value)))
}
