//! Events as metrics of the `metrics` crate.
//!
//! docs/METRICS.md lists them. An [`Observer`] updates all of them. Handles are created with the client, or on the
//! first use of a class, so an event only looks up its class or node.

mod classes;
mod families;
mod nodes;

use self::classes::{Class, Classes};
use self::nodes::Node;
use super::event::{
    AcquireBegun, AcquireEnded, AcquireOutcome, ExtendEnded, LeaseLost, ReleaseBegun, ReleaseEnded,
    RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
use super::lock::Lock;
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswered, NodeChanged, ReleasesOwed,
};
use super::observer::Observer;
use crate::sync::contain;
use metrics::{Recorder, with_recorder};
use std::sync::Arc;

/// Records to the recorder that was installed when the client was built.
pub(super) struct Metrics {
    classes: Classes,
    nodes: Box<[Node]>,
}

impl Metrics {
    /// `None` if no recorder is installed, or it panics.
    pub(super) fn new(nodes: &[Arc<str>]) -> Option<Self> {
        let made = contain(|| {
            with_recorder(|recorder| is_recorder(recorder).then(|| Self::with(recorder, nodes)))
        });
        made.flatten()
    }

    fn with(recorder: &dyn Recorder, nodes: &[Arc<str>]) -> Self {
        families::describe(recorder);
        let nodes = nodes.iter().map(|name| Node::new(recorder, name.clone()));
        Self { classes: Classes::new(recorder), nodes: nodes.collect() }
    }

    fn class(&self, lock: &Lock<'_>) -> &Class {
        self.classes.of(lock.class)
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.name == name)
    }
}

/// True if a recorder is installed. Otherwise the facade returns a no-op recorder, which it does not identify. That one
/// is zero-sized, and a recorder that stores metrics is not.
fn is_recorder(recorder: &dyn Recorder) -> bool {
    size_of_val(recorder) > 0
}

impl Observer for Metrics {
    /// Exports 0 for all metrics of the class.
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {
        self.class(&event.lock);
    }

    fn wait_begun(&self, event: &WaitBegun<'_>) {
        self.class(&event.lock).waiters.increment(1.0);
    }

    fn wait_ended(&self, event: &WaitEnded<'_>) {
        self.class(&event.lock).waiters.decrement(1.0);
    }

    fn acquire_ended(&self, event: &AcquireEnded<'_>) {
        let class = self.class(&event.lock);
        class.acquires.count(&event.outcome);
        let wait = if event.outcome == AcquireOutcome::Won {
            class.held.increment(1.0);
            &class.wait_of_won
        } else {
            &class.wait_of_failed
        };
        wait.record(event.waited.as_secs_f64());
    }

    fn extend_ended(&self, event: &ExtendEnded<'_>) {
        self.class(&event.lock).extends.count(&event.outcome);
    }

    fn renewed(&self, event: &Renewed<'_>) {
        let class = self.class(&event.lock);
        class.renewals.count(&true);
        class.slack.record(event.slack.as_secs_f64());
    }

    fn renewal_failing(&self, event: &RenewalFailing<'_>) {
        self.class(&event.lock).renewals.count(&false);
    }

    fn lease_lost(&self, event: &LeaseLost<'_>) {
        let class = self.class(&event.lock);
        class.losses.count(&event.reason);
        class.held.decrement(1.0);
        class.hold.record(event.held_for.as_secs_f64());
    }

    fn release_begun(&self, event: &ReleaseBegun<'_>) {
        // A lost lease was already counted when it was lost.
        if event.loss.is_none() {
            let class = self.class(&event.lock);
            class.held.decrement(1.0);
            class.hold.record(event.held_for.as_secs_f64());
        }
    }

    fn release_ended(&self, event: &ReleaseEnded<'_>) {
        self.class(&event.lock).releases.count(&event.result);
    }

    fn node_changed(&self, event: &NodeChanged<'_>) {
        if let Some(node) = self.node(event.node) {
            node.handle_change(event);
        }
    }

    fn releases_owed(&self, event: &ReleasesOwed<'_>) {
        if let Some(node) = self.node(event.node) {
            node.handle_owed(event);
        }
    }

    fn connection_opened(&self, event: &ConnectionOpened<'_>) {
        if let Some(node) = self.node(event.node) {
            node.opened.increment(1);
            node.connections.increment(1.0);
        }
    }

    fn connection_closed(&self, event: &ConnectionClosed<'_>) {
        if let Some(node) = self.node(event.node) {
            node.handle_closed(event);
        }
    }

    fn connect_failed(&self, event: &ConnectFailed<'_>) {
        if let Some(node) = self.node(event.node) {
            node.connect_failures.increment(1);
        }
    }

    fn node_answered(&self, event: &NodeAnswered<'_>) {
        if let Some(node) = self.node(event.node) {
            node.handle_answer(event);
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        for node in &self.nodes {
            contain(|| node.end());
        }
    }
}
