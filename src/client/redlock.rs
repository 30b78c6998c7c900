//! The client: acquires locks, reads their status, and reports the state of the nodes.

use super::acquire::Acquire;
use super::inner::Inner;
use super::node_info::NodeInfo;
use super::settings::Settings;
use super::status::{Status, force_release, status};
use super::using::{TryUsingError, UsingError};
use crate::acquire::Driver;
use crate::check::{NodeCheck, check, probe_resource};
use crate::error::{ClientError, CloseError, ReleaseError};
use crate::lease::{Backing, Lease, LeaseRef, ReleaseOutcome};
use crate::observe::Report;
use std::fmt;
use std::sync::Arc;

/// A client of N independent Redis masters.
///
/// Cloning is cheap, and clones share connections. A client can be used by any number of tasks, threads and runtimes at
/// the same time, and also as a `static`. Each runtime gets separate connections unless
/// [`Builder::runtime`](crate::Builder::runtime) is set.
#[derive(Clone)]
pub struct Redlock {
    pub(super) inner: Arc<Inner>,
}

impl Redlock {
    pub(crate) fn new(driver: Driver, backing: Arc<Backing>, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { driver: Arc::new(driver), backing, settings }) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Tries once to lock `resource`. This takes at most one [node timeout](crate::Builder::node_timeout), or two with
    /// a [fencing token](Acquire::fenced), with two exceptions:
    ///
    /// - If no quorum is connected yet, for example in a program that has just started, the attempt first waits for
    ///   connections, at most one [connect timeout](crate::Builder::connect_timeout). See [`ready`](Self::ready).
    /// - If it needs a node whose clock has stepped forward, it waits up to one more second until that node's grant
    ///   [counts](crate::VoteEligibility::Deferred).
    ///
    /// A resource is any sequence of bytes. Its key is the [prefix](crate::Builder::key_prefix) followed by the
    /// resource. Keys that contain `#quorlock:` are internal to the library, such as the keys of fencing counters:
    /// every method [refuses](crate::ConfigError::ReservedResource) them.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref())
    }

    /// Locks `resource`. If it is held, waits for it within the [wait bound](Acquire::wait).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref()).patient()
    }

    /// Locks several resources with one lease. If any of them is held, waits within the [wait bound](Acquire::wait).
    /// Each node grants either all resources or none, and the lease has a single validity. At most 1000 resources;
    /// duplicates count once.
    ///
    /// A waiting acquire holds no resource, so overlapping sets never deadlock, whatever the order of their resources.
    /// It waits in the queue of the resource that is held.
    ///
    /// Nodes in cluster mode require all keys of a command to be in one hash slot; otherwise they fail with
    /// `CROSSSLOT`. Give the resources a common hash tag, such as `{user:7}/inbox` and `{user:7}/outbox`, or use a
    /// [prefix](crate::Builder::key_prefix) with a hash tag, such as `{lock}:`.
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

    /// Tries once to lock several resources with one lease; see [`acquire_all`](Self::acquire_all).
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

    /// Takes over the lock of `resource` from a holder that has passed on the [value](crate::LeaseRef::value) of its
    /// lease. Each node replaces that value with a new one. The previous holder's lease is then lost with the reason
    /// [`TakenOver`](crate::Loss::TakenOver).
    ///
    /// A lease of this client ends before the adopted one begins. It also ends if the adoption fails or is dropped
    /// after a node may have replaced the value; it continues if every node refused. **A lease of another client stays
    /// valid until that client notices the adoption**, so its holder must stop working before it passes on the value.
    /// If the nodes send pushes, a holder that renews its lease or waits for [`lost`](crate::LeaseRef::lost) is
    /// notified within a round trip. Any other holder notices at its next extension, or when its validity ends.
    ///
    /// If two clients adopt the same value at the same time, one of them succeeds, provided that the number of nodes is
    /// odd and all of them reply. If an adoption fails on a quorum, it may have ended the lock on the other nodes, and
    /// then no client holds the lock. There is one attempt: the [wait bound](Acquire::wait) and the [retry
    /// policy](Acquire::retry) do not apply. A lease of several resources cannot be adopted.
    ///
    /// # Errors
    /// [`NotHeld`](crate::AcquireError::NotHeld) if the resource's key does not have that value;
    /// [`AdoptsSet`](crate::ConfigError::AdoptsSet), without contacting a node, if the value belongs to a lease of
    /// several resources; otherwise see [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes that have replaced the value release the lock.
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        Acquire::handed_over(self.inner.clone(), resource.as_ref(), value.as_ref())
    }

    /// Reads the holder of `resource` from each node. Takes at most one node timeout.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be contacted. The failure of a single node is part of the result.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, ClientError> {
        let (nodes, keys) = self.inner.reach(resource.as_ref())?;
        Ok(status(&self.inner.backing, &nodes, keys).await)
    }

    /// Deletes the lock of `resource`, regardless of its holder. First reads the lock's value from each node, then
    /// deletes the key on each node where it still has the value that was read. A lock that is acquired in between is
    /// thus not affected. A node that does not reply in time gets no second request. Takes at most two node timeouts.
    ///
    /// A value that is not a string, or is a string of more than 4,200 bytes, is not a lock of this library. Its key is
    /// not deleted, and the node is reported as `held`. Delete such a key with `DEL`.
    ///
    /// **The holder is not notified immediately** and may continue working. In the report, a node that deleted the lock
    /// is `granted`, and a node that had no lock is `missing`. If the holder is this client, its lease ends when this
    /// client acquires the lock again.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be contacted.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may have deleted the lock.
    pub async fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, ClientError> {
        let (nodes, keys) = self.inner.reach(resource.as_ref())?;
        Ok(force_release(&self.inner.backing, &nodes, keys).await)
    }

    /// Releases all leases of this client and its clones. Each lease is then lost to its holder with the reason
    /// [`Closed`](crate::Loss::Closed). Returns the outcome of each release with the lease's (first) resource. Takes at
    /// most one node timeout, or two if the runtime that should deliver a release is shut down during the call.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the releases continue in the background.
    pub async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        self.inner.backing.release_all().await
    }

    /// Runs `work` while holding the lock of `resource`, and renews the lock until the work ends. Shorthand for
    /// [`acquire`](Self::acquire) followed by [`using`](Acquire::using).
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

    /// Runs `work` while holding the lock of `resource`. Shorthand for [`acquire`](Self::acquire) followed by
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

    /// Runs fallible `work` while holding the lock of `resource`. Shorthand for [`acquire`](Self::acquire) followed by
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

    /// Runs fallible `work` while holding the lock of `resource`. Shorthand for [`acquire`](Self::acquire) followed by
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

    /// Closes the client and all its clones. Later acquires, and acquires that are waiting, fail with
    /// [`Closed`](crate::AcquireError::Closed). Leases that are still held are released, and lost to their holders with
    /// the reason [`Closed`](crate::Loss::Closed). Returns when every pending release is delivered, including the
    /// releases of dropped leases and abandoned attempts.
    ///
    /// Call it before a short-lived process ends; otherwise a lock whose release is pending stays held until its ttl
    /// ends. Takes at most one [connect timeout](crate::Builder::connect_timeout).
    ///
    /// # Errors
    /// [`CloseError`] names the nodes that did not confirm their releases in time, and counts the attempts whose
    /// futures are neither polled nor dropped. Their keys expire at the end of the ttl.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the client stays closed and deliveries continue in the background.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.inner.backing.close();
        self.inner.driver.close(self.inner.settings.connect_timeout).await
    }

    /// Pending releases of a closed client.
    #[cfg(feature = "blocking")]
    pub(crate) fn remains(&self) -> CloseError {
        self.inner.driver.remains()
    }

    /// Checks the configuration of each node and reports settings that make locks unsafe, with the setting to use
    /// instead. Results are in the order in which the nodes were passed to the builder. Run it when a service starts,
    /// or from a monitor. Each check uses a separate connection, which is closed afterwards.
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
    /// The client names its connections (`CLIENT SETNAME`) after the settings that all clients of a deployment must
    /// share: the nodes, [`max_ttl`](crate::Builder::max_ttl) and the [prefix](crate::Builder::key_prefix). If the user
    /// may list connections, a check thus also reports clients with different settings
    /// ([`Finding::Disagrees`](crate::Finding::Disagrees)).
    ///
    /// All nodes are checked concurrently, which takes at most two [connect timeouts](crate::Builder::connect_timeout)
    /// and two [node timeouts](crate::Builder::node_timeout). The check runs the commands that a lock needs on a key
    /// that does not exist: the [prefix](crate::Builder::key_prefix), `quorlock-check:` and a random number. It sets no
    /// key. The scripts of this crate stay in the servers' cache, as after any acquire.
    ///
    /// # Errors
    /// [`ClientError`] if no node can be contacted. The failure of a single node is part of the result.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time, which closes its connections.
    pub async fn check(&self) -> Result<Vec<NodeCheck>, ClientError> {
        let Inner { driver, backing, settings } = &*self.inner;
        if driver.is_closed() {
            return Err(ClientError::Closed);
        }
        let key = settings.key(probe_resource(backing.pool.random()))?;
        Ok(check(&backing.pool, key, &settings.prefix, settings.limits.max_ttl).await?)
    }

    /// Resolves when a quorum of nodes is connected on the current runtime, or on the
    /// [configured](crate::Builder::runtime) one. Resolves immediately if a quorum is already connected. If all
    /// connected nodes have started recently, it also waits for the other nodes, which may show that the deployment is
    /// not new; see [`RestartGuard::Observed`](crate::RestartGuard::Observed). Starts the connections if necessary.
    /// Call it when a service starts, so that the first acquire does not wait for connections:
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
    /// It has no time limit and also waits through an outage, so use a timeout as above. [`check`](Self::check) reports
    /// whether the nodes' configuration is safe for locks.
    ///
    /// # Errors
    /// [`ClientError`] if connecting is impossible: the client is closed, or there is no runtime.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time; connecting continues in the background.
    pub async fn ready(&self) -> Result<(), ClientError> {
        Ok(self.inner.driver.wait_until_ready().await?)
    }

    /// The last known state of each node. Does no I/O.
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
