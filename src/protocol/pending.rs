//! Pending releases and extensions of one node: commands that the client repeats until the node replies.
//!
//! A release must reach every node to which its `SET` was written, and an extension every node that missed it (I5, I6).
//! Commands that a node did not answer, or answered with an error, are stored here and sent again.
//!
//! Pass each such command to [`add`](PendingCommands::add) with its [`PendingWork`]. Each command belongs to a claim:
//! the keys and the value that one attempt set. All releases are stored, but only the longest extension of each claim.
//! Other commands are dropped. When a retry is due, [`prune`](PendingCommands::prune) drops useless commands, and
//! [`take`](PendingCommands::take) returns the rest. Releases are first, because they free locks for other clients.
//! While the node is unreachable, call `prune` from time to time.
//!
//! A server or proxy can refuse a command by closing the connection. If such a release were repeated first on each new
//! connection, it would close the connection again for all other commands. A release that two consecutive connections
//! did not answer is therefore isolated: [`take_isolated`](PendingCommands::take_isolated) returns it, to be sent
//! alone.
//!
//! [`Backoff`](super::Backoff) determines when the next retry is due.

use super::stale_window::STALE_WINDOW;
use super::validity::Time;
use std::collections::{BTreeMap, VecDeque};

/// The maximum number of releases stored for one node (I12: every queue is bounded). Only commands that were written
/// need a release, and an unreachable node gets no commands. Therefore, only a node that fails repeatedly under load
/// gets near the maximum. Beyond it, the oldest release is dropped, and its key exists until the ttl ends.
const MAX_RELEASES: usize = 1 << 16;

/// The work that is still to be done on a node because a command was not answered. `K` identifies a claim: the keys and
/// the value that one attempt set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWork<K> {
    Release(PendingRelease),
    /// The keys of `claim` must not expire before `until`.
    Extension {
        claim: K,
        until: Time,
        /// Whether the claim was released, so that its keys need no extension.
        is_withdrawn: bool,
    },
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRelease {
    /// The time by which all keys of the claim must have expired.
    pub(crate) expiry: Time,
    /// Whether a command of the claim was not answered and may still run on the node after a delay.
    pub(crate) may_run_late: bool,
    /// When the node was first known to be reachable after the release became pending. Either the node replied with an
    /// error, or a new connection replaced a connection that did not reply.
    pub(crate) reached: Option<Time>,
    /// Whether the release must be sent alone: `Some` contains the number of consecutive connections that closed
    /// without answering it.
    pub(crate) isolated_unanswered: Option<u8>,
}

impl PendingRelease {
    /// Returns true if the release may still have a key to delete:
    ///
    /// - If no command can run late, the release is useful until `expiry`.
    /// - If a command can run late, the release is useful as long as the node has not been reached. After that, it is
    ///   useful until a [`STALE_WINDOW`] has passed since `reached` and since `expiry`.
    ///
    /// If `last` is true, the client was closed. The window then always starts at `expiry`, regardless of `reached`.
    pub(crate) fn is_useful(self, now: Time, last: bool) -> bool {
        let reached = if last { Some(self.expiry) } else { self.reached };
        match (self.may_run_late, reached) {
            (false, _) => now < self.expiry,
            (true, None) => true,
            (true, Some(reached)) => now < self.expiry.max(reached).after(STALE_WINDOW),
        }
    }
}

/// The releases and extensions of one node that the client repeats once the node replies again.
#[derive(Debug)]
pub(crate) struct PendingCommands<C, K> {
    releases: VecDeque<C>,
    /// Releases that are sent alone, each with the number of connections that closed without answering it. The release
    /// with the lowest number is sent first: it is the least likely to close the connection, and may only have shared a
    /// pipeline with a command that does.
    isolated: VecDeque<(u8, C)>,
    /// For each claim `K`, the extension command `C` that keeps the claim's keys longest, with the time until which it
    /// keeps them.
    extensions: BTreeMap<K, (Time, C)>,
}

impl<C, K: Ord> PendingCommands<C, K> {
    pub(crate) fn new() -> Self {
        Self { releases: VecDeque::new(), isolated: VecDeque::new(), extensions: BTreeMap::new() }
    }

    /// Stores `command` for a later retry. Drops it if `work` is neither a release nor an extension of a claim that
    /// still needs its keys.
    pub(crate) fn add(&mut self, command: C, work: PendingWork<K>) {
        match work {
            PendingWork::Release(PendingRelease {
                isolated_unanswered: Some(unanswered), ..
            }) => {
                let place = self.isolated.partition_point(|(other, _)| *other <= unanswered);
                self.isolated.insert(place, (unanswered, command));
                self.isolated.truncate(MAX_RELEASES);
            }
            PendingWork::Release(_) => {
                self.releases.push_back(command);
                if self.releases.len() > MAX_RELEASES {
                    self.releases.pop_front();
                }
            }
            PendingWork::Extension { claim, until, is_withdrawn: false } => {
                if self.extensions.get(&claim).is_none_or(|(known, _)| *known < until) {
                    self.extensions.insert(claim, (until, command));
                }
            }
            PendingWork::Extension { .. } | PendingWork::None => {}
        }
    }

    pub(crate) fn releases(&self) -> usize {
        self.releases.len() + self.isolated.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_shared() && !self.has_isolated()
    }

    /// Returns true if a pending command can be sent in one pipeline with other commands.
    pub(crate) fn has_shared(&self) -> bool {
        !self.releases.is_empty() || !self.extensions.is_empty()
    }

    pub(crate) fn has_isolated(&self) -> bool {
        !self.isolated.is_empty()
    }

    /// Drops the commands that are useless at `now`. `work` returns the work that a command still has to do. `last` is
    /// true if the client was closed.
    pub(crate) fn prune(&mut self, now: Time, last: bool, work: impl Fn(&C) -> PendingWork<K>) {
        let is_useful = |command: &C| match work(command) {
            PendingWork::Release(release) => release.is_useful(now, last),
            PendingWork::Extension { until, is_withdrawn, .. } => now < until && !is_withdrawn,
            PendingWork::None => false,
        };
        self.releases.retain(is_useful);
        self.isolated.retain(|(_, command)| is_useful(command));
        self.extensions.retain(|_, (_, command)| is_useful(command));
    }

    /// Removes and returns up to `most` commands that can be sent in one pipeline, releases first.
    pub(crate) fn take(&mut self, most: usize) -> Vec<C> {
        let releases = self.releases.len().min(most);
        let mut taken: Vec<_> = self.releases.drain(..releases).collect();
        while taken.len() < most
            && let Some((_, (_, command))) = self.extensions.pop_first()
        {
            taken.push(command);
        }
        taken
    }

    pub(crate) fn take_isolated(&mut self) -> Option<C> {
        self.isolated.pop_front().map(|(_, command)| command)
    }

    /// Moves back the isolated releases for which `is_similar` returns true, so that none of them is sent before the
    /// release that they resemble. `unanswered` is the number of connections that closed without answering that
    /// release.
    pub(crate) fn defer_isolated(&mut self, unanswered: u8, is_similar: impl Fn(&C) -> bool) {
        for (count, command) in &mut self.isolated {
            *count = if is_similar(command) { unanswered.max(*count) } else { *count };
        }
        self.isolated.make_contiguous().sort_by_key(|(count, _)| *count);
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
