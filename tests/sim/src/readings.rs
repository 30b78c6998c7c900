//! Who has met which node, and has read its clock when.

use crate::clock::{Instant, MS};
use crate::shared::Core;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a request for the time looks like, and the beginning of its answer.
const ASKED: &[u8] = b"\r\nTIME\r\n";
const TOLD: &[u8] = b"*2\r\n$10\r\n1";

#[derive(Default)]
pub(crate) struct Readings {
    /// Which process has had an answer of which node.
    met: BTreeSet<(usize, usize)>,
    /// The latest request of a process whose answer came as fast as can be.
    prompt: BTreeMap<(usize, usize), Instant>,
    /// When the requests were written that were not answered yet, by connection.
    asked: BTreeMap<usize, VecDeque<Instant>>,
    /// A node that is old when the run begins, and is there for whoever comes.
    pub(crate) witness: Option<usize>,
    /// Each packet takes up to so much longer until a process has met it: others are met before it.
    pub(crate) shyness: Instant,
}

/// Where the request for the time begins in a pipeline, if it has one.
pub(crate) fn request_of_time(bytes: &[u8]) -> Option<usize> {
    let name = bytes.windows(ASKED.len()).rposition(|part| part == ASKED)?;
    bytes[..name].iter().rposition(|byte| *byte == b'*')
}

impl Readings {
    pub(crate) fn note_written(&mut self, connection: usize, bytes: &[u8], now: Instant) {
        let count = bytes.windows(ASKED.len()).filter(|part| *part == ASKED).count();
        let asked = self.asked.entry(connection).or_default();
        asked.extend(std::iter::repeat_n(now, count));
    }

    /// Of what the answers in these bytes are those.
    pub(crate) fn answered(&mut self, connection: usize, bytes: &[u8]) -> Vec<Instant> {
        let count = bytes.windows(TOLD.len()).filter(|part| *part == TOLD).count();
        let Some(asked) = self.asked.get_mut(&connection) else { return Vec::new() };
        (0..count).filter_map(|_| asked.pop_front()).collect()
    }

    pub(crate) fn has_met(&self, process: usize, node: usize) -> bool {
        self.met.contains(&(process, node))
    }
}

impl Core {
    /// An answer that tells the time has come to a process.
    pub(crate) fn note_told(&mut self, process: usize, node: usize, asked: Instant) {
        let now = self.now;
        let it = &self.processes[process];
        if it.is_stopped || it.held.iter().any(|until| *until > now) {
            return;
        }
        self.readings.met.insert((process, node));
        if now - asked < 2 * self.weather.delay.1 + MS {
            let last = self.readings.prompt.entry((process, node)).or_default();
            *last = asked.max(*last);
        }
    }

    /// True if this is how a process meets the node that never restarts: that one is promised to be there.
    pub(crate) fn is_first_meeting(&self, process: usize, node: usize) -> bool {
        self.readings.witness == Some(node) && !self.readings.has_met(process, node)
    }

    /// True if a process has not met that node.
    pub(crate) fn is_meeting(&self, process: usize) -> bool {
        self.readings.witness.is_some_and(|node| !self.readings.has_met(process, node))
    }

    /// True if every process that has met the node knows of all steps of its clock up to now, by a reading
    /// that took no longer than usual: one that goes back and forth between two of them is seen by nobody.
    pub(crate) fn is_known_by_all(&self, node: usize, stepped: Instant) -> bool {
        self.processes.iter().enumerate().all(|(process, it)| {
            let read = self.readings.prompt.get(&(process, node));
            it.is_dead
                || !self.readings.has_met(process, node)
                || read.is_some_and(|at| *at > stepped)
        })
    }
}
