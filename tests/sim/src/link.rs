//! A client's side of one node: what its task of that node does (`src/node` of the library), by the
//! library's own rules.

use crate::clock::Instant;
use crate::counts::Count;
use crate::event::Event;
use crate::mutation::Mutation;
use crate::protocol::{
    Action, Backoff, Liveness, NodeId, Owed, OwedRelease, Pending, Reconnect, StaleWindow, Time,
    Ttl, Vote,
};
use crate::scenario::Scenario;
use crate::trace::note;
use crate::world::{World, index, small};
use std::collections::VecDeque;
use std::time::Duration;

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

impl Claim {
    /// What an order for it is to a node that has not done it.
    fn owed(&self, node: usize, order: Order) -> Owed<u32> {
        let claim = order.claim;
        match order.deed {
            Deed::Release => Owed::Release(OwedRelease {
                expiry: self.expiry,
                is_in_doubt: self.unsure & 1 << node != 0,
                is_refused: false,
            }),
            Deed::Extend { until } => {
                Owed::Extension { claim, until, is_withdrawn: self.is_withdrawn }
            }
            _ => Owed::Nothing,
        }
    }
}

pub(crate) struct Link {
    /// Open, or being set up.
    pub(crate) connection: Option<u32>,
    pub(crate) is_up: bool,
    /// Orders are refused, as it is known why there is no connection.
    pub(crate) is_down: bool,
    pub(crate) liveness: Liveness,
    /// When the next alarm rings.
    alarm_at: Option<Time>,
    /// What waits for a connection.
    pub(crate) inbox: Vec<Order>,
    /// What was written and is not answered, with when.
    pub(crate) under_way: VecDeque<(u32, Time)>,
    pub(crate) owed: Pending<Order, u32>,
    /// When that is written again.
    pub(crate) repeats: Backoff,
    pub(crate) reconnect: Reconnect,
    /// What connections that broke may still deliver, by the process that they went to.
    pub(crate) stale: StaleWindow<u32>,
    /// When it was begun to be set up, and when something was written or read last.
    pub(crate) connecting_since: Time,
    pub(crate) last_traffic: Time,
    /// When the last thing was written that has told the node's time without delay.
    pub(crate) read_at: Time,
    /// The network passes nothing until then.
    pub(crate) blocked_until: Instant,
}

impl Link {
    /// There is no connection yet.
    pub(crate) fn new(scenario: &Scenario, now: Time) -> Self {
        Self {
            connection: None,
            is_up: false,
            is_down: false,
            liveness: Liveness::new(scenario.node_timeout, now),
            alarm_at: None,
            inbox: Vec::new(),
            under_way: VecDeque::new(),
            owed: Pending::new(),
            repeats: Backoff::of_repeats(),
            reconnect: Reconnect::new(),
            stale: StaleWindow::new(scenario.doubt),
            connecting_since: Time::default(),
            last_traffic: now,
            read_at: Time::default(),
            blocked_until: 0,
        }
    }

    /// A connection that is up from the start.
    pub(crate) fn on(connection: u32, scenario: &Scenario, now: Time) -> Self {
        let mut reconnect = Reconnect::new();
        reconnect.handle_connected(now);
        let connection = Some(connection);
        Self { connection, is_up: true, reconnect, ..Self::new(scenario, now) }
    }
}

impl World {
    pub(crate) fn link(&mut self, client: usize, node: usize) -> &mut Link {
        &mut self.clients[client].links[node]
    }

    /// Gives an order for a node to its task.
    pub(crate) fn send(&mut self, client: usize, node: usize, order: Order) {
        let link = self.link(client, node);
        if link.is_up && !link.liveness.is_stalled() {
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
        link.liveness.handle_written(now);
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
        let owed = self.claims[index(order.claim)].owed(node, order);
        match owed {
            Owed::Release(_) if self.scenario.has(Mutation::ForgottenRelease) => return,
            Owed::Release(_) => self.counts.add(Count::OwedReleases),
            Owed::Extension { is_withdrawn: false, .. } => self.counts.add(Count::OwedExtensions),
            Owed::Extension { .. } | Owed::Nothing => return,
        }
        self.link(client, node).owed.keep(order, owed);
        self.set_alarm(client, node);
    }

    /// Writes what is owed, if it is time.
    pub(crate) fn write_owed(&mut self, client: usize, node: usize) {
        let now = self.local(client);
        let is_sure = self.scenario.has(Mutation::PrunedRelease);
        let link = &mut self.clients[client].links[node];
        if !link.is_up || link.liveness.is_stalled() || now < link.repeats.next_try() {
            return;
        }
        link.owed.prune(now, false, |order| {
            match self.claims[index(order.claim)].owed(node, *order) {
                Owed::Release(it) if is_sure => {
                    Owed::Release(OwedRelease { is_in_doubt: false, ..it })
                }
                owed => owed,
            }
        });
        for order in link.owed.take(usize::MAX) {
            self.write(client, node, order);
        }
    }

    /// Sees to it that the task looks when something is due.
    pub(crate) fn set_alarm(&mut self, client: usize, node: usize) {
        let now = self.local(client);
        let beats = !self.scenario.has(Mutation::NoHeartbeat);
        let link = self.link(client, node);
        if !link.is_up {
            return;
        }
        let is_idle = link.under_way.is_empty();
        let timeout = (beats || !is_idle).then(|| link.liveness.next_timeout());
        let may_write = !link.owed.is_empty() && !link.liveness.is_stalled();
        let owed = may_write.then(|| link.repeats.next_try());
        let due = timeout.into_iter().chain(owed).min().map(|due| due.max(now));
        if let Some(due) = due
            && link.alarm_at.is_none_or(|at| due < at)
        {
            link.alarm_at = Some(due);
            let event = Event::Alarm { client: small(client), node: small(node) };
            self.at_local(client, due, event);
        }
    }

    pub(crate) fn handle_alarm(&mut self, client: usize, node: usize) {
        let now = self.local(client);
        let link = self.link(client, node);
        let Some(due) = link.alarm_at.filter(|at| now >= *at) else {
            // One that was set before it was known that another comes sooner.
            return;
        };
        link.alarm_at = None;
        if !link.is_up {
            return;
        }
        link.liveness.handle_timeout(due, now);
        // Nobody tries a second connection here: no quorum is ever said to be silent.
        while let Some(action) = self.link(client, node).liveness.poll(now, false) {
            match action {
                Action::Beat => self.beat(client, node),
                Action::LetOthersRun => {
                    self.link(client, node).liveness.handle_others_ran(Duration::ZERO, now);
                }
                Action::Stall => self.stall(client, node),
                Action::MakeSecond => {}
                Action::GiveUp(_) => return self.end_hung(client, node),
            }
        }
        self.write_owed(client, node);
        self.set_alarm(client, node);
    }

    /// A connection without traffic is asked for the time now and then.
    fn beat(&mut self, client: usize, node: usize) {
        if !self.scenario.has(Mutation::NoHeartbeat) {
            self.counts.add(Count::Beats);
            self.write(client, node, Order { claim: 0, deed: Deed::Beat, round: 0 });
        }
    }

    fn stall(&mut self, client: usize, node: usize) {
        self.counts.add(Count::Stalls);
        for place in 0..self.link(client, node).under_way.len() {
            let packet = self.link(client, node).under_way[place].0;
            self.note_unsure(node, self.packets[index(packet)].order);
        }
    }

    fn end_hung(&mut self, client: usize, node: usize) {
        let connection = self.link(client, node).connection.expect("it is up");
        note!(self, "c{client}: n{node} hangs, connection {connection} is given up");
        self.break_connection(connection);
        self.handle_loss(client, node, true);
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
        let now = self.local(client);
        let link = self.link(client, node);
        let next = link.under_way.front().map(|(_, at)| *at);
        if link.liveness.handle_reply(next, now) {
            link.repeats.recover(now);
            self.write_owed(client, node);
        }
        self.set_alarm(client, node);
        self.count_vote(client, NodeId::new(node), sent.order.round, (answer, worth));
    }

    /// A release, or an extension, that the node has answered: it may be owed all the same.
    fn settle(&mut self, client: usize, node: usize, order: Order, written: Time, vote: Vote) {
        if !matches!(order.deed, Deed::Release | Deed::Extend { .. }) {
            return;
        }
        let now = self.local(client);
        let is_unsure = self.claims[index(order.claim)].unsure & 1 << node != 0
            && !self.scenario.has(Mutation::NoRepeat);
        let random = self.dice.word();
        let link = self.link(client, node);
        // By when it was written, not by when it was answered: what an old connection delivers
        // while the answer is on its way comes after it.
        let may_be_undone =
            order.deed == Deed::Release && is_unsure && link.stale.may_undo(written);
        if vote == Vote::Failed || may_be_undone {
            link.repeats.handle_failure(now, random);
            self.keep(client, node, Order { round: 0, ..order });
        } else if link.owed.is_empty() {
            link.repeats.handle_success();
        }
    }
}
