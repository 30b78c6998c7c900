//! How a client gets its connection to a node (`src/node/reconnect.rs` of the library).

use crate::client::Task;
use crate::event::Event;
use crate::link::{Deed, Order};
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::{Broken, ConnectionLoss, Liveness, NodeId};
use crate::world::{World, index, small};

impl World {
    pub(crate) fn handle_disconnected(&mut self, client: usize, connection: u32) {
        let node = self.connections[index(connection)].node;
        let link = self.link(client, node);
        if link.connection != Some(connection) {
            return;
        }
        if link.is_up {
            self.handle_loss(client, node, false);
        } else {
            self.handle_refused(client, connection);
        }
    }

    /// The connection is gone: what was not answered may still run.
    pub(crate) fn handle_loss(&mut self, client: usize, node: usize, is_hung: bool) {
        let (now, random) = (self.local(client), self.dice.word());
        self.clients[client].mind.memory.handle_loss(NodeId::new(node));
        let connection = self.link(client, node).connection.take().expect("it was up");
        let run = self.connections[index(connection)].run;
        let link = self.link(client, node);
        link.is_up = false;
        link.stale.handle_broken(Broken { run, client_id: Some(connection.into()) });
        link.is_down = link.reconnect.handle_loss(is_hung, now, random) == ConnectionLoss::Outage;
        for (packet, _) in std::mem::take(&mut link.under_way) {
            let order = self.packets[index(packet)].order;
            self.note_unsure(node, order);
            self.refuse(client, node, order);
        }
        self.connect_again(client, node);
    }

    fn connect_again(&mut self, client: usize, node: usize) {
        let at = self.link(client, node).reconnect.next_try();
        let event = Event::Connect { client: small(client), node: small(node) };
        self.at_local(client, at, event);
    }

    pub(crate) fn connect(&mut self, client: usize, node: usize) {
        if self.is_first_meeting(client, node) {
            self.clear_the_way(client, node);
        }
        let connection = self.open_connection(client, node, None);
        let now = self.local(client);
        let link = self.link(client, node);
        link.connection = Some(connection);
        link.connecting_since = now;
        self.transmit(connection, Order { claim: 0, deed: Deed::SetUp, round: 0 }, 0);
        let until = self.local(client).after(self.scenario.connect_timeout);
        self.at_local(client, until, Event::Refused { client: small(client), connection });
    }

    pub(crate) fn handle_refused(&mut self, client: usize, connection: u32) {
        let node = self.connections[index(connection)].node;
        let link = self.link(client, node);
        if link.connection != Some(connection) || link.is_up {
            return;
        }
        link.connection = None;
        link.is_down = true;
        let waiting = std::mem::take(&mut link.inbox);
        let (now, random) = (self.local(client), self.dice.word());
        self.link(client, node).reconnect.handle_unreachable(now, random);
        self.clients[client].mind.memory.handle_unreachable(NodeId::new(node), now);
        for order in waiting {
            self.refuse(client, node, order);
        }
        self.settle_down(client);
        self.connect_again(client, node);
    }

    /// A connection is set up.
    pub(crate) fn take_on(&mut self, client: usize, node: usize, answer: Answer) {
        let (now, timeout) = (self.local(client), self.scenario.node_timeout);
        let can_be_killed = self.scenario.kills || self.scenario.has(Mutation::NoKill);
        let link = &self.clients[client].links[node];
        let run = self.connections[index(link.connection.expect("being set up"))].run;
        self.read_clock(client, node, link.connecting_since, answer);
        let uptime_s = answer.number.expect("a set-up tells it");
        self.meet(client, node, run.expect("a process has taken it"), uptime_s);
        let link = &mut self.clients[client].links[node];
        let broken = link.stale.broken().to_vec();
        let has_any = broken.iter().any(|old| old.to_kill(run.as_ref()).is_some());
        link.stale.handle_killed(&broken, run.as_ref(), can_be_killed || !has_any, now);
        link.is_up = true;
        link.is_down = false;
        link.reconnect.handle_connected(now);
        link.liveness = Liveness::new(timeout, now);
        link.last_traffic = now;
        link.repeats.recover(now);
        let waiting = std::mem::take(&mut link.inbox);
        self.write_owed(client, node);
        for order in waiting {
            self.send(client, node, order);
        }
        self.set_alarm(client, node);
        self.settle_down(client);
    }

    /// The first attempt waits no longer than until it is clear which nodes count.
    fn settle_down(&mut self, client: usize) {
        let now = self.local(client);
        let it = &self.clients[client];
        if it.task == Task::Settling && it.mind.memory.is_settled(now) {
            self.set_task(client, Task::Settling, now);
        }
    }
}
