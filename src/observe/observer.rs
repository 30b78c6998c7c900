//! The [`Observer`] trait.

use super::event::{
    AcquireBegun, AcquireEnded, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver, LeaseLost,
    ReleaseBegun, ReleaseEnded, RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswered, NodeChanged, ReleasesOwed,
};

/// Receives the events of a client; see [`Builder::observer`](crate::Builder::observer). Every method has an empty
/// default.
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
/// Methods are called where the event occurs: on the task that acquires, extends or releases, on the tasks of the
/// nodes, and on the timer thread of all clients. They **must not block**: blocking delays locks and renewals. Update a
/// counter, or send to a channel.
///
/// Methods are called concurrently from several threads. No lock of the library is held during a call, so a method may
/// call the non-blocking methods of the client and its leases, such as [`nodes`](crate::Redlock::nodes),
/// [`leases`](crate::Redlock::leases) and [`is_valid`](crate::LeaseRef::is_valid). It may also drop leases, which
/// causes further events.
///
/// An observer cannot make an operation fail. A panic is caught, [`panicked`](Self::panicked) is called, and the
/// observer receives no further events: a panic per event would flood the log.
///
/// Events contain neither the values of locks nor passwords. Minor versions may add events and fields.
#[allow(unused_variables)] // The default methods ignore their events.
pub trait Observer: Send + Sync + 'static {
    /// An acquire has started.
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {}

    /// An acquire starts to wait.
    fn wait_begun(&self, event: &WaitBegun<'_>) {}

    /// An acquire has stopped waiting.
    fn wait_ended(&self, event: &WaitEnded<'_>) {}

    /// An attempt of an acquire has ended.
    fn attempt_ended(&self, event: &AttemptEnded<'_>) {}

    /// An acquire has ended.
    fn acquire_ended(&self, event: &AcquireEnded<'_>) {}

    /// A lock was taken over by its value.
    fn handed_over(&self, event: &HandedOver<'_>) {}

    /// A holder requests an extension.
    fn extend_begun(&self, event: &ExtendBegun<'_>) {}

    /// An extension requested by a holder has ended.
    fn extend_ended(&self, event: &ExtendEnded<'_>) {}

    /// A lease was renewed in the background.
    fn renewed(&self, event: &Renewed<'_>) {}

    /// A background renewal has failed.
    fn renewal_failing(&self, event: &RenewalFailing<'_>) {}

    /// A lease was lost.
    fn lease_lost(&self, event: &LeaseLost<'_>) {}

    /// A release has started.
    fn release_begun(&self, event: &ReleaseBegun<'_>) {}

    /// A release has ended.
    fn release_ended(&self, event: &ReleaseEnded<'_>) {}

    /// The standing of a node has changed.
    fn node_changed(&self, event: &NodeChanged<'_>) {}

    /// The number of a node's pending releases has changed.
    fn releases_owed(&self, event: &ReleasesOwed<'_>) {}

    /// A connection was established.
    fn connection_opened(&self, event: &ConnectionOpened<'_>) {}

    /// A connection was closed.
    fn connection_closed(&self, event: &ConnectionClosed<'_>) {}

    /// A connection could not be established.
    fn connect_failed(&self, event: &ConnectFailed<'_>) {}

    /// A node has replied to a command, or will not. By far the most frequent event: ten for each lock on five nodes.
    fn node_answered(&self, event: &NodeAnswered<'_>) {}

    /// The method with this name has panicked. This is the last call.
    fn panicked(&self, method: &'static str) {}
}
