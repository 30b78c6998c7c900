//! The client.

use crate::acquire::Acquire;
use crate::builder::Builder;
use crate::check::NodeCheck;
use crate::driver::Driver;
use crate::error::{ClientError, CloseError, ReleaseError};
use crate::lease::Lease;
use crate::lease_ref::LeaseRef;
use crate::node::{NodeStanding, NodeState};
use crate::release::ReleaseOutcome;
use crate::report::Report;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::status::Status;
use crate::using::UsingError;
use std::fmt;
use std::sync::Arc;

/// A client of N independent Redis masters.
///
/// Cloning is cheap, and clones share connections. A client can be used from any number of tasks,
/// threads and runtimes at once, also as a `static`; each runtime gets connections of its own.
#[derive(Clone)]
pub struct Redlock {
    inner: Arc<Inner>,
}

/// What clones of a client and its leases share.
pub(crate) struct Inner {
    pub(crate) driver: Driver,
    pub(crate) roster: Arc<Roster>,
    pub(crate) settings: Settings,
}

/// How a client stands with one of its nodes, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    name: String,
    state: NodeState,
    standing: NodeStanding,
    version: Option<String>,
    evicting: Option<String>,
}

impl Redlock {
    /// Starts a configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(driver: Driver, roster: Arc<Roster>, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { driver, roster, settings }) }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn roster(&self) -> &Roster {
        &self.inner.roster
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// One attempt to lock `resource`, which takes at most one node timeout.
    ///
    /// A resource is any sequence of bytes; its key is the [prefix](Builder::key_prefix) and it.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref())
    }

    /// Locks `resource`, and waits for it if it is held, within the [wait bound](Acquire::wait).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref()).patient()
    }

    /// Locks several resources at once, and waits for them if some are held: one lease, with one
    /// validity, of all or nothing, on every node. At most 1000; one that is given twice counts once.
    ///
    /// Nothing is held while it waits, so sets that overlap never deadlock, in whatever order they
    /// are given. It stands in the line of the resource that is in the way.
    ///
    /// Nodes that run in cluster mode want all keys of a command in one hash slot: give the resources
    /// a common hash tag there, such as `{user:7}/inbox` and `{user:7}/outbox`, or use a
    /// [prefix](Builder::key_prefix) with one, such as `{lock}:`. Else each such node fails with
    /// `CROSSSLOT`.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.try_acquire_all(resources).patient()
    }

    /// One attempt to lock several resources at once; see [`acquire_all`](Self::acquire_all).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        Acquire::all(self.inner.clone(), resources)
    }

    /// Takes over the lock of `resource` from a holder who has handed us the
    /// [value](crate::LeaseRef::value) of its lease: on each node the value is swapped for a fresh
    /// one. The holder's lease is then lost to it, as [taken over](crate::Loss::TakenOver).
    ///
    /// Of two who adopt the same value at once, one wins, if all of an odd number of nodes answer. An
    /// adoption that fails on a quorum may have ended the lock on the other nodes: then nobody has it.
    /// There is one attempt; the [wait bound](Acquire::wait) and the [retry policy](Acquire::retry)
    /// are not used. A lease of several resources cannot be handed over.
    ///
    /// # Errors
    /// [`NotHeld`](crate::AcquireError::NotHeld) if that value does not stand there; else see
    /// [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes that have swapped the value release it.
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        Acquire::handed_over(self.inner.clone(), resource.as_ref(), value.as_ref())
    }

    /// Who holds `resource`, as each node tells. Takes at most one node timeout.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be asked; a node that fails is part of the answer.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, ClientError> {
        self.inner.status(resource.as_ref()).await
    }

    /// Takes the lock of `resource` away from whoever holds it: on each node, the value that is read
    /// there is deleted, once. Whoever gets the lock in between is not touched, and a node that does
    /// not answer is not told later. Takes at most two node timeouts.
    ///
    /// **The holder does not know at once**: it may go on working. In the report, a node that deleted
    /// a lock has granted, and one that had none is missing.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be asked.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may have deleted the lock.
    pub async fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, ClientError> {
        self.inner.force_release(resource.as_ref()).await
    }

    /// Releases all leases of this client and its clones, whoever holds them: each is then lost to
    /// its holder, as [closed](crate::Loss::Closed). Returns what the nodes say of each, by its
    /// (first) resource. Takes at most one node timeout.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the releases go on in the background.
    pub async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        self.inner.release_all().await
    }

    /// Does `work` under the lock of `resource`: short for [`acquire`](Self::acquire) and
    /// [`using`](Acquire::using).
    ///
    /// # Errors
    /// See [`UsingError`].
    ///
    /// # Cancel safety
    /// See [`Acquire::using`].
    pub async fn using<T, F>(&self, resource: impl AsRef<[u8]>, work: F) -> Result<T, UsingError<T>>
    where
        F: AsyncFnOnce(&Lease) -> T,
    {
        self.acquire(resource).using(work).await
    }

    /// Does `work` under the lock of `resource`: short for [`acquire`](Self::acquire) and
    /// [`using_fut`](Acquire::using_fut).
    ///
    /// # Errors
    /// See [`UsingError`].
    ///
    /// # Cancel safety
    /// See [`Acquire::using_fut`].
    pub async fn using_fut<F, Fut>(
        &self,
        resource: impl AsRef<[u8]>,
        work: F,
    ) -> Result<Fut::Output, UsingError<Fut::Output>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future,
    {
        self.acquire(resource).using_fut(work).await
    }

    /// Ends the client for all its clones: further acquires, and those that wait, are refused with
    /// [`Closed`](crate::AcquireError::Closed); leases that are still held are released, and lost to
    /// their holders as [closed](crate::Loss::Closed). Returns when every release is delivered, those
    /// of dropped leases and given-up attempts included.
    ///
    /// Call it before a short-lived process ends, so that nothing stays locked until its ttl. Takes
    /// at most one [connect timeout](Builder::connect_timeout).
    ///
    /// # Errors
    /// Names the nodes that did not take their releases in time. Their keys expire by themselves.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled the client stays closed, and deliveries go on in
    /// the background.
    pub async fn close(&self) -> Result<(), CloseError> {
        let undelivered = self.inner.close().await;
        if undelivered.is_empty() { Ok(()) } else { Err(CloseError::new(undelivered)) }
    }

    /// What a client that was closed has not delivered yet.
    #[cfg(feature = "blocking")]
    pub(crate) fn undelivered(&self) -> CloseError {
        CloseError::new(self.inner.driver.undelivered())
    }

    /// Looks at each node, over a connection of its own that is closed afterwards: whether a lock is
    /// safe on it, and what to set there if it is not. In the order in which they were given to the
    /// builder. Run it when a service starts, or from a monitor.
    ///
    /// ```no_run
    /// # async fn check(redlock: quorlock::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// for node in redlock.check().await? {
    ///     println!("{node}");
    ///     if node.worst() == Some(quorlock::Severity::Danger) {
    ///         return Err(format!("{} is not fit for locks", node.name()).into());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// All nodes are looked at at once, which takes at most one
    /// [connect timeout](Builder::connect_timeout) and two [node timeouts](Builder::node_timeout).
    /// The commands that a lock needs are tried on a key that does not exist, the
    /// [prefix](Builder::key_prefix) followed by `quorlock-check:` and a random number: nothing is
    /// set. The scripts of this crate stay in the servers' cache, as they do after any acquire.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be asked; a node that fails is part of the answer.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: its connections are closed.
    pub async fn check(&self) -> Result<Vec<NodeCheck>, ClientError> {
        self.inner.check().await
    }

    /// How the client stands with each of its nodes, as last seen; asks nobody.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let nodes = self.inner.driver.pool.shared().iter();
        nodes
            .map(|node| {
                let (state, info) = node.status();
                NodeInfo {
                    name: node.name.to_string(),
                    state,
                    standing: node.standing(),
                    version: info.version.as_deref().map(str::to_owned),
                    evicting: info.evicting.as_deref().map(str::to_owned),
                }
            })
            .collect()
    }
}

impl NodeInfo {
    /// The node's address, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is connected and answers.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Whether what it grants counts, or for how long it does not: because it was restarted, or because
    /// its clock is not to be trusted.
    pub fn standing(&self) -> &NodeStanding {
        &self.standing
    }

    /// The server's version, if it told.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The eviction policy, if the server may evict keys to save memory: **it can forget locks.**
    /// Set `maxmemory-policy noeviction` there.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_deref()
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("nodes", &self.nodes())
            .field("settings", &self.inner.settings)
            .finish()
    }
}
