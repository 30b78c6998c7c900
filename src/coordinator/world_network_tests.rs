//! The simulated network, which delivers bytes and connection events between the processes and hosts of a [`World`].

use super::world_tests::{Delivery, HostState, World};
use crate::wire::NodeFailure;
use quorlock_test::internals::Output;
use rand::RngExt;
use redis::RedisConnectionInfo;
use std::io;

fn without(word: &str, bytes: &[u8]) -> Vec<u8> {
    if word.is_empty() {
        return bytes.to_vec();
    }
    let is_begin = |at: &usize| bytes[*at] == b'*' && (*at == 0 || bytes[..*at].ends_with(b"\r\n"));
    let begins: Vec<_> = (0..bytes.len()).filter(is_begin).chain([bytes.len()]).collect();
    let commands = begins.windows(2).map(|range| &bytes[range[0]..range[1]]);
    let has_word =
        |command: &&[u8]| command.windows(word.len()).any(|part| part == word.as_bytes());
    let rest = &bytes[..begins[0]];
    [rest].into_iter().chain(commands.filter(|it| !has_word(it))).flatten().copied().collect()
}

/// Returns the bytes before `word`. Returns all bytes if `word` is empty or not found.
fn until<'a>(bytes: &'a [u8], word: &str) -> &'a [u8] {
    let place = bytes.windows(word.len().max(1)).position(|part| part == word.as_bytes());
    &bytes[..place.unwrap_or(bytes.len())]
}

impl World {
    pub(super) fn handle(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Connect { process, connection } => {
                let host = connection.node.index();
                let now = self.now;
                if self.hosts[host].state == HostState::Down {
                    let failure = NodeFailure::Unreachable("connection refused".into());
                    let coordinator = &mut self.processes[process].coordinator;
                    return coordinator.handle_connect_failed(connection, failure, now);
                }
                let conn = self.hosts[host].server.connect();
                self.hosts[host].peers.insert(conn, (process, connection));
                self.processes[process].streams.insert(connection, conn);
                let login = RedisConnectionInfo::default();
                self.processes[process].coordinator.handle_connected(connection, &login, now);
            }
            Delivery::ToServer { process, connection, .. }
            | Delivery::ToClient { process, connection, .. }
                if self.dead.contains(&(process, connection)) => {}
            Delivery::ToServer { connection, .. }
                if self.hosts[connection.node.index()].state == HostState::Hung =>
            {
                self.hosts[connection.node.index()].held.push_back(delivery);
            }
            Delivery::ToServer { process, connection, bytes } => {
                let host = connection.node.index();
                let peer = (process, connection);
                let conn = self.hosts[host].peers.iter().find(|(_, known)| **known == peer);
                let Some(conn) = conn.map(|(conn, _)| *conn) else { return };
                let all = bytes.len();
                if bytes.is_empty() {
                    self.hosts[host].peers.remove(&conn);
                    self.hosts[host].server.disconnect(conn);
                    return;
                }
                let wall_us = self.wall_us(host);
                let bytes = until(&bytes, self.hosts[host].closes_on);
                let is_closed = bytes.len() < all;
                let bytes = &without(self.hosts[host].drops_commands_with, bytes);
                let outputs = self.hosts[host].server.receive(conn, bytes, wall_us);
                self.send(host, outputs);
                if is_closed {
                    self.hosts[host].server.disconnect(conn);
                    // The reset discards the replies in flight.
                    self.deliveries.retain(|_, delivery| {
                        !matches!(delivery, Delivery::ToClient { process, connection, .. }
                            if (*process, *connection) == peer)
                    });
                    self.send(host, vec![Output::Close(conn)]);
                }
            }
            Delivery::ToClient { process, connection, bytes } => {
                let now = self.now;
                if self.processes[process].streams.contains_key(&connection) {
                    self.processes[process].coordinator.handle_bytes(connection, &bytes, now);
                }
            }
            Delivery::Closed { process, connection } => {
                let now = self.now;
                if self.processes[process].streams.remove(&connection).is_some() {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof).into();
                    self.processes[process].coordinator.handle_closed(connection, &error, now);
                }
            }
        }
    }

    pub(super) fn send(&mut self, host: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Bytes(conn, bytes) => {
                    if let Some((process, connection)) = self.hosts[host].peers.get(&conn).copied()
                    {
                        let stream = Some((process, connection, false));
                        let mut bytes = bytes;
                        if self.splits && self.random.random_ratio(1, 4) {
                            let rest = bytes.split_off(self.random.random_range(0..bytes.len()));
                            self.deliver(stream, Delivery::ToClient { process, connection, bytes });
                            bytes = rest;
                        }
                        self.deliver(stream, Delivery::ToClient { process, connection, bytes });
                    }
                }
                Output::Close(conn) => {
                    if let Some((process, connection)) = self.hosts[host].peers.remove(&conn) {
                        let delivery = Delivery::Closed { process, connection };
                        self.deliver(Some((process, connection, false)), delivery);
                    }
                }
            }
        }
    }
}
