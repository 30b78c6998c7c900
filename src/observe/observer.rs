//! The [`Observer`] trait.

use super::event::Event;
use std::sync::Arc;

/// Receives the events of a client. Install an observer with [`Builder::observer`](crate::Builder::observer). See
/// [`event`](crate::event) for the list of events.
///
/// Events own their data. An observer can therefore send them to another thread or task:
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
///         // Fails only if the receiver was dropped.
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
/// The client calls `on_event` where the event occurs: in the task that acquires, extends or releases a lock, in the
/// task that serves the nodes, or, for events of the timer, on a thread for blocking code. The method **should not block**,
/// because a blocked call delays acquires, and events that the timer causes are dropped once 1,024 of them wait. Renewals
/// continue. Update a counter, or send to a channel.
///
/// Several threads may call the method concurrently. The library holds no internal lock during a call, so an observer
/// may call the non-blocking methods of the client and its leases, such as [`nodes`](crate::Redlock::nodes),
/// [`leases`](crate::Redlock::leases) and [`is_valid`](crate::LeaseRef::is_valid). It may also drop leases, which
/// causes further events.
///
/// An observer cannot make an operation fail. If `on_event` panics, the client catches the panic, emits
/// [`ObserverPanicked`](Event::ObserverPanicked) to the observer, and sends it no further events. Otherwise, a panic
/// for each event would flood the log.
pub trait Observer: Send + Sync + 'static {
    /// Called once for each event.
    fn on_event(&self, event: &Event);
}

/// Forwards every event to the inner observer. Pass a clone of the `Arc` to
/// [`Builder::observer`](crate::Builder::observer) to keep access to the observer.
impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_event(&self, event: &Event) {
        (**self).on_event(event);
    }
}
