//! A client's side of one node: what its task of that node does (`src/node` of the library).

use crate::clock::Instant;
use crate::counts::Count;
use crate::event::Event;
use crate::mutation::Mutation;
use crate::protocol::{NodeId, Time, Ttl, Vote};
use crate::trace::note;
use crate::world::{World, index, small};
use std::collections::VecDeque;
use std::time::Duration;

/// The pauses of the library, by the names that they have there.
const PATIENCE: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const FIRST_OWED_PAUSE: Duration = Duration::from_millis(10);
const LAST_OWED_PAUSE: Duration = Duration::from_millis(500);
const HEARTBEAT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    SetUp,
    /// Only tell the time: nothing else was asked for long.
    Beat,
    /// With the number to which the counter is to go at least.
    Acquire {
        ttl: Ttl,
        hint: u64,
    },
    /// Confirm that the key is still ours, with the counter at the token.
    Raise {
        token: u64,
    },
    Extend {
        until: Time,
    },
    Repair {
        until: Time,
    },
    Release,
}

impl Deed {
    /// True if a command is written, and behind it the question for the time.
    pub(crate) fn is_pipelined(self) -> bool {
        !matches!(self, Self::SetUp | Self::Beat | Self::Release)
    }
}

/// What a node is asked, for a claim; the vote goes to a round, or to nobody (0).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) claim: u32,
    pub(crate) deed: Deed,
    pub(crate) round: u32,
}

/// What one attempt may have left on the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) value: u64,
    pub(crate) written: u32,
    pub(crate) unsure: u32,
    pub(crate) is_withdrawn: bool,
    pub(crate) expiry: Time,
    /// The token that is committed for it; 0 if there is none.
    pub(crate) token: u64,
}

#[derive(Default)]
pub(crate) struct Link {
    /// Open, or being set up.
    pub(crate) connection: Option<u32>,
    pub(crate) is_up: bool,
    /// Orders are refused, as it is known why there is no connection.
    pub(crate) is_down: bool,
    pub(crate) is_stalled: bool,
    /// When the next alarm rings.
    alarm_at: Option<Time>,
    /// What waits for a connection.
    pub(crate) inbox: Vec<Order>,
    /// What was written and is not answered, with when.
    pub(crate) under_way: VecDeque<(u32, Time)>,
    releases: Vec<Order>,
    extension: Option<Order>,
    /// Not before then, and the pause after that.
    pub(crate) owed_from: Time,
    pub(crate) owed_pause: Duration,
    pub(crate) tries: u32,
    pub(crate) connected_at: Time,
    pub(crate) doubt_until: Time,
    /// Connections that broke, and were not ended since.
    pub(crate) broken: Vec<u32>,
    /// When it was begun to be set up, and when something was written or read last.
    pub(crate) connecting_since: Time,
    pub(crate) last_traffic: Time,
    /// When the last thing was written that has told the node's time without delay.
    pub(crate) read_at: Time,
    /// The network passes nothing until then.
    pub(crate) blocked_until: Instant,
}

impl Link {
    /// A connection that is up from the start.
    pub(crate) fn on(connection: u32, now: Time) -> Self {
        Self {
            connection: Some(connection),
            is_up: true,
            owed_pause: FIRST_OWED_PAUSE,
            last_traffic: now,
            ..Self::default()
        }
    }
}

impl World {
    pub(crate) fn link(&mut self, client: usize, node: usize) -> &mut Link {
        &mut self.clients[client].links[node]
    }

    /// Gives an order for a node to its task.
    pub(crate) fn send(&mut self, client: usize, node: usize, order: Order) {
        let link = self.link(client, node);
        if link.is_up && !link.is_stalled {
            self.write(client, node, order);
        } else if link.is_up || link.is_down {
            self.refuse(client, node, order);
        } else {
            link.inbox.push(order);
        }
    }

    pub(crate) fn send_each(&mut self, client: usize, order: Order) {
        for node in 0..self.scenario.nodes {
            self.send(client, node, order);
        }
    }

    /// What it belongs to has ended, or there is nothing to release.
    fn is_void(&self, node: usize, now: Time, order: Order) -> bool {
        let claim = &self.claims[index(order.claim)];
        match order.deed {
            Deed::SetUp | Deed::Beat => false,
            Deed::Acquire { .. } | Deed::Raise { .. } => claim.is_withdrawn,
            Deed::Extend { until } => claim.is_withdrawn || now >= until,
            Deed::Repair { until } => {
                let goes_on = self.scenario.has(Mutation::LastingRepair)
                    || self.scenario.has(Mutation::RenewalAfterRelease);
                let is_over = claim.is_withdrawn && !goes_on;
                is_over || now >= until
            }
            Deed::Release => claim.written & 1 << node == 0,
        }
    }

    pub(crate) fn write(&mut self, client: usize, node: usize, order: Order) {
        let now = self.local(client);
        if self.is_void(node, now, order) {
            return;
        }
        let left = |until: Time| Ttl::covering(until.since(now));
        let ttl = match order.deed {
            Deed::Acquire { ttl, .. } => Some(ttl),
            Deed::Extend { until } | Deed::Repair { until } => Some(left(until)),
            Deed::SetUp | Deed::Beat | Deed::Raise { .. } | Deed::Release => None,
        };
        if let Some(ttl) = ttl {
            let claim = &mut self.claims[index(order.claim)];
            let slack = ttl.as_duration() / 64 + Duration::from_millis(10);
            claim.written |= 1 << node;
            claim.expiry = claim.expiry.max(now.after(ttl.as_duration() + slack));
        }
        if matches!(order.deed, Deed::Repair { .. }) {
            self.counts.add(Count::Repairs);
        }
        let connection = self.link(client, node).connection.expect("written on a connection");
        let packet = self.transmit(connection, order, ttl.map_or(0, Ttl::as_millis));
        let link = self.link(client, node);
        link.under_way.push_back((packet, now));
        link.last_traffic = now;
        self.set_alarm(client, node);
    }

    /// Answers an order that cannot be written now, and keeps what has to be written later.
    pub(crate) fn refuse(&mut self, client: usize, node: usize, order: Order) {
        if self.is_void(node, self.local(client), order) {
            return;
        }
        if order.round != 0 {
            let event =
                Event::Fail { client: small(client), node: small(node), round: order.round };
            self.queue.push(self.now, event);
        }
        self.keep(client, node, Order { round: 0, ..order });
    }

    fn keep(&mut self, client: usize, node: usize, order: Order) {
        match order.deed {
            Deed::Release if self.scenario.has(Mutation::ForgottenRelease) => {}
            Deed::Release => {
                self.counts.add(Count::OwedReleases);
                self.link(client, node).releases.push(order);
            }
            Deed::Extend { until } if !self.claims[index(order.claim)].is_withdrawn => {
                self.counts.add(Count::OwedExtensions);
                let kept = &mut self.link(client, node).extension;
                let outlasts = |kept: &Order| match kept.deed {
                    Deed::Extend { until: other } => kept.claim != order.claim || until > other,
                    _ => true,
                };
                if kept.as_ref().is_none_or(outlasts) {
                    *kept = Some(order);
                }
            }
            _ => return,
        }
        self.set_alarm(client, node);
    }

    /// Writes what is owed, if it is time.
    pub(crate) fn write_owed(&mut self, client: usize, node: usize) {
        let now = self.local(client);
        let link = &mut self.clients[client].links[node];
        if !link.is_up || link.is_stalled || now < link.owed_from {
            return;
        }
        let releases = std::mem::take(&mut link.releases);
        let extension = link.extension.take();
        for order in releases.into_iter().chain(extension) {
            let claim = &self.claims[index(order.claim)];
            let is_unsure =
                claim.unsure & 1 << node != 0 && !self.scenario.has(Mutation::PrunedRelease);
            if order.deed != Deed::Release || is_unsure || now < claim.expiry {
                self.write(client, node, order);
            }
        }
    }

    /// Sees to it that the task looks when something is due.
    pub(crate) fn set_alarm(&mut self, client: usize, node: usize) {
        let (now, timeout) = (self.local(client), self.scenario.node_timeout);
        let beats = !self.scenario.has(Mutation::NoHeartbeat);
        let link = self.link(client, node);
        if !link.is_up {
            return;
        }
        let silence = if link.is_stalled { patience(timeout) } else { timeout };
        let overdue = link.under_way.front().map(|(_, at)| at.after(silence));
        let is_owed = !link.releases.is_empty() || link.extension.is_some();
        let owed = (is_owed && !link.is_stalled).then_some(link.owed_from);
        let is_idle = link.under_way.is_empty() && !link.is_stalled;
        let beat = (is_idle && beats).then(|| link.last_traffic.after(HEARTBEAT));
        let due = overdue.into_iter().chain(owed).chain(beat).min().map(|due| due.max(now));
        if let Some(due) = due
            && link.alarm_at.is_none_or(|at| due < at)
        {
            link.alarm_at = Some(due);
            let event = Event::Alarm { client: small(client), node: small(node) };
            self.at_local(client, due, event);
        }
    }

    pub(crate) fn handle_alarm(&mut self, client: usize, node: usize) {
        let (now, timeout) = (self.local(client), self.scenario.node_timeout);
        let link = self.link(client, node);
        if link.alarm_at.is_none_or(|at| now < at) {
            // One that was set before it was known that another comes sooner.
            return;
        }
        link.alarm_at = None;
        if !link.is_up {
            return;
        }
        let silence = link.under_way.front().map(|(_, at)| now.since(*at));
        if silence.is_some_and(|silence| silence >= patience(timeout)) {
            let connection = link.connection.expect("it is up");
            note!(self, "c{client}: n{node} hangs, connection {connection} is given up");
            self.break_connection(connection);
            self.handle_loss(client, node, true);
            return;
        }
        if silence.is_some_and(|silence| silence >= timeout) && !link.is_stalled {
            link.is_stalled = true;
            self.counts.add(Count::Stalls);
            for place in 0..self.link(client, node).under_way.len() {
                let packet = self.link(client, node).under_way[place].0;
                self.note_unsure(node, self.packets[index(packet)].order);
            }
        }
        self.write_owed(client, node);
        self.read_if_idle(client, node);
        self.set_alarm(client, node);
    }

    /// A connection without traffic is asked for the time now and then.
    fn read_if_idle(&mut self, client: usize, node: usize) {
        let now = self.local(client);
        let link = self.link(client, node);
        let is_idle = link.under_way.is_empty() && now.since(link.last_traffic) >= HEARTBEAT;
        if is_idle && !self.scenario.has(Mutation::NoHeartbeat) {
            self.counts.add(Count::Beats);
            self.write(client, node, Order { claim: 0, deed: Deed::Beat, round: 0 });
        }
    }

    pub(crate) fn note_unsure(&mut self, node: usize, order: Order) {
        if !matches!(order.deed, Deed::Beat | Deed::Raise { .. } | Deed::Release) {
            self.claims[index(order.claim)].unsure |= 1 << node;
        }
    }

    pub(crate) fn handle_reply(&mut self, client: usize, packet: u32) {
        let sent = self.packets[index(packet)];
        let node = self.connections[index(sent.connection)].node;
        if self.link(client, node).connection != Some(sent.connection) {
            self.counts.add(Count::RepliesLost);
            return;
        }
        if sent.order.deed == Deed::SetUp {
            self.take_on(client, node, sent.answer.expect("a reply has an answer"));
            return;
        }
        let front = self.link(client, node).under_way.pop_front();
        let (first, written) = front.expect("what is answered was written");
        let overtakes = self.scenario.has(Mutation::OvertakingRelease);
        assert!(overtakes || first == packet, "out of step");
        let answer = sent.answer.expect("a reply has an answer");
        self.link(client, node).last_traffic = self.local(client);
        let worth = self.read_clock(client, node, written, answer);
        self.settle(client, node, sent.order, written, answer.vote);
        self.recover(client, node);
        self.set_alarm(client, node);
        self.count_vote(client, NodeId::new(node), sent.order.round, (answer, worth));
    }

    /// A release, or an extension, that the node has answered: it may be owed all the same.
    fn settle(&mut self, client: usize, node: usize, order: Order, written: Time, vote: Vote) {
        let now = self.local(client);
        let is_unsure = self.claims[index(order.claim)].unsure & 1 << node != 0
            && !self.scenario.has(Mutation::NoRepeat);
        let link = &mut self.clients[client].links[node];
        // By when it was written, not by when it was answered: what an old connection delivers
        // while the answer is on its way comes after it.
        let may_be_undone = order.deed == Deed::Release && is_unsure && written < link.doubt_until;
        if !matches!(order.deed, Deed::Release | Deed::Extend { .. }) {
            return;
        }
        if vote != Vote::Failed && !may_be_undone {
            link.owed_pause = FIRST_OWED_PAUSE;
            return;
        }
        if now >= link.owed_from {
            link.owed_from = now.after(link.owed_pause);
            link.owed_pause = (link.owed_pause * 2).min(LAST_OWED_PAUSE);
        }
        self.keep(client, node, Order { round: 0, ..order });
    }

    /// A reply has come: the node is back if it was away.
    fn recover(&mut self, client: usize, node: usize) {
        let (now, timeout) = (self.local(client), self.scenario.node_timeout);
        let link = self.link(client, node);
        if link.is_stalled {
            let oldest = link.under_way.front();
            link.is_stalled = oldest.is_some_and(|(_, at)| now.since(*at) >= timeout);
            if !link.is_stalled {
                link.owed_pause = FIRST_OWED_PAUSE;
                link.owed_from = now;
                self.write_owed(client, node);
            }
        }
    }
}

/// A node that leaves a command without an answer for so long gets a new connection.
pub(crate) fn patience(timeout: Duration) -> Duration {
    (timeout * PATIENCE).max(LEAST_PATIENCE)
}
