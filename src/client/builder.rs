//! The builder of a client, and the defaults of its settings.

use super::config::Config;
use super::redlock::Redlock;
use super::restart_guard::RestartGuard;
use crate::client::address::{self, NodeTarget};
use crate::error::ConfigError;
use crate::node::{CredentialSource, Environment};
use crate::observe::{Observer, escape_name};
use crate::protocol::RetryPolicy;
#[cfg(test)]
use crate::transport::Transport;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A builder for a [`Redlock`] client.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`ttl`](Self::ttl) | 10 s |
/// | [`max_ttl`](Self::max_ttl) | 60 s |
/// | [`restart_guard`](Self::restart_guard) | [`Observed`](RestartGuard::Observed) |
/// | [`wait`](Self::wait) | 10 s |
/// | [`node_timeout`](Self::node_timeout) | 50 ms |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s |
/// | [`drift_factor`](Self::drift_factor) | 0.01 |
/// | [`drift_constant`](Self::drift_constant) | 2 ms |
/// | [`retry`](Self::retry) | jittered, 50 ms to 250 ms |
/// | [`key_prefix`](Self::key_prefix) | none |
/// | [`credentials`](Self::credentials) | from the nodes' URLs |
/// | [`metadata`](Self::metadata) | none |
/// | [`fenced`](Self::fenced) | no |
/// | [`token_ttl`](Self::token_ttl) | 24 h |
/// | [`observer`](Self::observer) | none |
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    pub(crate) nodes: Vec<Result<NodeTarget, ConfigError>>,
    /// All settings that are plain data, except the nodes and the key prefix.
    pub(crate) config: Config,
    pub(super) prefix: Box<[u8]>,
    pub(crate) runtime: Option<Handle>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(crate) environment: Environment,
    pub(super) credentials: Option<CredentialSource>,
}

macro_rules! config_setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
            self.config.$name = Some($name);
            self
        })*
    };
}

impl Redlock {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Creates a builder with the settings of `config`. Later calls to the builder's methods override these settings.
    ///
    /// If a setting is invalid, [`build`](Self::build) returns the error.
    pub fn from_config(mut config: Config) -> Self {
        let nodes = std::mem::take(&mut config.nodes);
        let prefix = config.key_prefix.take().unwrap_or_default();
        Self { config, ..Self::default() }.nodes(nodes).key_prefix(prefix)
    }

    /// Adds one node for each URL. A URL has the form `redis://[user:password@]host[:port][/db]`, `rediss://…` (feature
    /// `tls-rustls`) or `unix:///path/to/socket[?user=…&pass=…&db=…]`. Each form also accepts the query parameters `db`
    /// and `protocol`. Any other parameter is [rejected](ConfigError::BadUrl).
    ///
    /// Nodes must be independent masters: no node may be a replica of another node, and each server may be given only
    /// once. In a user or a password, encode `@`, `#`, `/`, `?` and `%` as `%40`, `%23`, `%2F`, `%3F` and `%25`.
    pub fn nodes<I>(mut self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        for url in urls {
            self.nodes.push(address::parse(self.nodes.len() + 1, url.as_ref()));
        }
        self
    }

    config_setters! {
        /// Sets how long a node keeps a lock that is neither extended nor released. Fractions of a millisecond are
        /// discarded. Default: 10 s.
        ttl: Duration;

        /// Sets the upper limit for the TTL of locks and extensions, and for [cool-downs](crate::Lease::release_after).
        /// **All clients of a deployment must use the same value.** Default: 60 s.
        ///
        /// A node that has lost its data has no vote in acquires until every lock that it may have granted has expired.
        /// `max_ttl` limits the length of this period. A client whose TTL exceeds the `max_ttl` of other clients can
        /// lose its lock to them after a node restarts.
        ///
        /// A TTL above `max_ttl` is rejected with an error that names the setting. To use longer TTLs, first raise
        /// `max_ttl` on all clients. A shorter `max_ttl` shortens the quarantine of restarted nodes; see
        /// [`restart_guard`](Self::restart_guard). To lower it, first use shorter TTLs on all clients, then wait until
        /// the locks with longer TTLs have ended, for the old quarantine period.
        max_ttl: Duration;

        /// Sets how the client treats nodes that were restarted and may have lost locks. Default:
        /// [`Observed`](RestartGuard::Observed).
        restart_guard: RestartGuard;

        /// Declares that nodes with full persistence (`appendonly yes`, `appendfsync always`,
        /// `no-appendfsync-on-rewrite no`) keep every lock across restarts. The vote of such a node then counts
        /// immediately after a restart; see [`RestartGuard`]. Default: `false`, because a client cannot verify the
        /// conditions:
        ///
        /// - The node always restarts with the same disk, and that disk is neither lost nor restored to an older state.
        /// - The node's address always leads to the same server, and never to a replica that was promoted.
        ///
        /// A node that reports a less durable configuration is not trusted. A node that does not report its
        /// configuration (`INFO`, `CONFIG GET`) is trusted. [`check`](Redlock::check) reports other settings that make
        /// persistence unsafe.
        trust_persistence: bool;

        /// Sets the total time that [`acquire`](Redlock::acquire) may take. Default: 10 s. If this time is shorter than
        /// a round trip to the nodes, the acquire fails with [`Timeout`](crate::AcquireError::Timeout). Use
        /// [`try_acquire`](Redlock::try_acquire) for a single attempt.
        wait: Duration;

        /// Sets how long the client waits for a node's reply. Default: 50 ms. The timeout limits the delay that an
        /// unresponsive node causes, and therefore the duration of an attempt.
        ///
        /// If a node's clock has stepped forward, its grants [count](crate::VoteEligibility::Deferred) only after a
        /// delay. An attempt that needs such a grant waits up to one second longer.
        ///
        /// The Redlock page suggests 5 to 50 ms for a TTL of 10 s. Allow several round trips on slow networks.
        node_timeout: Duration;

        /// Sets how long the client waits for a connection to be established and set up. Default: 1 s.
        ///
        /// Only the first acquires of a new client wait for connections, until a quorum is connected. If all connected
        /// nodes started recently, these acquires also wait for the remaining nodes, until each is connected or its
        /// first connection attempt has failed. See [`ready`](Redlock::ready) and [`RestartGuard::Observed`]. In later
        /// acquires, the client treats a node that is not connected within the node timeout as failed.
        connect_timeout: Duration;

        /// Sets the fraction of the TTL that is subtracted from the validity, because clocks run at different rates.
        /// Must be at least 0 and less than 1. Default: 0.01, as in the Redlock reference implementation.
        drift_factor: f64;

        /// Sets the time that is subtracted from the validity in addition to [`drift_factor`](Self::drift_factor),
        /// because Redis expires keys with millisecond precision. Default: 2 ms.
        drift_constant: Duration;

        /// Sets the policy for retries of [`acquire`](Redlock::acquire) after a refused attempt. Default: jittered,
        /// 50 ms to 250 ms.
        retry: RetryPolicy;

        /// Sets how long a node keeps a resource's fencing counter after the last acquire or extension with a fencing
        /// token. After a release, the counter remains for at least half of this time. Must not be shorter than
        /// [`max_ttl`](Self::max_ttl). Default: 24 h, or `max_ttl` if that is longer.
        ///
        /// While the counter exists, tokens increase regardless of clocks. After the counter has expired, the next
        /// token is taken from the acquiring client's wall clock, in microseconds. The new token is lower than an
        /// earlier token only if the clock lags behind the earlier holder's clock by more than the time between the two
        /// acquires. Counters expire so that the counters of unused resources do not accumulate.
        token_ttl: Duration;
    }

    /// Sets the prefix of every resource's key. The prefix must not contain `#quorlock:`, which marks the library's
    /// internal keys. Default: none.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.prefix = prefix.into().into();
        self
    }

    /// Sets a text of at most 4096 bytes that is stored with every lock and shown in its [status](Redlock::status). The
    /// text is the last part of the key's value, after a colon. Default: none.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        (self.config.metadata, self.config.owner) = (Some(metadata.into()), None);
        self
    }

    /// Stores the host name and the process ID with every lock, as [`metadata`](Self::metadata) in the form `host:pid`.
    pub fn owner(mut self) -> Self {
        (self.config.metadata, self.config.owner) = (None, Some(true));
        self
    }

    /// Gives every lease a fencing token, which the protected resource can use to reject stale writers; see
    /// [`Acquire::fenced`](crate::Acquire::fenced). Default: no tokens.
    pub fn fenced(mut self) -> Self {
        self.config.fenced = Some(true);
        self
    }

    /// Installs an observer, which receives events about acquires, extensions, lost leases and the state of the nodes;
    /// see [`Observer`]. Only one observer can be installed; a later call replaces it. With the feature `tracing`,
    /// events are also sent to `tracing`. Default: none.
    ///
    /// Pass an `Arc` to keep access to the observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Runs all connections on the runtime of `handle`, which must have been built with `enable_all()` or
    /// `enable_io()`.
    ///
    /// Default: the connections run on the tokio runtime in which the client is first used. If that runtime shuts down,
    /// is blocked or is not driven, the client reconnects on another runtime that uses the client. If the client is
    /// first used outside tokio, the connections run on a thread of the library.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    #[cfg(test)]
    pub(crate) fn transport(self, transport: Arc<dyn Transport>) -> Self {
        Self { environment: Environment { transport, ..self.environment }, ..self }
    }
}

/// Omits the credentials of the nodes.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(address::shown).collect();
        f.debug_struct("Builder")
            .field("nodes", &nodes)
            .field("config", &self.config)
            .field("prefix", &escape_name(&self.prefix))
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "message_tests.rs"]
mod message_tests;

#[cfg(test)]
#[path = "transport_tests.rs"]
mod transport_tests;

#[cfg(test)]
#[path = "edge_tests.rs"]
mod edge_tests;
