//! Metrics of a client for the `metrics` crate.
//!
//! docs/METRICS.md lists the metrics. [`Metrics`] is an [`Observer`] that updates all of them. It creates the metric
//! handles when the client is built, or when a class of locks is first used. Handling an event therefore only requires
//! a lookup of the class or the node.

mod classes;
mod families;
mod nodes;

use self::classes::{Class, Classes};
use self::nodes::Node;
use super::event::{AcquireOutcome, Event, LockInfo};
use super::observer::Observer;
use crate::sync::catch_panic;
use metrics::{Recorder, with_recorder};
use std::sync::Arc;

/// Observer that updates the metrics of the recorder that was installed when the client was built.
pub(super) struct Metrics {
    classes: Classes,
    nodes: Box<[Node]>,
}

impl Metrics {
    /// Returns `None` if no recorder is installed, or if the recorder panics.
    pub(super) fn new(nodes: &[Arc<str>]) -> Option<Self> {
        let made = catch_panic(|| {
            with_recorder(|recorder| is_recorder(recorder).then(|| Self::with(recorder, nodes)))
        });
        made.flatten()
    }

    fn with(recorder: &dyn Recorder, nodes: &[Arc<str>]) -> Self {
        families::describe(recorder);
        let nodes = nodes.iter().map(|name| Node::new(recorder, name.clone()));
        Self { classes: Classes::new(recorder), nodes: nodes.collect() }
    }

    fn class(&self, lock: &LockInfo) -> Arc<Class> {
        self.classes.of(lock.class)
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.name == name)
    }
}

/// Returns true if a recorder is installed. Otherwise, the `metrics` crate passes a no-op recorder, which can only be
/// recognized by its size: it is zero-sized, while a recorder that stores metrics is not.
fn is_recorder(recorder: &dyn Recorder) -> bool {
    size_of_val(recorder) > 0
}

impl Observer for Metrics {
    fn on_event(&self, event: &Event) {
        match event {
            // Creates the handles of the class, so that all its metrics are exported as 0.
            Event::AcquireStarted { lock, .. } => {
                self.class(lock);
            }
            Event::WaitStarted { lock } => self.class(lock).waiters.increment(1.0),
            Event::WaitFinished { lock, .. } => self.class(lock).waiters.decrement(1.0),
            Event::AcquireFinished { lock, outcome, elapsed, .. } => {
                let class = self.class(lock);
                class.acquires.count(outcome);
                let wait = if *outcome == AcquireOutcome::Won {
                    class.held.increment(1.0);
                    &class.wait_of_won
                } else {
                    &class.wait_of_failed
                };
                wait.record(elapsed.as_secs_f64());
            }
            Event::ExtendFinished { lock, outcome, .. } => self.class(lock).extends.count(outcome),
            Event::LeaseRenewed { lock, slack, .. } => {
                let class = self.class(lock);
                class.renewals.count(&true);
                class.slack.record(slack.as_secs_f64());
            }
            Event::RenewalFailed { lock, .. } => self.class(lock).renewals.count(&false),
            Event::LeaseLost { lock, reason, held_for } => {
                let class = self.class(lock);
                class.losses.count(reason);
                class.record_end(*held_for);
            }
            // The end of a lost lease was counted when it was lost.
            Event::ReleaseStarted { lock, held_for, loss: None } => {
                self.class(lock).record_end(*held_for);
            }
            Event::ReleaseFinished { lock, result, .. } => self.class(lock).releases.count(result),
            Event::NodeHealthChanged { node, .. }
            | Event::PendingReleasesChanged { node, .. }
            | Event::ConnectionOpened { node, .. }
            | Event::ConnectionClosed { node, .. }
            | Event::ConnectFailed { node, .. }
            | Event::CommandFinished { node, .. } => {
                if let Some(node) = self.node(node) {
                    node.handle(event);
                }
            }
            Event::AttemptFinished { .. }
            | Event::ExtendStarted { .. }
            | Event::PermitsDiffer { .. }
            | Event::JobUndecided { .. }
            | Event::JobsDiffer { .. }
            | Event::ReleaseStarted { loss: Some(_), .. }
            | Event::ObserverPanicked { .. } => {}
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        for node in &self.nodes {
            catch_panic(|| node.end());
        }
    }
}
