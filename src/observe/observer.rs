//! The [`Observer`] trait.

use super::event::{
    AcquireBegun, AcquireEnded, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver, LeaseLost,
    ReleaseBegun, ReleaseEnded, RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswered, NodeChanged, ReleasesOwed,
};

/// Receives the events of a client. Install an observer with [`Builder::observer`](crate::Builder::observer). Every
/// method has an empty default implementation.
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
/// #     let nodes = quorlock::test_util::Nodes::start(3);
/// #     let redlock = nodes.client().observer(Pager).build()?;
/// #     redlock.acquire("orders/42").await?.lost().await;
/// #     Ok(())
/// # }
/// # #[cfg(not(feature = "test-util"))]
/// # fn main() {}
/// ```
///
/// # Rules for implementations
///
/// The client calls each method where the event occurs: in the task that acquires, extends or releases a lock, in the
/// tasks that serve the nodes, or on the timer thread that all clients share. Methods **must not block**, because a
/// blocked method delays locks and renewals. Update a counter, or send to a channel.
///
/// Several threads may call methods concurrently. The library holds no internal lock during a call, so a method may
/// call the non-blocking methods of the client and its leases, such as [`nodes`](crate::Redlock::nodes),
/// [`leases`](crate::Redlock::leases) and [`is_valid`](crate::LeaseRef::is_valid). It may also drop leases, which
/// causes further events.
///
/// An observer cannot make an operation fail. If a method panics, the client catches the panic, calls
/// [`panicked`](Self::panicked), and sends the observer no further events. Otherwise, a panic for each event would
/// flood the log.
///
/// Events contain neither the values of locks nor passwords. Minor versions may add events and fields.
#[allow(unused_variables)] // The default methods ignore their events.
pub trait Observer: Send + Sync + 'static {
    /// Called when an acquire starts.
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {}

    /// Called when an acquire starts to wait.
    fn wait_begun(&self, event: &WaitBegun<'_>) {}

    /// Called when an acquire stops waiting.
    fn wait_ended(&self, event: &WaitEnded<'_>) {}

    /// Called when an attempt to acquire a lock has ended.
    fn attempt_ended(&self, event: &AttemptEnded<'_>) {}

    /// Called when an acquire has ended.
    fn acquire_ended(&self, event: &AcquireEnded<'_>) {}

    /// Called when a client has taken over a lock by its value.
    fn handed_over(&self, event: &HandedOver<'_>) {}

    /// Called when an extension that the holder requested is sent to the nodes.
    fn extend_begun(&self, event: &ExtendBegun<'_>) {}

    /// Called when an extension that the holder requested has ended.
    fn extend_ended(&self, event: &ExtendEnded<'_>) {}

    /// Called when a lease was renewed in the background.
    fn renewed(&self, event: &Renewed<'_>) {}

    /// Called when a background renewal has failed.
    fn renewal_failing(&self, event: &RenewalFailing<'_>) {}

    /// Called when the loss of a lease is detected.
    fn lease_lost(&self, event: &LeaseLost<'_>) {}

    /// Called when the release of a lease starts.
    fn release_begun(&self, event: &ReleaseBegun<'_>) {}

    /// Called when a release has completed, or when it continues in the background.
    fn release_ended(&self, event: &ReleaseEnded<'_>) {}

    /// Called when the standing of a node has changed.
    fn node_changed(&self, event: &NodeChanged<'_>) {}

    /// Called when the number of a node's pending releases has changed.
    fn releases_owed(&self, event: &ReleasesOwed<'_>) {}

    /// Called when a connection to a node was established.
    fn connection_opened(&self, event: &ConnectionOpened<'_>) {}

    /// Called when a connection to a node was closed.
    fn connection_closed(&self, event: &ConnectionClosed<'_>) {}

    /// Called when a connection to a node could not be established.
    fn connect_failed(&self, event: &ConnectFailed<'_>) {}

    /// Called when a command to a node has completed, with or without a reply. This is by far the most frequent event:
    /// it occurs ten times for each lock on five nodes.
    fn node_answered(&self, event: &NodeAnswered<'_>) {}

    /// Called when another method of this observer has panicked. `method` is the name of that method. This is the last
    /// call to the observer.
    fn panicked(&self, method: &'static str) {}
}
