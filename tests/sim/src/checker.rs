//! What must never be, in true time.

use crate::client::Task;
use crate::clock::{Instant, MS, S};
use crate::counts::Count;
use crate::mode::Mode;
use crate::protocol::{Liveness, Loss, Reconnect};
use crate::scenario::Scenario;
use crate::world::{World, nanos};

/// Who believes to hold the lock, and until when.
pub(crate) struct Checker {
    ends: Vec<Instant>,
    /// When each began to hold last.
    begins: Vec<Instant>,
    /// False if two may hold at a time.
    is_exclusive: bool,
    pub(crate) overlaps: u64,
    /// The first thing that must not be.
    pub(crate) violation: Option<String>,
}

impl Checker {
    pub(crate) fn new(clients: usize, is_exclusive: bool) -> Self {
        let (ends, begins) = (vec![0; clients], vec![0; clients]);
        Self { ends, begins, is_exclusive, overlaps: 0, violation: None }
    }

    /// `client` believes from `now` on that it holds until `end`: nobody else may.
    pub(crate) fn hold(&mut self, client: usize, now: Instant, end: Instant) {
        let is_other = |(other, end): &(usize, &Instant)| *other != client && **end > now;
        if end > now
            && let Some((other, until)) = self.ends.iter().enumerate().find(is_other)
        {
            self.overlaps += 1;
            let left = (*until).saturating_sub(now) / MS;
            let what = format!("c{client} begins to hold, and c{other} holds for {left} ms more");
            if self.is_exclusive {
                self.violation.get_or_insert(what);
            }
        }
        if self.ends[client] <= now {
            self.begins[client] = now;
        }
        self.ends[client] = end;
    }

    pub(crate) fn began(&self, client: usize) -> Instant {
        self.begins[client]
    }

    pub(crate) fn end(&mut self, client: usize, now: Instant) {
        self.ends[client] = self.ends[client].min(now);
    }

    fn free_since(&self, but: usize) -> Instant {
        let others = self.ends.iter().enumerate().filter(|(other, _)| *other != but);
        others.map(|(_, end)| *end).max().unwrap_or_default()
    }
}

impl Scenario {
    /// How long what is owed takes at most, once all is healed: a hung connection is replaced, the
    /// node is told, and told again while an old connection may deliver something.
    pub(crate) fn delivery(&self) -> Instant {
        let doubt = if self.kills { 0 } else { nanos(self.doubt) };
        let patience = nanos(Liveness::patience(self.node_timeout));
        let pauses = patience + 3 * nanos(Reconnect::LAST_PAUSE);
        let rounds = 8 * nanos(self.node_timeout) + nanos(self.connect_timeout);
        doubt + pauses + rounds + 600 * MS
    }

    /// Within this the lock is won, once it is free and somebody waits for it.
    fn longest_wait(&self) -> Instant {
        // Grants count later by the steps of clocks, and keys stand longer; drift is seen as a small step.
        let steps = self.steps_ns() + self.ttl_ns() / 20;
        self.longest_ttl() / 50 * 51 + 2 * nanos(self.longest_delay) + self.delivery() + steps
    }
}

impl World {
    /// After the healing: whoever gets the lock must have got it in time.
    pub(crate) fn check_wait(&mut self, client: usize) {
        let since = self.clients[client].waiting_since;
        let since = self.checker.free_since(client).max(since);
        if self.now.saturating_sub(since) > 2 * S {
            self.counts.add(Count::Gaps);
        }
        if !self.is_healed || self.scenario.mode != Mode::Liveness {
            return;
        }
        let waiting_since = self.clients[client].waiting_since.max(self.scenario.horizon);
        let free_since = self.checker.free_since(client).max(waiting_since);
        let waited = self.now.saturating_sub(free_since);
        if waited > self.scenario.longest_wait() {
            let what = format!("c{client} got a free lock after {} ms", waited / MS);
            self.checker.violation.get_or_insert(what);
        }
    }

    /// Inside the promise, no extension that is in time finds that a quorum is gone.
    pub(crate) fn check_loss(&mut self, client: usize, loss: Loss) {
        if matches!(self.scenario.mode, Mode::Safety | Mode::Liveness) {
            let what = format!("c{client} lost a lease that was valid: {loss}");
            self.checker.violation.get_or_insert(what);
        }
    }

    /// When everybody must have held the lock once more.
    pub(crate) fn last_moment(&self) -> Instant {
        let each = self.scenario.longest_wait() + 8 * self.scenario.ttl_ns();
        self.now + self.scenario.clients as u64 * each
    }

    /// The end of a run: in liveness mode all have had the lock, and nothing is left.
    pub(crate) fn check_end(&mut self) {
        if self.scenario.mode != Mode::Liveness {
            return;
        }
        let waits = self.clients.iter().position(|client| client.task != Task::Done);
        let left = (0..self.scenario.nodes)
            .find_map(|node| Some((node, self.nodes[node].value(self.now)?)));
        let what = match (waits, left) {
            (Some(client), _) => format!("c{client} does not get the lock"),
            (None, Some((node, value))) => format!("{value:x} is left on n{node}"),
            (None, None) => return,
        };
        self.checker.violation.get_or_insert(what);
    }
}
