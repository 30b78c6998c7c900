//! Which nodes, and with which settings: from options, a file, and the environment.

use crate::exit::Failure;
use crate::options::{LockOptions, NodeOptions, RestartOptions};
use crate::output;
use crate::renewals::Renewals;
use quorlock::{Builder, Config, NodeState, Redlock, RestartGuard};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer};
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::select;
use tokio::time::{sleep, timeout};

/// The prefix of our variables.
const PREFIX: &str = "QUORLOCK";

/// How long the nodes keep a lock, if nothing is said; see [`Builder`].
const TTL: Duration = Duration::from_secs(10);

/// Some editors begin a file with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// How often a client that is new is looked at.
const STEP: Duration = Duration::from_millis(5);

const NONE: &str = "no nodes: name them by --node URL (once for each), by --nodes-file FILE, or by the variable \
                    QUORLOCK_NODES=\"redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3\"";

const SECRET: &str = "has a user or a password, which everybody can see in ps: write the URLs into a file and name it by \
                      --nodes-file FILE, or use the variable QUORLOCK_NODES";

/// A client of the nodes, and what its settings come to.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) redlock: Redlock,
    /// How long the nodes keep a lock.
    pub(crate) ttl: Duration,
    /// How long a lock is waited for, if a file or the environment says so.
    pub(crate) wait: Option<Duration>,
    /// How long a client that is new waits for its nodes.
    pub(crate) connect_timeout: Duration,
    /// The nodes' URLs and the key prefix: two clients of the same compete for the same locks.
    pub(crate) config: Config,
}

impl Client {
    /// A client for looking. `guard` counts before the settings.
    pub(crate) fn new(options: &NodeOptions, guard: Option<RestartGuard>) -> Result<Self, Failure> {
        Self::build(config(options)?, guard)
    }

    /// A client for locks.
    pub(crate) fn for_locks(
        options: &NodeOptions,
        restarts: &RestartOptions,
        lock: &LockOptions,
    ) -> Result<Self, Failure> {
        let mut config = config(options)?;
        config.ttl = lock.ttl.or(config.ttl);
        config.max_ttl = lock.max_ttl.or(config.max_ttl);
        if lock.metadata.is_some() {
            (config.metadata, config.owner) = (lock.metadata.clone(), None);
        } else if config.metadata.is_none() {
            config.owner = config.owner.or(Some(true));
        }
        Self::build(config, restarts.guard())
    }

    /// A client with the strict guard, unless an option or a setting names another: a new client has seen no restart.
    fn build(mut config: Config, guard: Option<RestartGuard>) -> Result<Self, Failure> {
        config.restart_guard = guard.or(config.restart_guard).or(Some(RestartGuard::Strict));
        let builder = Builder::from_config(config.clone());
        let redlock = builder.observer(Renewals::default()).build()?;
        Ok(Self {
            redlock,
            ttl: config.ttl.unwrap_or(TTL),
            wait: config.wait,
            connect_timeout: config.connect_timeout.unwrap_or(Duration::from_secs(1)),
            config,
        })
    }

    /// True for the guard under which no young node counts, whatever the others are.
    pub(crate) fn is_strict(&self) -> bool {
        self.config.restart_guard == Some(RestartGuard::Strict)
    }

    /// Waits until each node is connected or could not be, at most one connect timeout: what is asked of a client that
    /// is new would else be answered by those that are near.
    ///
    /// # Errors
    /// If no node can be connected to at all.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let mut ready = pin!(self.redlock.ready());
        let mut connecting = pin!(async {
            while self.redlock.nodes().iter().any(|node| *node.state() == NodeState::Connecting) {
                sleep(STEP).await;
            }
        });
        let settled = async {
            select! {
                // Or never, without a quorum.
                is_ready = &mut ready => is_ready?,
                () = &mut connecting => return Ok(()),
            }
            connecting.await;
            Ok(())
        };
        // Nodes that take longer are told of as such.
        timeout(self.connect_timeout, settled).await.unwrap_or(Ok(()))
    }

    /// Waits until every node has been told what it has to release: the process can then end. At most one connect
    /// timeout; what is left expires by itself, and is complained of.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.redlock.close().await {
            output::complain(format_args!("{error}: these locks stand until their ttl ends"));
        }
    }
}

/// The settings, from wherever they come: of the nodes one place counts, of the others the environment before the file.
fn config(options: &NodeOptions) -> Result<Config, Failure> {
    let mut given = match &options.nodes_file {
        Some(file) => read("--nodes-file", file)?,
        None => Config::new(plain(&options.node)?),
    };
    let nodes = std::mem::take(&mut given.nodes);
    let mut config = given.with_env(PREFIX)?;
    if !nodes.is_empty() {
        config.nodes = nodes;
    }
    if config.nodes.is_empty() {
        return Err(Failure::usage(NONE));
    }
    for (option, setting) in [
        (&options.cacert, &mut config.tls_ca_cert_file),
        (&options.cert, &mut config.tls_cert_file),
        (&options.key, &mut config.tls_key_file),
    ] {
        if option.is_some() {
            setting.clone_from(option);
        }
    }
    Ok(config)
}

/// The URLs of the command line. One with a secret is refused, and not shown again.
fn plain(urls: &[String]) -> Result<&[String], Failure> {
    let has_secret = |url: &String| {
        let url = url.to_ascii_lowercase();
        ["@", "pass=", "password="].iter().any(|mark| url.contains(mark))
    };
    match urls.iter().position(has_secret) {
        Some(at) => Err(Failure::usage(format!("--node {} {SECRET}", at + 1))),
        None => Ok(urls),
    }
}

/// The settings of a file. No error shows a URL that may have a password.
pub(crate) fn read(option: &str, file: &Path) -> Result<Config, Failure> {
    let failure =
        |what: &dyn std::fmt::Display| Failure::usage(format!("{option} {}{what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failure(&format_args!(": {error}")))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let config = if is_list(text) {
        Config::new(meaningful(text).flat_map(urls))
    } else {
        toml::from_str::<Config>(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count());
            failure(&format_args!(", line {}: {}", line + 1, error.message()))
        })?
    };
    if config.nodes.is_empty() {
        return Err(failure(&": it names no nodes"));
    }
    Ok(config)
}

/// The lines without comments. A `#` begins one at the start of a line or after white space; elsewhere it is a part of
/// the URL.
fn meaningful(text: &str) -> impl Iterator<Item = &str> {
    let uncommented = |line: &str| {
        let mut marks = line.match_indices('#').map(|(at, _)| at);
        let comment =
            marks.find(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        comment.unwrap_or(line.len())
    };
    text.lines().map(move |line| line[..uncommented(line)].trim()).filter(|line| !line.is_empty())
}

/// The URLs of a line, separated as in the variable.
fn urls(line: &str) -> Vec<String> {
    let nodes = MapDeserializer::<_, ValueError>::new([("nodes", line)].into_iter());
    Config::deserialize(nodes).map_or_else(|_| vec![line.to_owned()], |config| config.nodes)
}

/// True for a list of URLs: the first of its lines begins with a scheme, or is nothing that TOML can begin with.
fn is_list(text: &str) -> bool {
    let Some(line) = meaningful(text).next() else { return true };
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '+';
    let has_scheme = line.split_once("://").is_some_and(|(scheme, _)| scheme.chars().all(is_part));
    has_scheme || !(line.contains('=') || line.starts_with('['))
}

/// The number of the database that a good URL names: locks in two of them have nothing to do with each other.
pub(crate) fn database(url: &str) -> u32 {
    let (scheme, place) = url.trim().split_once("://").unwrap_or_default();
    let (place, query) = place.split_once('?').unwrap_or((place, ""));
    let query = query.split('#').next().unwrap_or_default();
    let parameter = query.split('&').find_map(|pair| pair.strip_prefix("db="));
    let named = parameter.or_else(|| {
        let (_, path) =
            place.split_once('/').filter(|_| !scheme.to_ascii_lowercase().contains("unix"))?;
        path.split(['/', '#']).next()
    });
    named.and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_a_database() {
        for (url, number) in [
            ("redis://10.0.0.1", 0),
            ("redis://10.0.0.1:6379/", 0),
            (" redis://me:p%2F2@10.0.0.1/3 ", 3),
            ("rediss://10.0.0.1/12?protocol=resp3", 12),
            ("rediss://10.0.0.1/4#insecure", 4),
            ("redis://10.0.0.1?db=5", 5),
            ("rediss://10.0.0.1/?protocol=resp3&db=6#insecure", 6),
            ("unix:///run/5?user=me&db=6", 6),
            ("unix:///run/5", 0),
        ] {
            assert_eq!(database(url), number, "{url}");
        }
    }
}
