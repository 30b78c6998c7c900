//! Closes a client: fails its acquires, releases its leases, and closes its connections.

use super::closing::Closing;
use super::completion::{Completion, UndeliveredReleases};
use super::node::Node;
use super::state::Coordinator;
use super::timeout::Timeout;
use crate::protocol::Time;
use std::time::Duration;

impl Coordinator {
    /// Starts to close the client. All current and future acquires and requests fail, and all leases are released. The client
    /// reports [`Completion::Closed`] once all releases are delivered, or after `limit` at the latest. Releases that
    /// are still pending at that time are delivered afterwards.
    pub(crate) fn handle_close(&mut self, limit: Duration, now: Time) {
        let (until, was_closed) = (now.after(limit), self.closing == Closing::Closed);
        if !was_closed {
            self.closing = Closing::Delivering { until };
            self.set_timeout(until, Timeout::Close);
        }
        if std::mem::take(&mut self.awaits_ready) {
            self.completions.push_back(Completion::Ready);
        }
        for id in self.acquires.ids() {
            self.advance(id, now);
        }
        self.report_change(None);
        self.cut_off_surveys();
        self.close_leases(now);
        self.cx.is_closing = true;
        self.prune(now);
        self.settle(now);
        if was_closed {
            self.completions.push_back(Completion::Closed(Ok(())));
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing != Closing::Open
    }

    pub(super) fn prune(&mut self, now: Time) {
        for node in self.nodes.iter_mut() {
            node.prune(now, &mut self.cx);
        }
    }

    /// Advances the close of the client. Reports the result once all releases are delivered or the time limit has
    /// passed. Closes the connections once all releases are delivered.
    pub(super) fn step_close(&mut self, now: Time) {
        if !matches!(self.closing, Closing::Delivering { .. } | Closing::Reported) {
            return;
        }
        // Only releases keep the connections open: no caller needs the result of another command.
        let is_done = !self.nodes.iter().any(Node::has_releases);
        let result = match self.closing {
            Closing::Delivering { .. } if is_done => Some(Ok(())),
            Closing::Delivering { until } if now >= until => Some(Err(self.undelivered())),
            _ => None,
        };
        if let Some(result) = result {
            self.closing = Closing::Reported;
            self.completions.push_back(Completion::Closed(result));
        }
        if is_done {
            self.closing = Closing::Closed;
            for node in self.nodes.iter_mut() {
                node.close(&mut self.cx);
            }
        }
    }

    fn undelivered(&self) -> UndeliveredReleases {
        let pending = self.nodes.iter().map(Node::pending_releases);
        UndeliveredReleases { pending_releases: pending.collect() }
    }
}
