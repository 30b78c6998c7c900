//! The [`Observer`] trait.

use super::event::Event;
use std::sync::Arc;

/// Receives the [events](crate::event) of a client. To install an observer, call
/// [`Builder::observer`](crate::Builder::observer).
///
/// Events own their data, so an observer can send them to another thread or task:
///
/// ```
/// use quorlock::Observer;
/// use quorlock::event::Event;
/// use std::sync::mpsc::{Sender, channel};
///
/// struct Forward(Sender<Event>);
///
/// impl Observer for Forward {
///     fn on_event(&self, event: &Event) {
///         // `send` fails only if the receiver was dropped.
///         let _ = self.0.send(event.clone());
///     }
/// }
///
/// let (sender, events) = channel();
/// let builder = quorlock::Redlock::builder().observer(Forward(sender));
/// # let _ = (builder, events);
/// ```
///
/// # Rules for implementations
///
/// The client calls `on_event` where an event occurs: in a task that acquires, extends or releases a lock, or in the
/// task that communicates with the nodes. Events that a timer causes are delivered on a thread for blocking code.
///
/// Implementations of `on_event` **should not block**. For example, they can update a counter or send to a channel. A
/// blocked call delays acquires, but not renewals. While the thread for timer events is blocked, the client queues at
/// most 1,024 timer events, and drops the rest.
///
/// Several threads may call `on_event` concurrently. The library holds no internal lock during a call, so an observer
/// may call the non-blocking methods of the client and its leases, such as [`nodes`](crate::Redlock::nodes),
/// [`leases`](crate::Redlock::leases) and [`is_valid`](crate::LeaseRef::is_valid). An observer may also drop leases,
/// which causes further events.
///
/// An observer cannot make an operation fail. If `on_event` panics, the client catches the panic, emits
/// [`ObserverPanicked`](Event::ObserverPanicked) to the observer, and sends it no further events. Otherwise, an
/// observer that panics on each event would flood the log.
pub trait Observer: Send + Sync + 'static {
    /// Handles one event. The client calls this method once per event.
    fn on_event(&self, event: &Event);
}

/// Forwards every event to the inner observer. To keep access to the observer, pass a clone of the `Arc` to
/// [`Builder::observer`](crate::Builder::observer).
impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_event(&self, event: &Event) {
        (**self).on_event(event);
    }
}
