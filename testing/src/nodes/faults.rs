//! Faults and other actions that a test applies to a node.

use super::host::{Condition, NodeHost, run_id};
use super::network::{Network, NetworkAccess, NetworkEvent};
use crate::server_model::{Config, Fsync, Output, Trouble};
use std::time::Duration;

/// Value of a lock that [`Nodes::hold`](crate::Nodes::hold) gives to another client. It has the
/// format of a client's lock value, with metadata.
const OTHER_VALUE: &[u8] = b"00000000000000000000000000000000:somebody else";

impl Network {
    pub(super) fn condition(&self, node: usize) -> Condition {
        self.with(|turn| turn.hosts[node].condition)
    }

    pub(super) fn hold(&self, node: usize, key: &[u8], lasting: Duration) {
        let ttl_ms = i64::try_from(lasting.as_millis()).unwrap_or(i64::MAX).max(1);
        self.with(|turn| {
            if turn.hosts[node].condition != Condition::Down {
                turn.act_on(node, |host, wall_us| {
                    host.server.put(key, OTHER_VALUE, ttl_ms, wall_us)
                });
            }
        });
    }

    pub(super) fn remove(&self, node: usize, key: &[u8]) {
        self.with(|turn| turn.act_on(node, |host, wall_us| host.server.delete(key, wall_us)));
    }

    pub(super) fn has(&self, node: usize, key: &[u8]) -> bool {
        self.with(|turn| {
            let wall_us = turn.node_wall_us(node);
            let host = &turn.hosts[node];
            let mut keys = host.server.keys(wall_us);
            host.condition != Condition::Down && keys.any(|(existing, _)| existing == key)
        })
    }

    pub(super) fn hang(&self, node: usize) {
        self.with(|turn| {
            let host = &mut turn.hosts[node];
            if host.condition == Condition::Up {
                host.condition = Condition::Hung;
            }
        });
    }

    pub(super) fn resume(&self, node: usize) {
        self.with(|turn| turn.resume(node));
    }

    pub(super) fn kill(&self, node: usize) {
        self.with(|turn| turn.kill(node));
    }

    /// Kills the node if it runs, and starts it with a new run ID. The keys are lost unless the node
    /// persists them.
    pub(super) fn restart(&self, node: usize) {
        self.with(|turn| turn.restart(node));
    }

    pub(super) fn persist(&self, node: usize) {
        self.with(|turn| {
            let host = &mut turn.hosts[node];
            host.persists = true;
            host.server.configure(|config| {
                config.appendonly = true;
                config.appendfsync = Fsync::Always;
            });
        });
    }

    pub(super) fn delay(&self, node: usize, by: Duration) {
        self.with(|turn| turn.hosts[node].delay = by);
    }

    pub(super) fn refuse(&self, node: usize, trouble: Option<Trouble>) {
        self.with(|turn| {
            turn.act_on(node, |host, _| {
                host.server.set_trouble(trouble);
                Vec::new()
            });
        });
    }

    pub(super) fn heal(&self, node: usize) {
        self.delay(node, Duration::ZERO);
        self.refuse(node, None);
        self.with(|turn| match turn.hosts[node].condition {
            Condition::Up => {}
            Condition::Hung => turn.resume(node),
            Condition::Down => turn.restart(node),
        });
    }

    pub(super) fn step(&self, node: usize, by_us: i64) {
        self.with(|turn| {
            let host = &mut turn.hosts[node];
            host.ahead_us = host.ahead_us.saturating_add(by_us);
            host.expiry = None;
            turn.plan_expiry(node);
        });
    }
}

impl NetworkAccess<'_> {
    fn node_wall_us(&self, node: usize) -> u64 {
        self.wall_us().saturating_add_signed(self.hosts[node].ahead_us)
    }

    pub(super) fn act_on(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut NodeHost, u64) -> Vec<Output>,
    ) {
        let wall_us = self.node_wall_us(node);
        let outputs = act(&mut self.hosts[node], wall_us);
        self.put_out(node, outputs);
        self.plan_expiry(node);
    }

    fn plan_expiry(&mut self, node: usize) {
        let host = &self.hosts[node];
        let due = host.server.next_expiry().filter(|_| host.condition == Condition::Up);
        let Some(due_us) = due else { return };
        let left = Duration::from_micros(due_us.saturating_sub(self.node_wall_us(node)));
        let at = self.now().saturating_add(left);
        if self.hosts[node].expiry.as_ref().is_none_or(|planned| at < planned.at) {
            self.hosts[node].expiry = Some(self.plan(at, NetworkEvent::Expiry(node)));
        }
    }

    pub(super) fn expire(&mut self, node: usize) {
        self.hosts[node].expiry = None;
        if self.hosts[node].condition == Condition::Up {
            self.act_on(node, |host, wall_us| host.server.expire(wall_us));
        }
    }

    fn resume(&mut self, node: usize) {
        if self.hosts[node].condition != Condition::Hung {
            return;
        }
        self.hosts[node].condition = Condition::Up;
        for (connection, packet) in std::mem::take(&mut self.hosts[node].waiting) {
            self.serve(connection, packet);
        }
        self.expire(node);
    }

    fn kill(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        host.condition = Condition::Down;
        host.waiting.clear();
        host.peers.clear();
        host.expiry = None;
        self.close_all(node);
    }

    fn restart(&mut self, node: usize) {
        self.kill(node);
        let wall_us = self.node_wall_us(node);
        let host = &mut self.hosts[node];
        host.runs += 1;
        let config =
            Config { run_id: run_id(host.number, host.runs), ..host.server.config().clone() };
        host.server.restart(config, host.persists, wall_us);
        host.condition = Condition::Up;
        self.plan_expiry(node);
    }
}
