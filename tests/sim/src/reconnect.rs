//! How a client gets its connection to a node (`src/node/reconnect.rs` of the library).

use crate::client::Task;
use crate::event::Event;
use crate::link::{Deed, FIRST_OWED_PAUSE, Order};
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::NodeId;
use crate::world::{World, index, nanos, small};
use std::time::Duration;

/// The pauses of the library, by the names that they have there.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LAST_PAUSE: Duration = Duration::from_secs(1);

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
        let now = self.local(client);
        self.clients[client].mind.memory.handle_loss(NodeId::new(node));
        let link = self.link(client, node);
        let connection = link.connection.take().expect("it was up");
        link.is_up = false;
        link.is_stalled = false;
        link.broken.push(connection);
        let has_lasted = now.since(link.connected_at) > LAST_PAUSE && !is_hung;
        link.is_down = !has_lasted;
        link.tries = if has_lasted { 0 } else { link.tries };
        for (packet, _) in std::mem::take(&mut link.under_way) {
            let order = self.packets[index(packet)].order;
            self.note_unsure(node, order);
            self.refuse(client, node, order);
        }
        let pause = if has_lasted { Duration::ZERO } else { self.connect_pause(client, node) };
        self.connect_after(client, node, pause);
    }

    fn connect_pause(&mut self, client: usize, node: usize) -> Duration {
        let link = self.link(client, node);
        let most = FIRST_PAUSE.saturating_mul(1 << link.tries.min(16));
        let most = nanos(most.min(LAST_PAUSE));
        link.tries += 1;
        Duration::from_nanos(self.dice.between(most / 2, most))
    }

    fn connect_after(&mut self, client: usize, node: usize, pause: Duration) {
        let at = self.local(client).after(pause);
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
        let now = self.local(client);
        self.clients[client].mind.memory.handle_unreachable(NodeId::new(node), now);
        for order in waiting {
            self.refuse(client, node, order);
        }
        self.settle_down(client);
        let pause = self.connect_pause(client, node);
        self.connect_after(client, node, pause);
    }

    /// A connection is set up.
    pub(crate) fn take_on(&mut self, client: usize, node: usize, answer: Answer) {
        let (now, doubt) = (self.local(client), self.scenario.doubt);
        let is_doubtful = !self.scenario.kills && !self.scenario.has(Mutation::NoKill);
        let link = &self.clients[client].links[node];
        let run = self.connections[index(link.connection.expect("being set up"))].run;
        self.read_clock(client, node, link.connecting_since, answer);
        let uptime_s = answer.number.expect("a set-up tells it");
        self.meet(client, node, run.expect("a process has taken it"), uptime_s);
        let link = &mut self.clients[client].links[node];
        let is_same_run = |old: &u32| self.connections[index(*old)].run == run;
        if is_doubtful && link.broken.iter().any(is_same_run) {
            link.doubt_until = now.after(doubt);
        }
        link.broken.clear();
        link.is_up = true;
        link.is_down = false;
        link.connected_at = now;
        link.last_traffic = now;
        link.owed_pause = FIRST_OWED_PAUSE;
        link.owed_from = now;
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
