//! Methods of the simulated [`World`] that inject faults, and that acquire and release locks in its processes.

use super::world_tests::{Delivery, HostState, World, ms};
use super::{
    AcquireFailure, AcquireId, AcquireRequest, Completion, ConnectionId, LeaseId, RoundId,
    SharedLease,
};
use crate::observe::event::{CommandKind, Event};
use crate::protocol::{LeaseStatus, NodeId, RetryPolicy, Time, Ttl};
use crate::wire::{Key, Keys};
use quorlock_test::Trouble;
use quorlock_test::internals::Config;
use rand::RngExt;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(super) const TTL: Duration = Duration::from_secs(10);

pub(super) fn ttl(duration: Duration) -> Ttl {
    Ttl::from_duration(duration).expect("a ttl")
}

pub(super) fn keys(names: &[&str]) -> Keys {
    let keys = names.iter().map(|name| Key::from(name.as_bytes())).collect();
    Keys::all(keys).expect("at least one key")
}

#[derive(Clone)]
pub(super) struct Held {
    pub(super) process: usize,
    pub(super) id: LeaseId,
    pub(super) shared: Arc<SharedLease>,
}

pub(super) fn request(names: &[&str]) -> AcquireRequest {
    AcquireRequest::once(keys(names), Ttl::from_duration(TTL).expect("a ttl"))
}

pub(super) fn waiting(names: &[&str], now: Time, wait: Duration) -> AcquireRequest {
    let schedule = RetryPolicy::default().schedule();
    AcquireRequest {
        schedule,
        has_one_attempt: false,
        deadline: Some(now.after(wait)),
        ..request(names)
    }
}

pub(super) fn renewed(names: &[&str]) -> AcquireRequest {
    AcquireRequest { max_hold: Some(Duration::from_secs(3_600)), ..request(names) }
}

fn is_to(delivery: &Delivery, host: usize) -> bool {
    matches!(delivery, Delivery::ToServer { connection, .. } if connection.node.index() == host)
}

impl World {
    /// A `Down` host closes its connections. A host that is `Up` again handles the bytes that arrived while it was
    /// hung.
    pub(super) fn set_state(&mut self, host: usize, state: HostState) {
        self.hosts[host].state = state;
        if state == HostState::Down {
            let peers = std::mem::take(&mut self.hosts[host].peers);
            for (conn, (process, connection)) in peers {
                self.hosts[host].server.disconnect(conn);
                let delivery = Delivery::Closed { process, connection };
                self.deliver(Some((process, connection, false)), delivery);
            }
        }
        if state == HostState::Up {
            for delivery in std::mem::take(&mut self.hosts[host].held) {
                self.handle(delivery);
            }
        }
    }

    /// Breaks all connections to the host. The server still executes the commands that were already sent.
    pub(super) fn cut(&mut self, host: usize) {
        let peers: Vec<_> = self.hosts[host].peers.values().copied().collect();
        for (process, connection) in peers {
            if self.is_frozen(process) {
                // The process notices the break once it runs again.
                self.deliver(
                    Some((process, connection, false)),
                    Delivery::Closed { process, connection },
                );
            } else if self.processes[process].streams.remove(&connection).is_some() {
                let error = io::Error::from(io::ErrorKind::ConnectionReset).into();
                let now = self.now;
                self.processes[process].coordinator.handle_closed(connection, &error, now);
                let bytes = Vec::new();
                let delivery = Delivery::ToServer { process, connection, bytes };
                // The server notices the end of the stream late.
                self.serial += 1;
                let at = self.now.after(ms(self.random.random_range(0..3_000)));
                let last = self.processes[process].arrivals.get(&(connection, true)).copied();
                self.deliveries.insert((at.max(last.unwrap_or(at)), self.serial), delivery);
            }
        }
    }

    pub(super) fn delay_commands(&mut self, host: usize, by: Duration) {
        let (delayed, others) = std::mem::take(&mut self.deliveries)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, delivery)| is_to(delivery, host));
        self.deliveries = others;
        for ((at, serial), delivery) in delayed {
            if let Delivery::ToServer { process, connection, .. } = &delivery {
                self.processes[*process].arrivals.insert((*connection, true), at.after(by));
            }
            self.deliveries.insert((at.after(by), serial), delivery);
        }
    }

    pub(super) fn lose_commands(&mut self, host: usize) {
        self.lose_commands_after(host, 0);
    }

    /// Loses the commands to `host` that were sent after the delivery with the number `serial`.
    pub(super) fn lose_commands_after(&mut self, host: usize, serial: u64) {
        self.deliveries.retain(|(_, number), delivery| *number <= serial || !is_to(delivery, host));
    }

    /// Counts commands that were answered or have failed.
    pub(super) fn finished(&self, process: usize, kind: CommandKind) -> usize {
        let is_one = |event: &&Event| matches!(event, Event::CommandFinished { command, .. } if *command == kind);
        self.processes[process].events.iter().filter(is_one).count()
    }

    pub(super) fn trouble(&self, host: usize) -> Option<Trouble> {
        self.hosts[host].trouble
    }

    pub(super) fn set_trouble(&mut self, host: usize, trouble: Option<Trouble>) {
        self.hosts[host].trouble = trouble;
        self.hosts[host].server.set_trouble(trouble);
    }

    /// Restarts the server without its data.
    pub(super) fn restart(&mut self, host: usize) {
        let state = self.hosts[host].state;
        self.set_state(host, HostState::Down);
        self.hosts[host].held.clear();
        self.serial += 1;
        let run_id = format!("{:040}", 1_000 + self.serial);
        let config = Config { run_id, ..self.hosts[host].server.config().clone() };
        let wall_us = self.wall_us(host);
        self.hosts[host].server.restart(config, false, wall_us);
        self.hosts[host].state = state;
    }

    pub(super) fn flush(&mut self, host: usize) {
        let wall_us = self.wall_us(host);
        let outputs = self.hosts[host].server.flush(wall_us);
        self.send(host, outputs);
    }

    /// Delays all current and later bytes of the connection until `delay` has passed. New connections are not delayed.
    pub(super) fn hold_up(&mut self, process: usize, connection: ConnectionId, delay: Duration) {
        let at = self.now.after(delay);
        for is_up in [true, false] {
            let last = self.processes[process].arrivals.entry((connection, is_up)).or_insert(at);
            *last = at.max(*last);
        }
    }

    pub(super) fn flush_scripts(&mut self, host: usize) {
        let wall_us = self.wall_us(host);
        let server = &mut self.hosts[host].server;
        let conn = server.connect();
        let outputs = server.receive(conn, b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n", wall_us);
        server.disconnect(conn);
        self.send(host, outputs);
    }

    pub(super) fn put(&mut self, host: usize, key: &str, value: &str, ttl: Duration) {
        let wall_us = self.wall_us(host);
        let ttl_ms = i64::try_from(ttl.as_millis()).expect("short");
        let outputs =
            self.hosts[host].server.put(key.as_bytes(), value.as_bytes(), ttl_ms, wall_us);
        self.send(host, outputs);
    }

    pub(super) fn delete(&mut self, host: usize, key: &str) {
        let wall_us = self.wall_us(host);
        let outputs = self.hosts[host].server.delete(key.as_bytes(), wall_us);
        self.send(host, outputs);
    }

    pub(super) fn keys(&self, host: usize) -> Vec<String> {
        let keys = self.hosts[host].server.keys(self.wall_us(host));
        keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
    }

    pub(super) fn close_on(&mut self, word: &'static str, host: usize) {
        self.hosts[host].closes_on = word;
    }

    pub(super) fn connections(&self, process: usize) -> Vec<ConnectionId> {
        self.processes[process].streams.keys().copied().collect()
    }

    pub(super) fn second_connections(&self, process: usize) -> usize {
        let streams = &self.processes[process].streams;
        let count = |node: &usize| {
            streams.keys().filter(|connection| connection.node.index() == *node).count()
        };
        (0..self.hosts.len()).filter(|node| count(node) > 1).count()
    }

    pub(super) fn copies(&self, key: &str) -> usize {
        let has_key = |host: &usize| {
            let keys = self.hosts[*host].server.keys(self.wall_us(*host));
            keys.into_iter().any(|(known, _)| known == key.as_bytes())
        };
        (0..self.hosts.len()).filter(has_key).count()
    }

    pub(super) fn acquire(&mut self, process: usize, request: AcquireRequest) -> AcquireId {
        let (coordinator, now) = self.coordinator(process);
        coordinator.handle_acquire(request, now)
    }

    pub(super) fn take_acquired(
        &mut self,
        process: usize,
        id: AcquireId,
    ) -> Option<Result<Held, AcquireFailure>> {
        let completions = &mut self.processes[process].completions;
        let place = completions.iter().position(|completion| match completion {
            Completion::Acquired { acquire, .. } | Completion::AcquireFailed { acquire, .. } => {
                *acquire == id
            }
            _ => false,
        })?;
        match completions.remove(place) {
            Completion::Acquired { lease, shared, .. } => {
                Some(Ok(Held { process, id: lease, shared }))
            }
            Completion::AcquireFailed { failure, .. } => Some(Err(failure)),
            _ => None,
        }
    }

    pub(super) fn acquired(
        &mut self,
        process: usize,
        id: AcquireId,
    ) -> Result<Held, AcquireFailure> {
        let limit = self.now.after(Duration::from_secs(120));
        let is_done = |world: &Self| {
            world.processes[process].completions.iter().any(|completion| {
                matches!(completion, Completion::Acquired { acquire, .. }
                    | Completion::AcquireFailed { acquire, .. } if *acquire == id)
            })
        };
        assert!(self.run_until(limit, is_done), "the acquire does not end");
        let held = self.take_acquired(process, id).expect("it has ended")?;
        assert!(held.shared.take(self.now));
        let now = self.now;
        self.processes[process].coordinator.handle_taken(held.id, now);
        Ok(held)
    }

    pub(super) fn lock(&mut self, process: usize, request: AcquireRequest) -> Held {
        let id = self.acquire(process, request);
        self.acquired(process, id).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    pub(super) fn is_valid(&self, held: &Held) -> bool {
        matches!(held.shared.status(self.now), LeaseStatus::Held { .. })
    }

    pub(super) fn release(&mut self, held: &Held) -> RoundId {
        held.shared.end(self.now);
        let (coordinator, now) = self.coordinator(held.process);
        // Lease handles also take the replies first, for their reports.
        coordinator.take_lease_replies(held.id);
        coordinator.handle_release(held.id, None, now).expect("not released before")
    }

    pub(super) fn losses(&self, process: usize) -> Vec<LeaseStatus> {
        let lost = |event: &Event| match event {
            Event::LeaseLost { reason, .. } => Some(LeaseStatus::Lost(*reason)),
            _ => None,
        };
        self.processes[process].events.iter().filter_map(lost).collect()
    }

    pub(super) fn assert_idle(&mut self) {
        for (place, process) in self.processes.iter().enumerate() {
            let left = process.coordinator.left();
            assert!(left.is_empty(), "process {place}: {left:?}");
        }
    }

    pub(super) fn node(place: usize) -> NodeId {
        NodeId::new(place)
    }
}
