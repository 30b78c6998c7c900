//! The client.

use super::acquire::Acquire;
use super::builder::Builder;
use super::node_info::NodeInfo;
use super::settings::Settings;
use super::status::{Status, force_release, status};
use super::using::{TryUsingError, UsingError};
use crate::acquire::Driver;
use crate::check::{NodeCheck, check, probe_resource};
use crate::error::{ClientError, CloseError, ReleaseError};
use crate::lease::{Backing, Lease, LeaseRef, ReleaseOutcome};
use crate::node::Nodes;
use crate::observe::Report;
use crate::wire::Keys;
use std::fmt;
use std::sync::Arc;

/// A client of N independent Redis masters.
///
/// Cloning is cheap, and clones share connections. A client can be used from any number of tasks,
/// threads and runtimes at once, also as a `static`; each runtime gets connections of its own.
#[derive(Clone)]
pub struct Redlock {
    pub(super) inner: Arc<Inner>,
}

/// What clones of a client share. Its profiles have settings of their own.
pub(crate) struct Inner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) settings: Settings,
}

impl Inner {
    /// The nodes, and the key that `resource` has there.
    fn reach(&self, resource: &[u8]) -> Result<(Arc<Nodes>, Keys), ClientError> {
        let nodes = self.driver.ready()?;
        Ok((nodes, Keys::one(self.settings.key(resource)?)))
    }
}

impl Redlock {
    /// Starts a configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(driver: Driver, backing: Arc<Backing>, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { driver: Arc::new(driver), backing, settings }) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// One attempt to lock `resource`, which takes at most one [node timeout](Builder::node_timeout)
    /// (two with a [fencing token](Acquire::fenced)). Where no quorum is connected yet, as in a
    /// program that has just started, it first waits for that, at most one
    /// [connect timeout](Builder::connect_timeout); see [`ready`](Self::ready). Where the clocks of so
    /// many nodes have stepped ahead that it needs one of them, it waits for up to a second until what they
    /// granted [counts](crate::VoteEligibility::Deferred).
    ///
    /// A resource is any sequence of bytes; its key is the [prefix](Builder::key_prefix) and it. Only
    /// keys that contain `#quorlock:` are the library's own, such as those of fencing counters: they are
    /// [refused](crate::ConfigError::ReservedResource) here and in every other verb.
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
    /// A lease of this client ends before the adopted one begins. It also ends if the adoption fails or is dropped after
    /// a node may have replaced the value; it continues if every node refused. **A lease of another client stays valid
    /// until that client notices**, so its holder must stop working before it hands over the value. Where nodes send
    /// pushes, a holder that renews its lease or waits for [`lost`](crate::LeaseRef::lost) is notified within a round trip;
    /// any other at its next extension, at the latest when its validity ends.
    ///
    /// Of two who adopt the same value at once, one wins, if all of an odd number of nodes answer. An
    /// adoption that fails on a quorum may have ended the lock on the other nodes: then nobody has it.
    /// There is one attempt; the [wait bound](Acquire::wait) and the [retry policy](Acquire::retry)
    /// are not used. A lease of several resources cannot be handed over.
    ///
    /// # Errors
    /// [`NotHeld`](crate::AcquireError::NotHeld) if that value does not stand there;
    /// [`AdoptsSet`](crate::ConfigError::AdoptsSet) if it is that of a lease of several resources, and
    /// then the nodes are not asked; else see [`AcquireError`](crate::AcquireError).
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
        let (nodes, keys) = self.inner.reach(resource.as_ref())?;
        Ok(status(&self.inner.backing, &nodes, keys).await)
    }

    /// Takes the lock of `resource` away from whoever holds it: on each node, the value that is read
    /// there is deleted, once. Whoever gets the lock in between is not touched, and a node that does
    /// not answer is not told later. Takes at most two node timeouts. A value that is no string, or a string of more
    /// than 4,200 bytes, is no lock of this library: it stays, and the node is `held` in the report. Delete it by
    /// `DEL`.
    ///
    /// **The holder does not know at once**: it may go on working. In the report, a node that deleted
    /// the lock is `granted`, and one that had none is `missing`. A lease of this client ends when this client acquires
    /// the lock again.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be asked.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may have deleted the lock.
    pub async fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, ClientError> {
        let (nodes, keys) = self.inner.reach(resource.as_ref())?;
        Ok(force_release(&self.inner.backing, &nodes, keys).await)
    }

    /// Releases all leases of this client and its clones, whoever holds them: each is then lost to
    /// its holder, as [closed](crate::Loss::Closed). Returns what the nodes say of each, by its
    /// (first) resource. Takes at most one node timeout, and one more where a runtime that was to deliver it
    /// is shut down meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the releases go on in the background.
    pub async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        self.inner.backing.release_all().await
    }

    /// Does `work` under the lock of `resource`, which is renewed until the work ends: short for
    /// [`acquire`](Self::acquire) and [`using`](Acquire::using).
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

    /// Does `work` that can fail under the lock of `resource`: short for [`acquire`](Self::acquire) and
    /// [`try_using`](Acquire::try_using).
    ///
    /// # Errors
    /// See [`TryUsingError`].
    ///
    /// # Cancel safety
    /// See [`Acquire::try_using`].
    pub async fn try_using<T, E, F>(
        &self,
        resource: impl AsRef<[u8]>,
        work: F,
    ) -> Result<T, TryUsingError<T, E>>
    where
        F: AsyncFnOnce(&Lease) -> Result<T, E>,
    {
        self.acquire(resource).try_using(work).await
    }

    /// Does `work` that can fail under the lock of `resource`: short for [`acquire`](Self::acquire) and
    /// [`try_using_fut`](Acquire::try_using_fut).
    ///
    /// # Errors
    /// See [`TryUsingError`].
    ///
    /// # Cancel safety
    /// See [`Acquire::try_using_fut`].
    pub async fn try_using_fut<T, E, F, Fut>(
        &self,
        resource: impl AsRef<[u8]>,
        work: F,
    ) -> Result<T, TryUsingError<T, E>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.acquire(resource).try_using_fut(work).await
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
    /// Names the nodes that did not take their releases in time, and counts the attempts whose futures
    /// are neither polled nor dropped. Their keys expire by themselves.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled the client stays closed, and deliveries go on in
    /// the background.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.inner.backing.close();
        self.inner.driver.close(self.inner.settings.connect_timeout).await
    }

    /// What a client that was closed has not delivered yet.
    #[cfg(feature = "blocking")]
    pub(crate) fn remains(&self) -> CloseError {
        self.inner.driver.remains()
    }

    /// Looks at each node, over a connection of its own that is closed afterwards: whether a lock is
    /// safe on it, and what to set there if it is not. In the order in which they were given to the
    /// builder. Run it when a service starts, or from a monitor.
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// for node in redlock.check().await? {
    ///     println!("{node}");
    ///     if node.worst() == Some(quorlock::Severity::Danger) {
    ///         return Err(format!("{} is not fit for locks", node.name()).into());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    ///
    /// Connections are named (`CLIENT SETNAME`) after what all clients of a deployment must agree on: the nodes,
    /// [`max_ttl`](Builder::max_ttl) and the [prefix](Builder::key_prefix). Who is connected to a node and disagrees
    /// with this client is found ([`Finding::Disagrees`](crate::Finding::Disagrees)), where users may ask for it.
    ///
    /// All nodes are looked at at once, which takes at most two
    /// [connect timeouts](Builder::connect_timeout) and two [node timeouts](Builder::node_timeout).
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
        let Inner { driver, backing, settings } = &*self.inner;
        if driver.is_closed() {
            return Err(ClientError::Closed);
        }
        let key = settings.key(probe_resource(backing.pool.random()))?;
        Ok(check(&backing.pool, key, &settings.prefix, settings.limits.max_ttl).await?)
    }

    /// Resolves when a quorum of the nodes is connected on the current runtime, or on the
    /// [given](Builder::runtime) one; at once if it is. Where these are all young, it waits for the others,
    /// too, which may tell that the deployment is not; see [`RestartGuard::Observed`](crate::RestartGuard::Observed). Starts the
    /// connections if need be. Call it when a service starts, so that its first acquire does not wait for
    /// them:
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// use std::time::Duration;
    ///
    /// tokio::time::timeout(Duration::from_secs(5), redlock.ready()).await??;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    ///
    /// It waits for as long as it takes, also through an outage: bound it as above. Whether the nodes
    /// are fit for locks is what [`check`](Self::check) tells.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be connected to: the client is closed, or there is no runtime.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time; connecting goes on in the background.
    pub async fn ready(&self) -> Result<(), ClientError> {
        Ok(self.inner.driver.wait_until_ready().await?)
    }

    /// How the client stands with each of its nodes, as last seen; asks nobody.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let nodes = self.inner.backing.pool.shared().iter();
        nodes.map(|node| NodeInfo::of(node)).collect()
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
