//! Who has met which node, and has read its clock when.

use crate::clock::{Instant, MS};
use crate::rule::Rule;
use crate::shared::Core;
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a request for the time looks like, and the beginning of its answer.
const ASKED: &[u8] = b"\r\nTIME\r\n";
const TOLD: &[u8] = b"*2\r\n$10\r\n1";
/// What only a client's set-up has in it, and how the request begins that it may end with: to close other connections,
/// or to say that the server lives.
const SET_UP: &[u8] = b"\r\nCLIENT\r\n$2\r\nID\r\n";
const CLOSING: [&[u8]; 2] = [b"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n", b"*1\r\n$4\r\nTIME\r\n"];

/// By true time; it is five seconds by the client's clock.
const LONGEST_UNASKED: Instant = 5_200 * MS;

#[derive(Default)]
pub(crate) struct Readings {
    /// Which process has had an answer of which node.
    met: BTreeSet<(usize, usize)>,
    /// The latest request of a process whose answer came as fast as can be.
    prompt: BTreeMap<(usize, usize), Instant>,
    /// Since when a process knows what a node has gone through last: when that was, and when it heard of it.
    heard: BTreeMap<(usize, usize), (Option<Instant>, Instant)>,
    talks: BTreeMap<usize, Talk>,
    /// A node that is old when the run begins, and is there for whoever comes.
    pub(crate) witness: Option<usize>,
    /// Each packet takes up to so much longer until a process has met it: others are met before it.
    pub(crate) shyness: Instant,
}

/// Where the request for the time begins in a pipeline, if it has one.
pub(crate) fn request_of_time(bytes: &[u8]) -> Option<usize> {
    let name = memmem::rfind(bytes, ASKED)?;
    bytes[..name].iter().rposition(|byte| *byte == b'*')
}

/// What is said over a connection. What a check of the deployment reads, over connections of its own, is not told to the
/// client; nor is what was read in a set-up that has failed later.
#[derive(Default)]
struct Talk {
    stage: Stage,
    /// When the requests were written that were not answered yet, and the latest of all.
    asked: VecDeque<Instant>,
    asked_last: Instant,
    /// The one that was answered before it was known that the set-up was done; true if it was promptly.
    early: Option<(Instant, bool)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Greeting,
    SettingUp,
    /// The set-up, or something later, has asked for the time once more.
    Closing,
    /// What is written only once the set-up is done was written.
    InUse,
}

impl Stage {
    fn after(self, bytes: &[u8]) -> Self {
        let is_set_up = memmem::find(bytes, SET_UP).is_some();
        let may_close = CLOSING.iter().any(|closing| bytes.starts_with(closing));
        match self {
            Self::Greeting if is_set_up => Self::SettingUp,
            Self::Greeting => Self::Greeting,
            Self::SettingUp if may_close => Self::Closing,
            Self::SettingUp | Self::Closing | Self::InUse => Self::InUse,
        }
    }
}

impl Readings {
    fn note_written(&mut self, connection: usize, bytes: &[u8], now: Instant) {
        let count = memmem::find_iter(bytes, ASKED).count();
        let talk = self.talks.entry(connection).or_default();
        talk.stage = talk.stage.after(bytes);
        talk.asked.extend(std::iter::repeat_n(now, count));
        if count > 0 {
            talk.asked_last = now;
        }
    }

    /// Of what the answers in these bytes are those.
    pub(crate) fn answered(&mut self, connection: usize, bytes: &[u8]) -> Vec<Instant> {
        let count = memmem::find_iter(bytes, TOLD).count();
        let Some(talk) = self.talks.get_mut(&connection) else { return Vec::new() };
        (0..count).filter_map(|_| talk.asked.pop_front()).collect()
    }

    pub(crate) fn has_met(&self, process: usize, node: usize) -> bool {
        self.met.contains(&(process, node))
    }
}

impl Core {
    pub(crate) fn note_written(&mut self, connection: usize, bytes: &[u8]) {
        self.readings.note_written(connection, bytes, self.now);
        let Some(talk) = self.readings.talks.get_mut(&connection) else { return };
        if talk.stage != Stage::InUse {
            return;
        }
        let not_asked_for = self.now - talk.asked_last;
        if not_asked_for > LONGEST_UNASKED {
            let how = format!("#{connection} was not asked for {} ms", not_asked_for / MS);
            self.findings.push((Rule::ClocksRead, how));
        }
        if let Some((asked, is_prompt)) = talk.early.take() {
            self.note_known(connection, asked, is_prompt);
        }
    }

    /// An answer that tells the time has come to a process.
    pub(crate) fn note_told(&mut self, connection: usize, asked: Instant) {
        let now = self.now;
        let (process, node) =
            (self.connections[connection].process, self.connections[connection].node);
        let it = &self.processes[process];
        let is_awake = !it.is_stopped && it.held.iter().all(|until| *until <= now);
        let is_prompt = is_awake && now - asked < 2 * self.weather.delay.1 + MS;
        let Some(talk) = self.readings.talks.get_mut(&connection) else { return };
        if is_awake && talk.stage != Stage::Greeting {
            self.readings.met.insert((process, node));
        }
        match talk.stage {
            Stage::SettingUp => talk.early = Some((asked, is_prompt)),
            Stage::InUse => self.note_known(connection, asked, is_prompt),
            Stage::Greeting | Stage::Closing => {}
        }
    }

    /// A process knows what the clock of a node showed when it was `asked`, and what it had gone through by then.
    fn note_known(&mut self, connection: usize, asked: Instant, is_prompt: bool) {
        let it = &self.connections[connection];
        let (key, restarted) = ((it.process, it.node), self.nodes[it.node].restarted);
        if is_prompt {
            let last = self.readings.prompt.entry(key).or_default();
            *last = asked.max(*last);
        }
        let is_new = self.readings.heard.get(&key).is_none_or(|heard| heard.0 != restarted);
        if is_new && restarted.is_none_or(|at| at < asked) {
            self.readings.heard.insert(key, (restarted, self.now));
        }
    }

    /// How long a process has known that a node was restarted or flushed last: for as long as that is ago, if it is not
    /// known to have heard of it. None if it never was.
    pub(crate) fn known_restarted_for(&self, process: usize, node: usize) -> Option<Instant> {
        let restarted = self.nodes[node].restarted?;
        let heard = self.readings.heard.get(&(process, node));
        let heard = heard.filter(|heard| heard.0 == Some(restarted));
        Some(self.now - heard.map_or(restarted, |heard| heard.1))
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
