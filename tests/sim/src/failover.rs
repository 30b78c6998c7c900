//! Failovers, in which the master behind an unchanged address becomes a replica. Clients must use
//! the node again afterwards.

use crate::clock::{Instant, S};
use crate::event::Way;
use crate::fault::Fault;
use crate::network::Packet;
use crate::process::nanos;
use crate::rule::Rule;
use crate::shared::Core;
use crate::trace::note;
use crate::worker::Worker;
use quorlock::VoteEligibility::{Counted, Deferred};
use quorlock_test::internals::{Kind, Server, Stored};

/// The maximum time between a refused write and the use of the new master. This is more than the
/// longest pause between two connections plus a connect timeout.
const REJOINED: Instant = 20 * S;

impl Core {
    /// Turns the master behind `address` into a replica. If `cuts` is true, the server also resets
    /// its connections. Returns false if the server is already a replica.
    pub(crate) fn demote(&mut self, address: usize, cuts: bool) -> bool {
        let node = self.addresses[address];
        if self.nodes[node].server.config().is_replica {
            return false;
        }
        note!(self, "n{node} becomes a replica");
        self.set_replica(node, true);
        self.failed_over = None;
        self.failing_over += 1;
        if cuts {
            self.reset_all(node);
        }
        true
    }

    /// Ends a failover. Either the replica becomes a master again, or the address leads to the
    /// promoted server from now on.
    pub(crate) fn end_failover(&mut self, fault: Fault) {
        let Fault::Failover { node: address, standby, is_empty, .. } = fault else { return };
        let node = self.addresses[address];
        let successor = standby.map_or(node, |standby| standby + self.addresses.len());
        if is_empty {
            self.nodes[successor].wiped = Some(self.now);
            self.act_on(successor, Server::flush);
        } else if successor != node {
            self.copy_keys(node, successor);
        }
        if successor == node {
            note!(self, "n{node} is a master again");
            self.set_replica(node, false);
        } else {
            note!(self, "the address of n{address} leads to n{successor}");
            self.addresses[address] = successor;
        }
        self.failing_over -= 1;
        self.failed_over = (self.failing_over == 0).then_some(self.now);
    }

    fn set_replica(&mut self, node: usize, is_replica: bool) {
        let host = &mut self.nodes[node];
        host.config.is_replica = is_replica;
        host.server.configure(|config| config.is_replica = is_replica);
    }

    fn copy_keys(&mut self, from: usize, to: usize) {
        let wall = self.node_wall(from);
        let keys: Vec<_> =
            self.nodes[from].server.keys(wall).map(|(key, it)| (key.to_vec(), it)).collect();
        for (key, Stored { kind, expires_at_us, .. }) in keys {
            let (Kind::String(value), Some(gone)) = (kind, expires_at_us) else { continue };
            let left = i64::try_from(gone.saturating_sub(wall) / 1_000).unwrap_or(i64::MAX);
            self.act_on(to, |server, wall| server.put(&key, &value, left, wall));
        }
    }

    fn reset_all(&mut self, node: usize) {
        let open = |(id, it): (usize, &crate::network::Connection)| {
            (it.node == node && it.server.is_some()).then_some(id)
        };
        let open: Vec<_> = self.connections.iter().enumerate().filter_map(open).collect();
        for connection in open {
            if let Some(server) = self.connections[connection].server.take() {
                self.nodes[node].disconnect(server);
            }
            self.send(connection, Way::ToClient, Packet::Reset);
        }
    }

    fn nodes_with(&self, key: &str) -> usize {
        let has = |node: &&usize| {
            let mut keys = self.nodes[**node].server.keys(self.node_wall(**node));
            keys.any(|(other, _)| other == key.as_bytes())
        };
        self.addresses.iter().filter(has).count()
    }
}

impl Worker {
    /// Checks that clients use every node again after the last failover. A new lock must have its
    /// key on every node. One quarantine period later, the client must count every node's vote.
    pub(crate) async fn check_rejoined(&self) {
        let since = self.shared.lock().failed_over;
        if since.is_none() {
            return;
        }
        // An idle client may not have noticed the failover.
        let probe = self.redlock.try_acquire(self.own_name(8)).await;
        let quarantine_period = self.shared.lock().quarantine_period;
        self.sleep(REJOINED).await;
        drop(probe);
        let lease = self.redlock.try_acquire(self.own_name(9)).await;
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        let Ok(lease) = lease else { return };
        let (nodes, there, is_over) = {
            let core = self.shared.lock();
            let key = lease.resources().next().map(|key| String::from_utf8_lossy(key).into_owned());
            let there = key.map_or(0, |key| core.nodes_with(&key));
            (core.addresses.len(), there, core.failed_over == since)
        };
        if is_over {
            self.checker.state().met(Rule::Rejoined);
        }
        if is_over && there < nodes {
            let states: Vec<_> =
                self.redlock.nodes().iter().map(|node| node.state().to_string()).collect();
            let how = format!(
                "p{}: a new lock has keys on {there} of {nodes} nodes: {states:?}",
                self.process
            );
            self.checker.state().violated(Rule::Rejoined, how);
        }
        drop(lease);
        self.sleep(quarantine_period).await;
        if self.shared.lock().failed_over != since {
            return;
        }
        let find_out = || {
            let mut nodes = self.redlock.nodes().into_iter();
            nodes.find(|node| !matches!(node.eligibility(), Counted | Deferred { .. }))
        };
        let mut out = find_out();
        if out.is_some() {
            // An idle connection of another runtime may have noticed the failover only now.
            self.sleep(REJOINED).await;
            out = find_out();
        }
        if let Some(node) = out {
            let how = format!(
                "p{}: {} is {} and {}",
                self.process,
                node.name(),
                node.state(),
                node.eligibility()
            );
            self.checker.state().violated(Rule::Rejoined, how);
        }
    }
}
