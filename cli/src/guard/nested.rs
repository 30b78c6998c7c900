//! Commands that run under the lock that they want: they would wait for themselves.

use crate::exit::Failure;
use crate::nodes::{self, Client};
use crate::resource;
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// What is held by those that this process runs under, as JSON.
const HELD: &str = "QUORLOCK_HELD";

/// Locks that somebody above us holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// The addresses of the nodes with their databases, sorted.
    nodes: Vec<String>,
    /// The keys, as text: no two keys have the same.
    keys: Vec<String>,
}

impl Held {
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
        Self { nodes, keys }
    }
}

/// Those that are held above us.
fn inherited() -> Result<Vec<Held>, Failure> {
    let Some(text) = env::var_os(HELD) else { return Ok(Vec::new()) };
    let text = text.to_str().unwrap_or_default();
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{HELD} is quorlock's own, and is not as it was set: {error}"))
    })
}

/// # Errors
/// If one of the `resources` is held, on the same nodes, by a `quorlock` that this process runs under.
pub(crate) fn refuse(client: &Client, resources: &[&[u8]]) -> Result<(), Failure> {
    variables(client, resources).map(drop)
}

/// What a command is told of the locks that it is to run under.
///
/// # Errors
/// Those of [`refuse`].
pub(super) fn variables(
    client: &Client,
    resources: &[&[u8]],
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut held = inherited()?;
    let wanted = Held::new(client, resources);
    let is_held = |key: &String| {
        held.iter().any(|above| above.nodes == wanted.nodes && above.keys.contains(key))
    };
    if let Some(at) = wanted.keys.iter().position(is_held) {
        return Err(Failure::usage(format!(
            "{} is held by the quorlock that this command runs under: it would wait for itself",
            resource::shown(resources[at])
        )));
    }
    held.push(wanted);
    let held = serde_json::to_string(&held).map_err(std::io::Error::from)?;
    let told = OsString::from_vec(resources.join(&b'\n'));
    Ok(vec![("QUORLOCK_RESOURCE", told), (HELD, held.into())])
}
