//! The client: acquires locks, reads their status, and reports the state of the nodes.

use super::acquire::Acquire;
use super::inner::{Driver, Inner};
use super::lock_admin::{force_release, status};
use super::settings::Settings;
use super::status::Status;
use super::using::{TryUsingError, UsingError};
use crate::check::{Finding, NodeCheck, check, probe_resource};
use crate::coordinator::PermitsDifference;
use crate::error::{ClientError, CloseError, ReleaseError};
use crate::lease::{Backing, Lease, LeaseRef, ReleaseOutcome};
use crate::observe::{Report, escape_name};
use std::fmt;
use std::sync::Arc;

/// A client for distributed locks on N independent Redis masters.
///
/// Cloning is cheap, and clones share connections. Any number of tasks, threads and runtimes can use a client at the
/// same time, and a client can be stored in a `static`. See [`Builder::runtime`](crate::Builder::runtime) for the
/// runtime of its connections.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) inner: Arc<Inner>,
}

impl Redlock {
    pub(crate) fn new(driver: Arc<Driver>, backing: Arc<Backing>, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { driver, backing, settings }) }
    }

    /// Tries once to lock `resource`. The attempt takes at most one [node timeout](crate::Builder::node_timeout), or
    /// two if a [fencing token](Acquire::fenced) is requested. The attempt takes longer in two cases:
    ///
    /// - If no quorum is connected yet, for example in a program that has just started, the attempt first waits for
    ///   connections, for at most one [connect timeout](crate::Builder::connect_timeout). See [`ready`](Self::ready).
    /// - If the attempt needs the grant of a node whose clock has stepped forward, it waits for the grant to
    ///   [count](crate::VoteEligibility::Deferred), for at most one more second.
    ///
    /// A resource is any sequence of bytes. Its key is the [prefix](crate::Builder::key_prefix) followed by the
    /// resource. Keys that contain `#quorlock:` are reserved for the library's own keys, such as fencing counters.
    /// Every method [rejects](crate::ConfigError::ReservedResource) a resource with a reserved key.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref()).once()
    }

    /// Locks `resource`. If another lease holds the lock, the acquire waits until the lock becomes free, for at most
    /// its [wait time](Acquire::wait).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::one(self.inner.clone(), resource.as_ref())
    }

    /// Locks several resources with one lease. If any of them is held, the acquire waits until all are free, for at
    /// most its [wait time](Acquire::wait). Each node grants either all resources or none of them, and the lease has a
    /// single validity. A lease can have at most 1000 resources. Duplicates are ignored.
    ///
    /// An acquire holds no resource while it waits. Overlapping sets of resources therefore never cause a deadlock, in
    /// whatever order the resources are given. The acquire waits in the queue of the resource that is held.
    ///
    /// Nodes in cluster mode require all keys of a command to be in the same hash slot, and otherwise reject the
    /// command with `CROSSSLOT`. Give the resources a common hash tag, such as `{user:7}/inbox` and `{user:7}/outbox`,
    /// or use a [prefix](crate::Builder::key_prefix) with a hash tag, such as `{lock}:`.
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
        Acquire::all(self.inner.clone(), resources)
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
        Acquire::all(self.inner.clone(), resources).once()
    }

    /// Locks one of several resources: any one that is free. If all are held, the acquire waits until one becomes free,
    /// for at most its [wait time](Acquire::wait). [`Lease::resource`](crate::LeaseRef::resource) returns the resource
    /// that was locked. At most 1000 resources can be given. Duplicates are ignored.
    ///
    /// Each resource is an ordinary lock: [`acquire`](Self::acquire) and other clients see it as held. The acquire
    /// tries the resources in rotation from a random one, up to 16 in one request. While it waits, it is notified when
    /// one of them is released, and tries all of them again after the delay of the retry policy. Waiting acquires of this
    /// client for the same resources are served in order.
    ///
    /// Nodes in cluster mode require a common hash tag, as for [`acquire_all`](Self::acquire_all).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// let license = redlock.acquire_any(["license/1", "license/2", "license/3"]).await?;
    /// println!("using {}", String::from_utf8_lossy(license.resource()));
    /// drop(license); // released in the background
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError). [`Contended`](crate::AcquireError::Contended) means that no resource
    /// was free on a quorum of nodes; its report describes the last attempt.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire_any<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        Acquire::any(self.inner.clone(), resources)
    }

    /// Tries to lock one of several resources, without waiting; see [`acquire_any`](Self::acquire_any). Tries each
    /// resource once, up to 16 in one request, unless an attempt fails for another reason than held resources.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire_any<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        Acquire::any(self.inner.clone(), resources).once()
    }

    /// Takes over the lock of `resource` from a holder that has passed on the [value](crate::LeaseRef::value) of its
    /// lease. Each node replaces that value with a new one. The previous holder's lease is then lost with the reason
    /// [`TakenOver`](crate::Loss::TakenOver).
    ///
    /// If the previous lease belongs to this client, it ends before the new lease begins. The previous lease also ends
    /// if the adoption fails or is dropped after a node may have replaced the value. If every node refuses the
    /// adoption, the previous lease continues.
    ///
    /// **If the previous lease belongs to a different client, it stays valid until that client notices the adoption.**
    /// Its holder must therefore stop working before passing on the value. If the nodes send invalidation pushes, a
    /// holder that uses background renewal or waits for [`lost`](crate::LeaseRef::lost) is notified within a round
    /// trip. Any other holder notices the adoption at its next extension, or when its validity ends.
    ///
    /// If two clients adopt the same value at the same time, one of them succeeds, provided that the number of nodes is
    /// odd and all of them reply. If an adoption does not reach a quorum, the client deletes the lock on the nodes that
    /// have already replaced the value. If the old value then remains on fewer nodes than a quorum, no client holds the
    /// lock.
    ///
    /// An adoption makes a single attempt: the [wait time](Acquire::wait) and the [retry policy](Acquire::retry) do not
    /// apply. A lease of several resources cannot be adopted.
    ///
    /// # Errors
    /// - [`NotHeld`](crate::AcquireError::NotHeld): the resource's key does not have the given value on a quorum of
    ///   nodes.
    /// - [`AdoptsSet`](crate::ConfigError::AdoptsSet): the value belongs to a lease of several resources. No node is
    ///   contacted.
    /// - For all other errors, see [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// If the future is dropped, the client sends a release to the nodes that have already replaced the value.
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        Acquire::handed_over(self.inner.clone(), resource.as_ref(), value.as_ref()).once()
    }

    /// Reads the state of the lock on `resource` from each node. Takes at most one node timeout, or two if the runtime
    /// that reads the replies is shut down during the call.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the nodes cannot be contacted, for example because the client is closed. The
    /// failure of a single node is not an error: the result contains the failure.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, ClientError> {
        let keys = self.inner.checked_keys(resource.as_ref())?;
        status(&self.inner, keys).await
    }

    /// Deletes the lock on `resource`, regardless of its holder. The client first reads the lock's value from each
    /// node, and then deletes the key on each node where it still has that value. A lock that another client acquires
    /// between these two steps is therefore not deleted, except that of readers: they share one value. A node that does
    /// not reply to the read within the node timeout receives no delete request. Takes at most two node timeouts.
    ///
    /// A value that is not a string, or that is a string of more than 4,200 bytes, does not belong to a lock of this
    /// library. The node keeps such a key, and its vote is [`Held`](crate::NodeVote::Held). Delete the key with `DEL`.
    ///
    /// **The holder may continue working until it notices the loss.** A lease with background renewal, or one whose
    /// holder waits for [`lost`](crate::LeaseRef::lost), detects the loss immediately if the nodes send pushes, and
    /// otherwise at its next renewal. Any other lease detects the loss at its next extension or its release. If this client holds the lock, its lease ends at the latest when this client
    /// acquires the lock again.
    ///
    /// In the report, a node that deleted the lock has the vote [`Granted`](crate::NodeVote::Granted), and a node that
    /// had no lock has the vote [`Missing`](crate::NodeVote::Missing).
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the nodes cannot be contacted, for example because the client is closed. The
    /// failure of a single node is not an error: the result contains the failure.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may already have deleted the lock.
    pub async fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, ClientError> {
        let keys = self.inner.checked_keys(resource.as_ref())?;
        force_release(&self.inner, keys).await
    }

    /// Releases all leases of this client and its clones. Each lease is then lost, with the reason
    /// [`Closed`](crate::Loss::Closed). Returns one entry for each lease: its resource (the first one, if the lease has
    /// several) and the outcome of its release. Takes at most one node timeout, with the exceptions of
    /// [`Lease::release`](crate::Lease::release).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the releases continue in the background.
    pub async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        self.inner.backing.release_all().await
    }

    /// Runs `work` while holding the lock on `resource`, and renews the lease in the background until the work ends.
    /// Shorthand for [`acquire`](Self::acquire) followed by [`using`](Acquire::using).
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

    /// Runs the future that `work` returns while holding the lock on `resource`. Shorthand for
    /// [`acquire`](Self::acquire) followed by [`using_fut`](Acquire::using_fut).
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

    /// Runs `work`, which returns a `Result`, while holding the lock on `resource`. Shorthand for
    /// [`acquire`](Self::acquire) followed by [`try_using`](Acquire::try_using).
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

    /// Runs the fallible future that `work` returns while holding the lock on `resource`. Shorthand for
    /// [`acquire`](Self::acquire) followed by [`try_using_fut`](Acquire::try_using_fut).
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

    /// Closes the client and all its clones. Waiting acquires and all later acquires fail with
    /// [`Closed`](crate::AcquireError::Closed). Leases that are still held are released, and are lost with the reason
    /// [`Closed`](crate::Loss::Closed). Waits until every pending release has been delivered to the nodes, including
    /// the releases of dropped leases and abandoned attempts.
    ///
    /// Call this before a short-lived process ends. Otherwise a lock whose release is pending remains until its TTL
    /// ends. Takes at most one [connect timeout](crate::Builder::connect_timeout).
    ///
    /// # Errors
    /// Returns a [`CloseError`] with the nodes that did not confirm their releases in time. The affected keys expire at
    /// the end of their TTL.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the client remains closed and the releases continue in the
    /// background.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.inner.driver.close(self.inner.settings.connect_timeout).await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn remains(&self) -> CloseError {
        self.inner.driver.undelivered()
    }

    /// Checks the configuration of each node and reports settings that make locks unsafe, each with the setting to use
    /// instead. The results are in the order in which the nodes were passed to the builder. Call this when a service
    /// starts, or from a monitor. Each check opens a separate connection to each node and closes it afterwards.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
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
    /// All nodes are checked concurrently, which takes at most one [connect timeout](crate::Builder::connect_timeout)
    /// and two [node timeouts](crate::Builder::node_timeout). The check runs the commands that a lock requires on a key
    /// that does not exist, and sets no key. The name of the key consists of the [prefix](crate::Builder::key_prefix),
    /// `quorlock-check:` and a random number. As after any acquire, the scripts of this crate remain in the servers'
    /// script cache.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the nodes cannot be contacted, for example because the client is closed. The
    /// failure of a single node is not an error: the result contains the failure.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time. Dropping it closes the connections of the check.
    pub async fn check(&self) -> Result<Vec<NodeCheck>, ClientError> {
        let Inner { backing, settings, .. } = &*self.inner;
        let key = settings.key(probe_resource(backing.pool.random()))?;
        let preview = |servers: &[_]| backing.preview_guard(servers);
        let mut nodes = self.inner.until_closed(check(&backing.pool, preview, key)).await??;
        for (semaphore, difference) in backing.differing_permits() {
            let PermitsDifference { permits, other_permits, nodes: reporting } = difference;
            let semaphore = escape_name(&semaphore);
            let finding = Finding::PermitsDiffer { semaphore, permits, other_permits };
            for node in reporting.iter() {
                nodes[node.index()].add([finding.clone()]);
            }
        }
        Ok(nodes)
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
