//! Levels of events, and their dispatch to observer methods.

use super::event::{
    AcquireBegun, AcquireEnded, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver, LeaseLost,
    ReleaseBegun, ReleaseEnded, RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswered, NodeChanged, ReleasesOwed,
};
use super::observer::Observer;
use std::sync::Arc;

/// Level of an event. Events below every receiver's level are not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Logged at debug level.
    Detail,
    /// Logged at warn level.
    Trouble,
}

/// An event.
pub(crate) trait Told {
    /// Name of the observer method.
    const METHOD: &'static str;

    fn tell(&self, observer: &dyn Observer);
}

macro_rules! told_by {
    ($($event:ident by $method:ident,)*) => {
        $(impl Told for $event<'_> {
            const METHOD: &'static str = stringify!($method);

            fn tell(&self, observer: &dyn Observer) {
                observer.$method(self);
            }
        })*

        /// Forwards every event to the inner observer. Pass a clone of the `Arc` to
        /// [`Builder::observer`](crate::Builder::observer) to keep access to the observer.
        impl<T: Observer + ?Sized> Observer for Arc<T> {
            $(fn $method(&self, event: &$event<'_>) {
                (**self).$method(event);
            })*

            fn panicked(&self, method: &'static str) {
                (**self).panicked(method);
            }
        }
    };
}

told_by! {
    AcquireBegun by acquire_begun,
    WaitBegun by wait_begun,
    WaitEnded by wait_ended,
    AttemptEnded by attempt_ended,
    AcquireEnded by acquire_ended,
    HandedOver by handed_over,
    ExtendBegun by extend_begun,
    ExtendEnded by extend_ended,
    Renewed by renewed,
    RenewalFailing by renewal_failing,
    LeaseLost by lease_lost,
    ReleaseBegun by release_begun,
    ReleaseEnded by release_ended,
    NodeChanged by node_changed,
    ReleasesOwed by releases_owed,
    ConnectionOpened by connection_opened,
    ConnectionClosed by connection_closed,
    ConnectFailed by connect_failed,
    NodeAnswered by node_answered,
}
