//! Values of several megabytes that other clients set at the keys of locks.

use crate::clock::{Instant, MS, US};
use crate::dice::Dice;
use crate::event::Way;
use crate::mode::Single;
use crate::network::Packet;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::shared::Core;
use crate::trace::note;
use crate::worker::Worker;
use quorlock::{AcquireError, LockState, NodeFailure, NodeReport, NodeVote, Report, Status};

/// The number of locks whose keys may have a large value.
pub(crate) const LARGE: usize = 2;

/// The time to transfer one kilobyte, at about 10 MB/s.
const PER_KILOBYTE: Instant = 100 * US;

/// The size of the pieces in which a long reply arrives, in bytes.
const PIECE: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeCall {
    which: usize,
    request: Request,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Status,
    ForceRelease,
    Try,
    Wait { lasting: Instant },
}

impl LargeCall {
    pub(crate) fn draw(ttl: Instant, dice: &mut Dice) -> Self {
        let which = dice.index(LARGE);
        let request = match dice.below(6) {
            0 | 1 => Request::Status,
            2 => Request::ForceRelease,
            3 => Request::Try,
            _ => Request::Wait { lasting: dice.log_uniform(10 * MS, ttl / 2) },
        };
        Self { which, request }
    }
}

fn name(which: usize) -> String {
    format!("large{which}")
}

impl Core {
    pub(crate) fn enlarge(&mut self, node: usize, which: usize, kilobytes: usize) {
        let key = name(which);
        note!(self, "{key} is {kilobytes} KB on n{node}");
        let value = vec![b'x'; kilobytes << 10];
        let hour = 3_600_000;
        self.act_on(node, |server, wall| server.put(key.as_bytes(), &value, hour, wall));
    }

    pub(crate) fn delete_large_values(&mut self) {
        if self.single != Some(Single::LargeValue) {
            return;
        }
        for (node, which) in
            (0..self.nodes.len()).flat_map(|node| (0..LARGE).map(move |it| (node, it)))
        {
            self.act_on(node, |server, wall| server.delete(name(which).as_bytes(), wall));
        }
    }

    pub(crate) fn transfer_time(&self, packet: &Packet) -> Instant {
        match packet {
            Packet::Bytes(bytes) if self.single == Some(Single::LargeValue) => {
                (bytes.len() as Instant * PER_KILOBYTE) >> 10
            }
            _ => 0,
        }
    }

    /// Sends a reply to the client. A reply of more than `PIECE` bytes arrives in several pieces.
    pub(crate) fn send_in_pieces(&mut self, connection: usize, bytes: Vec<u8>) {
        if bytes.len() <= PIECE {
            return self.send(connection, Way::ToClient, Packet::Bytes(bytes));
        }
        for piece in bytes.chunks(PIECE) {
            self.send(connection, Way::ToClient, Packet::Bytes(piece.to_vec()));
        }
    }
}

impl Worker {
    pub(crate) async fn use_large(self, LargeCall { which, request }: LargeCall) {
        let key = name(which);
        let node = nanos(self.times.node_timeout);
        self.checker.state().met(Rule::Foreign);
        let present = || self.shared.lock().count_nodes_with_key(&key);
        match request {
            Request::Status => {
                let status = self.timed("status", node, self.redlock.status(&key)).await;
                self.inspect(&status);
                let failed = status
                    .iter()
                    .flat_map(Status::nodes)
                    .find(|it| matches!(it.state(), LockState::Failed(_)));
                if let Some(failed) = failed {
                    self.report(&format!("the status of {key} is {failed}"));
                }
            }
            Request::ForceRelease => {
                // A forced release does not delete a value that is longer than the value of any
                // lock.
                let forced = self.redlock.force_release(&key);
                let forced = self.timed("force_release", 2 * node + self.slack, forced).await;
                self.inspect(&forced);
                let failed = |it: &&NodeReport| {
                    matches!(it.vote(), NodeVote::Failed(NodeFailure::Timeout(_)))
                };
                if let Some(failed) = forced.iter().flat_map(Report::nodes).find(failed) {
                    self.report(&format!("the forced release of {key}: {failed}"));
                }
            }
            Request::Try => {
                let (before, nodes) = (present(), self.shared.lock().nodes.len());
                let won = self.redlock.try_acquire(&key).await;
                // Another task may have deleted the value during the attempt.
                if before == nodes
                    && present() == nodes
                    && !matches!(won, Err(AcquireError::Contended { .. }) | Ok(_))
                {
                    self.report(&format!("{key} is refused: {won:?}"));
                }
            }
            Request::Wait { lasting } => {
                let acquire = self.redlock.acquire(&key).wait(millis(lasting / MS));
                let won = self.timed("acquire", lasting, acquire).await;
                self.inspect(&won);
            }
        }
    }

    fn report(&self, how: &str) {
        let how = format!("p{}: {how}", self.process);
        self.checker.state().violated(Rule::Foreign, how);
    }
}
