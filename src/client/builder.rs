//! Builder of a client: its settings, their defaults, and their validation.

use super::redlock::Redlock;
use super::settings::{Options, Settings, owner};
use crate::acquire::{Driver, WaitQueues};
use crate::client::address::{self, Place};
use crate::error::ConfigError;
use crate::lease::{Backing, LeaseRegistry, Limits};
#[cfg(feature = "test-util")]
use crate::node::Gates;
use crate::node::{
    Clocks, CredentialSource, Endpoint, Environment, Guard, Login, NodeShared, Pool, PushSink,
    RestartGuard, Siblings, Timings,
};
use crate::observe::{Observer, Observers};
use crate::protocol::{MAX_NODES, NodeId, Quorum, RetryPolicy, Time};
#[cfg(feature = "test-util")]
use crate::random::Random;
#[cfg(feature = "test-util")]
use crate::time::Clock;
#[cfg(feature = "tls-rustls")]
use crate::transport::TlsFiles;
#[cfg(any(test, feature = "test-util"))]
use crate::transport::Transport;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Settings of a [`Redlock`] client.
///
/// # Default
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
    nodes: Vec<Result<Place, ConfigError>>,
    options: Options,
    runtime: Option<Handle>,
    observer: Option<Arc<dyn Observer>>,
    pub(super) environment: Environment,
    #[cfg(feature = "tls-rustls")]
    pub(super) tls_files: TlsFiles,
    pub(super) credentials: Option<CredentialSource>,
    /// Error that `build` returns, whatever the other settings are.
    pub(super) fault: Option<ConfigError>,
}

impl Redlock {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Adds one node for each URL: `redis://[user:password@]host[:port][/db]`, `rediss://…` (feature `tls-rustls`) or
    /// `unix:///path/to/socket[?user=…&pass=…&db=…]`. Query parameters other than `db` and `protocol` are
    /// [refused](ConfigError::UnknownUrlParameter).
    ///
    /// Nodes must be independent masters: no node may be a replica of another one, and no server may be given twice. In
    /// a password, encode `#`, `/`, `?` and `%` as `%23`, `%2F`, `%3F` and `%25`.
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

    /// Adds one node for each client of the `redis` crate, version 1, for settings that a URL cannot carry, such as TCP
    /// keepalive. Needs the feature `redis-1`; `quorlock::redis` is that crate.
    ///
    /// The builder uses the client's address, user, password, database and TCP settings, but none of its connections.
    /// The linger time is ignored, because it cannot be read. A TCP user timeout above 10 s is reduced to 10 s, because
    /// the client does not release locks that a connection delivers later than that.
    ///
    /// A client with TLS certificates (`redis::Client::build_with_tls`) is [refused](ConfigError::OpaqueTls), because
    /// its certificates cannot be read. Pass its address to [`nodes`](Self::nodes) and the certificates to `tls`
    /// (feature `tls-rustls`) instead.
    #[cfg(feature = "redis-1")]
    pub fn clients(mut self, clients: impl IntoIterator<Item = redis::Client>) -> Self {
        for client in clients {
            let place = address::place(self.nodes.len() + 1, client.get_connection_info());
            self.nodes.push(place);
        }
        self
    }

    /// How long a node keeps a lock that is neither extended nor released. Fractions of a millisecond are cut off.
    /// Default: 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Upper limit for the ttl, extensions and [cool-downs](crate::Lease::release_after) of all clients of these nodes.
    /// Default: 60 s. **All clients of a deployment must have the same value.** A node that has lost its data has no
    /// vote until every lock that it may have granted has expired, and this setting bounds that time. A client that
    /// uses longer ttls than the others' `max_ttl` can lose its lock to them after a node restarts.
    ///
    /// A longer ttl is refused with an error that names the setting. To raise `max_ttl`, first raise it on all clients,
    /// and only then use longer ttls. A shorter `max_ttl` shortens quarantines; see
    /// [`restart_guard`](Self::restart_guard).
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.options.max_ttl = max_ttl;
        self
    }

    /// How to treat nodes that were restarted and may have lost locks. Default: [`Observed`](RestartGuard::Observed).
    pub fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.options.restart_guard = guard;
        self
    }

    /// Declares that nodes with full persistence (`appendonly yes`, `appendfsync always`) keep every lock across
    /// restarts. Such a node then has a vote immediately after a restart; see [`RestartGuard`]. Default: `false`,
    /// because a client cannot verify the conditions:
    ///
    /// - The node always restarts with the same disk, and that disk is neither lost nor restored to an older state.
    /// - The node's address always leads to the same server: no replica is ever promoted behind it.
    ///
    /// A node that reports a less durable configuration is not trusted. A node that does not report its configuration
    /// (`INFO`, `CONFIG GET`) is trusted. [`check`](Redlock::check) reports other settings that make persistence
    /// unsafe.
    pub fn trust_persistence(mut self, trusts: bool) -> Self {
        self.options.trusts_persistence = trusts;
        self
    }

    /// Total time that [`acquire`](Redlock::acquire) may take. Default: 10 s. A wait shorter than a round trip ends in
    /// [`Timeout`](crate::AcquireError::Timeout); use [`try_acquire`](Redlock::try_acquire) for a single attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// How long to wait for a node's reply. Default: 50 ms. It limits the delay that an unresponsive node causes, and
    /// thus the duration of an attempt. There is one exception: if the clocks of nodes have stepped forward, a single
    /// attempt waits up to one more second until their grants [count](crate::VoteEligibility::Deferred).
    ///
    /// The Redlock page suggests 5 to 50 ms for a ttl of 10 s. Allow several round trips on slow networks.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.options.node_timeout = timeout;
        self
    }

    /// How long to wait until a connection is established and set up. Default: 1 s.
    ///
    /// Only the first acquires of a new client wait for connections: until a quorum is connected or, while all known
    /// nodes have started recently, until every node is connected or has failed. See [`ready`](Redlock::ready) and
    /// [`RestartGuard::Observed`]. Later, a node that is not connected within the node timeout counts as failed.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Fraction of the ttl that is subtracted from the validity because clocks run at different rates. Must be at least
    /// 0 and below 1. Default: 0.01, as in the Redlock reference implementation.
    pub fn drift_factor(mut self, factor: f64) -> Self {
        self.options.drift_factor = factor;
        self
    }

    /// Time that is subtracted from the validity in addition to [`drift_factor`](Self::drift_factor), because Redis
    /// expires keys with millisecond precision. Default: 2 ms.
    pub fn drift_constant(mut self, constant: Duration) -> Self {
        self.options.drift_constant = constant;
        self
    }

    /// When [`acquire`](Redlock::acquire) retries after a refused attempt. Default: jittered, 50 ms to 250 ms.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// Prefix of every resource's key. It must not contain `#quorlock:`, which marks the library's internal keys.
    /// Default: none.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.options.prefix = prefix.into().into();
        self
    }

    /// Text that is stored with every lock and appears in its [status](Redlock::status), at most 4096 bytes. It is the
    /// last part of the key's value, after a colon. Default: none.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into().into());
        self
    }

    /// Stores host and process ID with every lock: `metadata("host:pid")`.
    pub fn owner(self) -> Self {
        self.metadata(owner())
    }

    /// Gives every lease a fencing token; see [`Acquire::fenced`](crate::Acquire::fenced). Default: no token.
    pub fn fenced(mut self) -> Self {
        self.options.is_fenced = true;
        self
    }

    /// How long a node keeps a resource's counter after the last acquire or extension with a fencing token. After a
    /// release, the counter remains for at least half of this time. Must not be shorter than
    /// [`max_ttl`](Self::max_ttl). Default: 24 h, or `max_ttl` if that is longer.
    ///
    /// While the counter exists, tokens increase regardless of clocks. After it has expired, the next token is taken
    /// from the acquiring client's wall clock, in microseconds. That token is higher than all earlier ones unless the
    /// clock is behind the earlier holders' clocks by more than the time that has passed since. Counters expire so that
    /// they do not accumulate for unused resources.
    pub fn token_ttl(mut self, ttl: Duration) -> Self {
        self.options.token_ttl = Some(ttl);
        self
    }

    /// Installs an observer, which receives events about acquires, extensions, lost leases and the state of the nodes.
    /// See [`Observer`]. There is one observer: a later call replaces it. With the feature `tracing`, events are also
    /// sent to `tracing`. Default: none.
    ///
    /// Pass an `Arc` to keep access to the observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Runs all connections on this runtime, so that the client can also be used outside of any runtime. Default: each
    /// runtime on which the client is used gets separate connections.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn living_by(mut self, clock: Clock) -> Self {
        self.environment.clock = clock;
        self
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn living_in(self, transport: Arc<dyn Transport>, gates: Arc<dyn Gates>) -> Self {
        Self {
            environment: Environment { transport, gates: Some(gates), ..self.environment },
            ..self
        }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn drawing_from(mut self, random: Random) -> Self {
        self.environment.random = random;
        self
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn without_nodes(self) -> Self {
        Self { nodes: Vec::new(), ..self }
    }

    /// Replaces sockets with `transport`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn transport(self, transport: Arc<dyn Transport>) -> Self {
        Self { environment: Environment { transport, ..self.environment }, ..self }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn given_runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn given_connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    /// Validates the settings and creates the client. Reads certificate files, but does no other I/O and needs no
    /// runtime: the first acquire connects to the nodes.
    ///
    /// # Errors
    /// The error names the invalid setting.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        #[cfg(feature = "tls-rustls")]
        let this = self.with_tls_files()?;
        #[cfg(not(feature = "tls-rustls"))]
        let this = self;
        let Self { nodes, options, runtime, observer, environment, credentials, fault, .. } = this;
        fault.map_or(Ok(()), Err)?;
        let places = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let quorum = match places.len() {
            0 => return Err(ConfigError::NoNodes),
            given if given > MAX_NODES => {
                return Err(ConfigError::TooManyNodes { given, most: MAX_NODES });
            }
            count => Quorum::majority(count),
        };
        let settings = Settings::new(&options)?;
        let names = address::distinct_names(&places)?;
        let observers = Observers::new(observer, &names, quorum, &environment.clock);
        let environment = Environment { observers, ..environment };

        let (Limits { node_timeout, drift, .. }, term) = (settings.limits, settings.term);
        let fingerprint = address::fingerprint(&places, quorum, &settings);
        let siblings = Arc::new(Siblings::new(names.clone()));
        let timings = Timings { answer: node_timeout, connect: settings.connect_timeout };
        let waiters = WaitQueues::new(quorum, &environment);
        let registry = Arc::new(LeaseRegistry::default());
        let listeners =
            Arc::new(Listeners { waiters: waiters.clone(), registry: registry.clone() });
        let guard = Guard::new(quorum, options.restart_guard, term);
        let guard = Arc::new(guard.trusting_persistence(options.trusts_persistence));
        let clocks = Arc::new(Clocks::new(quorum, drift, term));
        let shared = quorum.ids().zip(places).zip(names).map(|((id, place), name)| {
            let (address, login) = place;
            let login = Login::new(login, credentials.clone(), fingerprint);
            let endpoint = Endpoint { name, address, login, environment: environment.clone() };
            let (siblings, pushes) = (siblings.clone(), listeners.clone());
            let (guard, clocks) = (guard.clone(), clocks.clone());
            let node = NodeShared::new(id, endpoint, timings, siblings, pushes, guard, clocks);
            Arc::new(node)
        });
        let pool = Arc::new(Pool::new(shared.collect(), runtime, environment));
        let driver = Driver::new(quorum, drift, timings, pool.clone(), waiters);
        let (limits, prefix) = (settings.limits, settings.prefix.len());
        let backing = Backing::new(pool, registry, quorum, limits, prefix);
        Ok(Redlock::new(driver, Arc::new(backing), settings))
    }
}

/// Shows the nodes' addresses without user and password.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.iter().map(|node| match node {
            Ok((address, _)) => address.to_string(),
            Err(error) => error.to_string(),
        });
        let mut debug = f.debug_struct("Builder");
        debug.field("nodes", &nodes.collect::<Vec<_>>());
        debug.field("options", &self.options).field("runtime", &self.runtime);
        #[cfg(feature = "tls-rustls")]
        debug.field("tls_files", &self.tls_files);
        debug.finish_non_exhaustive()
    }
}

/// Receivers of the nodes' invalidation pushes and clock steps.
struct Listeners {
    waiters: Arc<WaitQueues>,
    registry: Arc<LeaseRegistry>,
}

impl PushSink for Listeners {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        self.waiters.handle_push(node, key);
        self.registry.handle_push(node, key);
    }

    fn handle_step(&self, node: NodeId, ahead: Duration, seen: Time) {
        self.registry.handle_step(node, ahead, seen);
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
