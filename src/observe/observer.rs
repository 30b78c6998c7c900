//! Who is told what happens.

use super::event::{
    AcquireBegun, AcquireEnded, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver, LeaseLost,
    ReleaseBegun, ReleaseEnded, RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswered, NodeChanged, ReleasesOwed,
};

/// Is told what a client does: see [`Builder::observer`](crate::Builder::observer). Every method has a default,
/// which does nothing.
///
/// ```
/// use quorlock::{LeaseLost, NodeChanged, Observer};
///
/// struct Pager;
///
/// impl Observer for Pager {
///     fn lease_lost(&self, event: &LeaseLost<'_>) {
///         eprintln!("lost {}: {}", event.lock.resources, event.reason);
///     }
///
///     fn node_changed(&self, event: &NodeChanged<'_>) {
///         eprintln!("{}: {} -> {}", event.node, event.from, event.to);
///     }
/// }
/// # #[cfg(feature = "test-util")]
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = quorlock::test_util::Nodes::start(3);
/// # let redlock = nodes.client().observer(Pager).build()?;
/// # redlock.acquire("orders/42").await?.lost().await;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "test-util"))]
/// # fn main() {}
/// ```
///
/// # What it may do
/// It is called where the event happens: on the task that acquires, extends or releases; on the nodes' tasks;
/// on the thread that rings the alarms of all clients. So it **must not block**: a method that waits holds
/// up locks and renewals. Count, or put what you want to know into a channel.
///
/// It is called at any time, from several threads at once, and never while the library holds a lock of its
/// own: it may ask the client and its leases whatever needs no waiting, such as
/// [`nodes`](crate::Redlock::nodes), [`leases`](crate::Redlock::leases) and
/// [`is_valid`](crate::LeaseRef::is_valid); and drop leases, which is an event of its own.
///
/// It cannot fail a lock. If a method panics, that is caught; [`panicked`](Self::panicked) is then the last call
/// that the observer gets, whatever happens later: a panic at each event would fill the log of panics.
///
/// What events show has no value of a lock and no password in it. New events and new fields come in minor
/// versions.
#[allow(unused_variables)] // The defaults do nothing with what they are told.
pub trait Observer: Send + Sync + 'static {
    /// An acquire has begun.
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {}

    /// An acquire has to wait.
    fn wait_begun(&self, event: &WaitBegun<'_>) {}

    /// It waits no more.
    fn wait_ended(&self, event: &WaitEnded<'_>) {}

    /// An attempt of an acquire is over.
    fn attempt_ended(&self, event: &AttemptEnded<'_>) {}

    /// An acquire has ended.
    fn acquire_ended(&self, event: &AcquireEnded<'_>) {}

    /// A lock was taken over by its value.
    fn handed_over(&self, event: &HandedOver<'_>) {}

    /// A holder has asked for an extension.
    fn extend_begun(&self, event: &ExtendBegun<'_>) {}

    /// It has ended.
    fn extend_ended(&self, event: &ExtendEnded<'_>) {}

    /// A lease was extended in the background.
    fn renewed(&self, event: &Renewed<'_>) {}

    /// An extension in the background has failed.
    fn renewal_failing(&self, event: &RenewalFailing<'_>) {}

    /// A lease was lost.
    fn lease_lost(&self, event: &LeaseLost<'_>) {}

    /// A lease is given up.
    fn release_begun(&self, event: &ReleaseBegun<'_>) {}

    /// Its release has ended.
    fn release_ended(&self, event: &ReleaseEnded<'_>) {}

    /// A node stands otherwise than before.
    fn node_changed(&self, event: &NodeChanged<'_>) {}

    /// How many releases a node is owed has changed.
    fn releases_owed(&self, event: &ReleasesOwed<'_>) {}

    /// A connection was made.
    fn connection_opened(&self, event: &ConnectionOpened<'_>) {}

    /// A connection has ended.
    fn connection_closed(&self, event: &ConnectionClosed<'_>) {}

    /// A connection could not be made.
    fn connect_failed(&self, event: &ConnectFailed<'_>) {}

    /// A node has answered a command, or will not. This is told most often by far: ten times for a lock on five nodes.
    fn node_answered(&self, event: &NodeAnswered<'_>) {}

    /// The method of this name has panicked. This is the last call.
    fn panicked(&self, method: &'static str) {}
}
