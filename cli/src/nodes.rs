//! Builds the Redlock client from options, the settings file and environment variables.

use crate::exit::Failure;
use crate::options::{LockOptions, NodeOptions, RestartOptions};
use crate::outage::Attempts;
use crate::output;
use crate::settings::AvailableOptions;
use crate::warnings::Warnings;
use quorlock::{Builder, Config, NodeState, Redlock, RestartGuard};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer};
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::select;
use tokio::time::{sleep, timeout};

/// The prefix of the environment variables with settings.
const PREFIX: &str = "QUORLOCK";

/// The default ttl of [`Builder`].
const TTL: Duration = Duration::from_secs(10);

const BYTE_ORDER_MARK: char = '\u{feff}';

const POLL_INTERVAL: Duration = Duration::from_millis(5);

const NO_NODES: &str = "no nodes given: use --node URL (once per node) or --nodes-file FILE, or set \
                        QUORLOCK_NODES=\"redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3\"";

const SECRET_IN_URL: &str = "contains a user or a password, which ps shows to all users of this machine: pass the URLs in --nodes-file \
                             FILE or in the environment variable QUORLOCK_NODES";

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) redlock: Redlock,
    pub(crate) ttl: Duration,
    /// The `wait` setting of the file or the environment, which `--wait` overrides.
    pub(crate) wait: Option<Duration>,
    /// Limits the duration of [`settle`](Self::settle) and [`close`](Self::close).
    pub(crate) connect_timeout: Duration,
    pub(crate) config: Config,
    /// The results of the latest attempts to acquire a lock.
    pub(crate) attempts: Arc<Attempts>,
}

impl Client {
    /// Creates a client for commands that acquire no locks. If `guard` is given, it overrides the restart guard of the
    /// settings.
    pub(crate) fn new(options: &NodeOptions, guard: Option<RestartGuard>) -> Result<Self, Failure> {
        Self::build(config(options)?, guard, AvailableOptions::Nodes, String::new())
    }

    /// Creates a client for commands that acquire locks. The options override the settings. Warnings contain the `names` of
    /// the resources or of the semaphore.
    pub(crate) fn for_locks(
        options: &NodeOptions,
        restarts: &RestartOptions,
        lock: &LockOptions,
        names: String,
    ) -> Result<Self, Failure> {
        let mut config = config(options)?;
        config.ttl = lock.ttl.or(config.ttl);
        config.max_ttl = lock.max_ttl.or(config.max_ttl);
        if lock.metadata.is_some() {
            (config.metadata, config.owner) = (lock.metadata.clone(), None);
        } else if config.metadata.is_none() {
            config.owner = config.owner.or(Some(true));
        }
        Self::build(config, restarts.guard(), AvailableOptions::Lock, names)
    }

    /// Builds the client. The default restart guard is strict, because a new client has observed no restarts. If a
    /// setting is among `options`, error messages name its option.
    fn build(
        mut config: Config,
        guard: Option<RestartGuard>,
        options: AvailableOptions,
        names: String,
    ) -> Result<Self, Failure> {
        config.restart_guard = guard.or(config.restart_guard).or(Some(RestartGuard::Strict));
        let builder = Builder::from_config(config.clone());
        let attempts = Arc::<Attempts>::default();
        let built = builder.observer(Warnings::new(names, attempts.clone())).build();
        let redlock = built.map_err(|error| Failure::setting(&error, options))?;
        Ok(Self {
            redlock,
            ttl: config.ttl.unwrap_or(TTL),
            wait: config.wait,
            connect_timeout: config.connect_timeout.unwrap_or(Duration::from_secs(1)),
            config,
            attempts,
        })
    }

    /// Returns true if the restart guard excludes recently started nodes even when all nodes started recently.
    pub(crate) fn is_strict(&self) -> bool {
        self.config.restart_guard == Some(RestartGuard::Strict)
    }

    /// Waits until every connection attempt has succeeded or failed, but at most for the connect timeout. Otherwise, a
    /// new client would only report on the nodes that connect fastest.
    ///
    /// # Errors
    /// Fails if no node could be connected.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let mut ready = pin!(self.redlock.ready());
        let mut connecting = pin!(async {
            while self.redlock.nodes().iter().any(|node| *node.state() == NodeState::Connecting) {
                sleep(POLL_INTERVAL).await;
            }
        });
        let settled = async {
            select! {
                // `ready` stays pending while no quorum is connected.
                is_ready = &mut ready => is_ready?,
                () = &mut connecting => return Ok(()),
            }
            connecting.await;
            Ok(())
        };
        // After a timeout, the result of the next request reports the nodes that are still connecting.
        timeout(self.connect_timeout, settled).await.unwrap_or(Ok(()))
    }

    /// Closes the client, and delivers pending releases for at most the connect timeout. If a release could not be
    /// delivered, prints a message. The keys then expire after the TTL.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.redlock.close().await {
            output::print_message(format_args!(
                "{error}: these keys remain on these nodes until they expire"
            ));
        }
    }
}

/// Merges the settings of all sources. The nodes come from a single source: `--node`, the file, or else the
/// environment. For other settings, the environment overrides the file, and the TLS options override both.
fn config(options: &NodeOptions) -> Result<Config, Failure> {
    let mut given = match &options.nodes_file {
        Some(file) => read("--nodes-file", file)?,
        None => Config::new(urls_without_secrets(&options.node)?),
    };
    let nodes = std::mem::take(&mut given.nodes);
    // Only an invalid environment variable causes an error here.
    let config = given.with_env(PREFIX);
    let mut config = config.map_err(|error| Failure::setting(&error, AvailableOptions::Nodes))?;
    if !nodes.is_empty() {
        config.nodes = nodes;
    }
    if config.nodes.is_empty() {
        return Err(Failure::usage(NO_NODES));
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

/// Returns the URLs of `--node`, or an error if a URL contains a user or a password. The error gives the URL's position
/// instead of the URL.
fn urls_without_secrets(urls: &[String]) -> Result<&[String], Failure> {
    let has_secret = |url: &String| {
        let url = url.to_ascii_lowercase();
        ["@", "pass=", "password="].iter().any(|mark| url.contains(mark))
    };
    match urls.iter().position(has_secret) {
        Some(at) => Err(Failure::usage(format!("URL {} of --node {SECRET_IN_URL}", at + 1))),
        None => Ok(urls),
    }
}

/// Reads a settings file. Error messages contain no URL, because a URL may contain a password.
pub(crate) fn read(option: &str, file: &Path) -> Result<Config, Failure> {
    let failure =
        |what: &dyn std::fmt::Display| Failure::usage(format!("{option} {}{what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failure(&format_args!(": {error}")))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let config = if is_list(text) {
        Config::new(uncommented_lines(text).flat_map(urls))
    } else {
        toml::from_str::<Config>(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count());
            failure(&format_args!(", line {}: {}", line + 1, error.message()))
        })?
    };
    if config.nodes.is_empty() {
        return Err(failure(&": the file contains no nodes"));
    }
    Ok(config)
}

/// Removes comments, and returns the remaining lines that are not empty. A `#` begins a comment only at the start of a
/// line or after white space, because URLs can contain a `#`.
fn uncommented_lines(text: &str) -> impl Iterator<Item = &str> {
    let uncommented = |line: &str| {
        let mut marks = line.match_indices('#').map(|(at, _)| at);
        let comment =
            marks.find(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        comment.unwrap_or(line.len())
    };
    text.lines().map(move |line| line[..uncommented(line)].trim()).filter(|line| !line.is_empty())
}

/// Splits a line into URLs, which are separated by commas or white space as in `QUORLOCK_NODES`.
fn urls(line: &str) -> Vec<String> {
    let nodes = MapDeserializer::<_, ValueError>::new([("nodes", line)].into_iter());
    Config::deserialize(nodes).map_or_else(|_| vec![line.to_owned()], |config| config.nodes)
}

/// Returns true if `text` is a list of URLs, and false if it is a TOML file. A list begins with a URL scheme, or with a
/// line that contains no `=` and does not begin with `[`.
fn is_list(text: &str) -> bool {
    let Some(line) = uncommented_lines(text).next() else { return true };
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '+';
    let has_scheme = line.split_once("://").is_some_and(|(scheme, _)| scheme.chars().all(is_part));
    has_scheme || !(line.contains('=') || line.starts_with('['))
}

/// Returns the database number in a valid URL. The default is 0. Locks in different databases are independent.
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
    fn database_number_is_read_from_path_or_query() {
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
