//! Configuration: every setting, its default, and what cannot work.

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
/// | [`credentials`](Self::credentials) | what the nodes' URLs say |
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
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) environment: Environment,
    #[cfg(feature = "tls-rustls")]
    pub(super) tls_files: TlsFiles,
    pub(super) credentials: Option<CredentialSource>,
    /// What `build` refuses, whatever else is set.
    pub(super) fault: Option<ConfigError>,
}

impl Builder {
    /// Adds nodes by URL, one for each: `redis://[user:password@]host[:port][/db]`, `rediss://…` (feature
    /// `tls-rustls`) or `unix:///path/to/socket[?user=…&pass=…&db=…]`. Other parameters than `db` and `protocol`
    /// are [refused](ConfigError::UnknownUrlParameter). They must be independent masters: no replicas of each other,
    /// and no server twice. In a password, encode `#`, `/`, `?` and `%` as `%23`, `%2F`, `%3F` and `%25`.
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

    /// Adds nodes by client of the `redis` crate, version 1: for settings that a URL cannot carry, such as
    /// the keepalive of its sockets. Needs the feature `redis-1`; `quorlock::redis` is that crate. No
    /// connection of the client is used: quorlock makes its own, with its address, user, password,
    /// database, and what it says of TCP; of that, a linger time cannot be read, and is not kept, and a user timeout
    /// of more than ten seconds is one of ten: what a connection delivers later would not be released.
    ///
    /// Certificates of a client (`redis::Client::build_with_tls`) cannot be read either. It is
    /// [refused](ConfigError::OpaqueTls): give its address to [`nodes`](Self::nodes), and the certificates to
    /// `tls` (feature `tls-rustls`).
    #[cfg(feature = "redis-1")]
    pub fn clients(mut self, clients: impl IntoIterator<Item = redis::Client>) -> Self {
        for client in clients {
            let place = address::place(self.nodes.len() + 1, client.get_connection_info());
            self.nodes.push(place);
        }
        self
    }

    /// How long the nodes keep a lock that nobody extends or releases. Whole milliseconds count.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// The longest ttl, extension or [cool-down](crate::Lease::release_after) that any client of these
    /// nodes asks for. **All clients of a deployment have to share this setting**: a node that has
    /// forgotten its locks is not counted until the last of them must have ended, whoever held it, and
    /// this is how long that takes. A client that uses longer ttls than others wait for can lose its
    /// lock to them after a restart.
    ///
    /// A longer ttl is refused by name, wherever it is given. To raise it, raise it on all clients
    /// first, and then use it. A short one makes for short quarantines; see
    /// [`restart_guard`](Self::restart_guard).
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.options.max_ttl = max_ttl;
        self
    }

    /// What is done about nodes that were restarted, and may have forgotten locks in that.
    pub fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.options.restart_guard = guard;
        self
    }

    /// Vouches that each node that writes all it is told to its disk before it answers (`appendonly yes`,
    /// `appendfsync always`) has that disk again when it restarts, and is one server: no replica is ever
    /// promoted behind its address, and no disk is lost or set back. Then such a node counts at once after
    /// a restart; see [`RestartGuard`].
    ///
    /// No client can see that for itself, so it is off by default. A node whose configuration says that it
    /// forgets is not trusted all the same; one that does not tell (`INFO`, `CONFIG GET`) is. What else a
    /// configuration needs to deserve it, [`check`](Redlock::check) says.
    pub fn trust_persistence(mut self, trusts: bool) -> Self {
        self.options.trusts_persistence = trusts;
        self
    }

    /// How long [`acquire`](Redlock::acquire) tries, in all. A wait shorter than a round trip ends
    /// in [`Timeout`](crate::AcquireError::Timeout); use [`try_acquire`](Redlock::try_acquire) for
    /// a single attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// How long to wait for a node's answer. It bounds what a hung node can cost, and with it an attempt;
    /// only where clocks of nodes have stepped ahead, a single attempt waits for up to a second more until
    /// what they granted [counts](crate::VoteEligibility::Deferred).
    /// the Redlock page
    /// advises 5 to 50 ms for a ttl of 10 s. Use more over slow networks: several round trips.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.options.node_timeout = timeout;
        self
    }

    /// How long to wait for a connection and its set-up. Only a client that is new waits for it, with
    /// its first acquires, until a quorum is connected, or, while it knows of none but young nodes, until
    /// every node is or could not be; see [`ready`](Redlock::ready) and [`RestartGuard::Observed`]. Later
    /// on, a node that is not connected within the node timeout has failed.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// The share of the ttl that is set aside for clocks that run at different rates, from 0 to
    /// below 1. The Redlock reference implementation uses 0.01.
    pub fn drift_factor(mut self, factor: f64) -> Self {
        self.options.drift_factor = factor;
        self
    }

    /// What is set aside on top of it, for the millisecond precision of expiry in Redis.
    pub fn drift_constant(mut self, constant: Duration) -> Self {
        self.options.drift_constant = constant;
        self
    }

    /// When a refused attempt of [`acquire`](Redlock::acquire) is tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// What is put before each resource to make its key. It must not contain `#quorlock:`, which
    /// marks the library's own keys.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.options.prefix = prefix.into().into();
        self
    }

    /// What every lock tells to those who ask [who holds it](Redlock::status): text of at most 4096
    /// bytes. It ends the value under the key, after a colon.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into().into());
        self
    }

    /// Lets every lock tell the host and the process that hold it: `metadata("host:pid")`.
    pub fn owner(self) -> Self {
        self.metadata(owner())
    }

    /// Gives every lease a fencing token; see [`Acquire::fenced`](crate::Acquire::fenced).
    pub fn fenced(mut self) -> Self {
        self.options.is_fenced = true;
        self
    }

    /// How long the nodes keep the counter of a resource after it was last acquired or extended with a
    /// fencing token; after its release, for half of that at the least. Not shorter than [`max_ttl`](Self::max_ttl), which takes the
    /// place of the default where it is longer.
    ///
    /// While the counter stands, tokens grow whatever the clocks do. Once it is gone, the next token
    /// is taken from the acquiring client's wall clock in microseconds: it is higher than all before
    /// it as long as that clock is not behind those of earlier holders by more than the time that has
    /// passed since. Counters have an end so that they do not pile up for resources that nobody uses
    /// any more.
    pub fn token_ttl(mut self, ttl: Duration) -> Self {
        self.options.token_ttl = Some(ttl);
        self
    }

    /// Runs all connections on this runtime. Without it, each runtime that the client is used on
    /// gets connections of its own; with it, the client can also be used outside of any runtime.
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

    /// Makes all connections by this, in place of sockets.
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

    /// Checks the settings and makes the client. Does no I/O but to read certificates in files, and needs no runtime:
    /// connections are made by the first acquire.
    ///
    /// # Errors
    /// Says what cannot work, by name.
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

/// Names the nodes by address only, without user and password.
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

/// Who wants to know that keys have changed on the nodes.
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
