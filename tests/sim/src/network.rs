//! Connections: first in, first out each way; broken, they may still deliver what they have.

use crate::clock::Instant;
use crate::counts::Count;
use crate::event::Event;
use crate::link::{Deed, Order};
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::trace::note;
use crate::world::{World, index, nanos, small, word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Its client has given it up, or will when it hears that it is broken. What is under way comes
    /// `later`, or never.
    Broken {
        later: Option<Instant>,
    },
    /// The node has closed it.
    Ended,
}

pub(crate) struct Connection {
    pub(crate) client: usize,
    pub(crate) node: usize,
    /// The node's process that has taken it.
    pub(crate) run: Option<u32>,
    pub(crate) state: State,
    /// When the last packet arrives, each way.
    last_request: Instant,
    last_reply: Instant,
    /// From then on it delivers nothing any more.
    dead_from: Instant,
}

/// An order on its way to a node.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) connection: u32,
    pub(crate) order: Order,
    pub(crate) value: u64,
    pub(crate) px: u64,
    /// What the counter is to be raised to.
    pub(crate) number: u64,
    pub(crate) answer: Option<Answer>,
    is_held_up: bool,
    /// The network has cut the pipeline in two: the other half comes later.
    pub(crate) has_tail: bool,
    pub(crate) tail_of: Option<u32>,
}

impl World {
    /// A new connection, which nothing has been sent on.
    pub(crate) fn open_connection(&mut self, client: usize, node: usize, run: Option<u32>) -> u32 {
        let connection = Connection {
            client,
            node,
            run,
            state: State::Open,
            last_request: self.now,
            last_reply: self.now,
            dead_from: Instant::MAX,
        };
        self.connections.push(connection);
        word(self.connections.len() - 1)
    }

    /// How long a packet takes.
    fn delay(&mut self) -> Instant {
        let weather = self.scenario.weather;
        let (least, most) = weather.delay;
        let delay = self.dice.between(least, most);
        if !self.is_healed && self.dice.chance(weather.slow) {
            delay + self.dice.below(weather.long)
        } else {
            delay
        }
    }

    /// Sends an order; returns the packet.
    pub(crate) fn transmit(&mut self, connection: u32, order: Order, px: u64) -> u32 {
        let (client, node) = {
            let it = &self.connections[index(connection)];
            (it.client, it.node)
        };
        // The one node that is promised to be there is there within the connect timeout.
        let is_promised = order.deed == Deed::SetUp && self.is_first_meeting(client, node);
        let delay = if is_promised {
            let most = nanos(self.scenario.connect_timeout) / 3;
            self.dice.of_any_size(most / 64, most)
        } else {
            self.delay()
        };
        let it = &mut self.connections[index(connection)];
        let blocked_until = self.clients[it.client].links[it.node].blocked_until;
        let mut arrival = self.now.max(blocked_until) + delay;
        let overtakes =
            order.deed == Deed::Release && self.scenario.has(Mutation::OvertakingRelease);
        if !overtakes {
            arrival = arrival.max(it.last_request);
            it.last_request = arrival;
        }
        let claim = &self.claims[index(order.claim)];
        let value = claim.value;
        let number = match order.deed {
            Deed::Acquire { hint, .. } => hint,
            Deed::Raise { token } => token,
            _ => claim.token,
        };
        let (answer, is_held_up) = (None, false);
        let (has_tail, tail_of) = (order.deed.is_pipelined() && self.is_cut(), None);
        let sent =
            Packet { connection, order, value, px, number, answer, is_held_up, has_tail, tail_of };
        self.packets.push(sent);
        let packet = word(self.packets.len() - 1);
        self.queue.push(arrival, Event::Arrive { packet });
        if has_tail {
            self.packets.push(Packet { has_tail: false, tail_of: Some(packet), ..sent });
            let delay = self.delay();
            let longest = nanos(self.scenario.node_timeout).max(2 * delay);
            let arrival = arrival + self.dice.of_any_size(delay, longest);
            self.connections[index(connection)].last_request = arrival;
            self.queue.push(arrival, Event::Arrive { packet: packet + 1 });
        }
        if !is_promised && !self.is_healed && self.dice.chance(self.scenario.weather.breaks) {
            let soon = self.now + self.dice.below(3 * delay);
            self.queue.push(soon, Event::Break { connection });
        }
        packet
    }

    fn is_cut(&mut self) -> bool {
        let cuts = self.scenario.cuts;
        cuts > 0 && !self.is_healed && self.dice.chance(cuts)
    }

    /// Nothing is in the way between the two that are promised to meet.
    pub(crate) fn clear_the_way(&mut self, client: usize, node: usize) {
        self.clients[client].links[node].blocked_until = self.now;
        self.wake_node(node);
    }

    /// True if the bytes of a packet that arrives are taken; held up on a broken connection, they
    /// come again later.
    pub(crate) fn gets_through(&mut self, packet: u32) -> bool {
        let sent = &mut self.packets[index(packet)];
        let it = &mut self.connections[index(sent.connection)];
        if let State::Broken { later: Some(later) } = it.state
            && !sent.is_held_up
        {
            sent.is_held_up = true;
            let at = (self.now + later).max(it.last_request);
            it.last_request = at;
            self.queue.push(at, Event::Arrive { packet });
            return false;
        }
        let gets_through = self.is_alive(packet);
        if !gets_through {
            self.counts.add(Count::PacketsLost);
        }
        gets_through
    }

    /// True if a packet's connection can still deliver it.
    pub(crate) fn is_alive(&self, packet: u32) -> bool {
        let it = &self.connections[index(self.packets[index(packet)].connection)];
        let is_same_run = it.run.is_none_or(|run| run == self.nodes[it.node].run);
        let is_open = match it.state {
            State::Open => true,
            State::Broken { later } => later.is_some() && self.now < it.dead_from,
            State::Ended => false,
        };
        is_open && is_same_run
    }

    /// True if a node that has taken a packet's bytes before can read them now. A client that gives
    /// its connection up does not take them back.
    pub(crate) fn is_readable(&self, packet: u32) -> bool {
        let it = &self.connections[index(self.packets[index(packet)].connection)];
        it.state != State::Ended && it.run.is_none_or(|run| run == self.nodes[it.node].run)
    }

    /// Sends a node's answer.
    pub(crate) fn reply(&mut self, packet: u32, answer: Answer) {
        let sent = &mut self.packets[index(packet)];
        sent.answer = Some(answer);
        let (deed, connection) = (sent.order.deed, sent.connection);
        let it = &self.connections[index(connection)];
        let is_promised = deed == Deed::SetUp && self.is_first_meeting(it.client, it.node);
        let delay = if is_promised { self.scenario.weather.delay.0 } else { self.delay() };
        let it = &mut self.connections[index(connection)];
        if it.state != State::Open {
            self.counts.add(Count::RepliesLost);
            return;
        }
        let blocked_until = self.clients[it.client].links[it.node].blocked_until;
        it.last_reply = it.last_reply.max(self.now.max(blocked_until) + delay);
        self.queue.push(it.last_reply, Event::Reply { client: small(it.client), packet });
    }

    /// The network, or the client, gives a connection up.
    pub(crate) fn break_connection(&mut self, connection: u32) {
        let doubt = nanos(self.scenario.doubt);
        let comes_late = self.dice.chance(self.scenario.weather.late);
        let later = self.dice.of_any_size(nanos(self.scenario.node_timeout) / 4, doubt);
        let it = &mut self.connections[index(connection)];
        if it.state == State::Open {
            it.state = State::Broken { later: comes_late.then_some(later) };
            it.dead_from = self.now + doubt;
            self.counts.add(Count::Broken);
        }
    }

    /// As [`break_connection`](Self::break_connection), and the client hears of it.
    pub(crate) fn handle_break(&mut self, connection: u32) {
        if self.connections[index(connection)].state != State::Open {
            return;
        }
        note!(self, "connection {connection} breaks");
        self.break_connection(connection);
        self.tell_broken(connection);
    }

    fn tell_broken(&mut self, connection: u32) {
        let client = small(self.connections[index(connection)].client);
        let at = self.now + self.dice.below(self.scenario.weather.delay.1);
        self.queue.push(at, Event::Disconnected { client, connection });
    }

    /// The node's process has ended, with all its connections.
    pub(crate) fn cut_off(&mut self, node: usize) {
        for at in 0..self.connections.len() {
            let it = &mut self.connections[at];
            if it.node == node && it.state != State::Ended && it.run.is_some() {
                let was_open = it.state == State::Open;
                it.state = State::Ended;
                if was_open {
                    self.tell_broken(word(at));
                }
            }
        }
    }

    /// The node is down: whoever wants to connect hears that.
    pub(crate) fn refuse_connection(&mut self, connection: u32) {
        let it = &mut self.connections[index(connection)];
        it.state = State::Ended;
        let client = small(it.client);
        let at = self.now + self.scenario.weather.delay.0;
        self.queue.push(at, Event::Refused { client, connection });
    }

    /// I8: a new connection ends those before it, where that is permitted.
    pub(crate) fn end_old_connections(&mut self, new: u32) {
        let it = &self.connections[index(new)];
        let (client, node) = (it.client, it.node);
        if !self.scenario.kills || self.scenario.has(Mutation::NoKill) {
            return;
        }
        let run = self.nodes[node].run;
        let broken = self.clients[client].links[node].stale.broken();
        for old in broken.iter().filter_map(|old| old.to_kill(Some(&run))) {
            let it = &mut self.connections[usize::try_from(old).expect("it is a place")];
            if it.state != State::Ended {
                it.state = State::Ended;
                self.counts.add(Count::Killed);
                note!(self, "connection {old} is killed");
            }
        }
    }
}
