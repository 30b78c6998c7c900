//! The decisions of one client, without I/O: single-key acquires and releases.
//!
//! Call order in a turn: [`Coordinator::handle_bytes`] for the bytes of each node, the `handle_*` methods for requests,
//! [`Coordinator::handle_timeout`] if [`Coordinator::poll_timeout`] has passed, then [`Coordinator::poll_transmit`] for
//! each node, and [`Coordinator::take_completions`].

use crate::protocol::{
    ClientId, Drift, Goal, NodeId, NodeSet, Outcome, Quorum, Round, Time, Ttl, Vote, valid_until,
};
use crate::random::Random;
use crate::wire::{
    Capabilities, Command, Conversation, Form, Key, Keys, ReplyShape, Subject, Value, Wants,
    append_sync_check, verify_sync,
};
use slab::Slab;
use std::time::Duration;
use tokio::sync::oneshot;

/// A held lock: its place among the attempts, and the end of its validity.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub id: usize,
    pub valid_until: Time,
}

/// How a request ended. An acquire that is refused has none.
pub type Completion = Option<Held>;

/// A completion on its way to its caller.
pub type Done = (oneshot::Sender<Completion>, Completion);

pub enum Request {
    Acquire { key: Key, done: oneshot::Sender<Completion> },
    Release { id: usize, done: oneshot::Sender<Completion> },
}

/// A command in a pipeline to a node.
struct Sent {
    attempt: usize,
    shape: ReplyShape,
    is_release: bool,
}

/// The commands of a pipeline, and whether `TIME` follows them.
struct Pipeline {
    commands: Vec<Sent>,
    has_sync_check: bool,
}

struct Node {
    conversation: Conversation<Pipeline>,
    /// The commands of the next pipeline.
    commands: Vec<Sent>,
    /// True if they contain an acquire.
    grants: bool,
    /// Since when the oldest unanswered pipeline waits for a reply.
    since: Option<Time>,
}

struct Attempt {
    keys: Keys,
    value: Value,
    round: Round,
    valid_until: Time,
    is_releasing: bool,
    done: Option<oneshot::Sender<Completion>>,
    /// Commands of this attempt without a reply.
    open: usize,
}

pub struct Coordinator {
    quorum: Quorum,
    ttl: Ttl,
    node_timeout: Duration,
    random: Random,
    client: ClientId,
    nodes: Vec<Node>,
    attempts: Slab<Attempt>,
    completions: Vec<Done>,
}

impl Coordinator {
    pub fn new(nodes: usize, node_timeout: Duration) -> Self {
        Self {
            quorum: Quorum::majority(nodes),
            ttl: Ttl::from_duration(Duration::from_secs(10)).expect("a valid ttl"),
            node_timeout,
            random: Random,
            client: ClientId(7),
            nodes: (0..nodes)
                .map(|_| Node {
                    conversation: Conversation::new(),
                    commands: Vec::new(),
                    grants: false,
                    since: None,
                })
                .collect(),
            attempts: Slab::new(),
            completions: Vec::new(),
        }
    }

    pub fn handle_request(&mut self, request: Request, now: Time) {
        match request {
            Request::Acquire { key, done } => self.handle_acquire(key, done, now),
            Request::Release { id, done } => self.handle_release(id, Some(done), now),
        }
    }

    fn handle_acquire(&mut self, key: Key, done: oneshot::Sender<Completion>, now: Time) {
        let valid_until = valid_until(now, self.ttl, Drift::DEFAULT);
        let attempt = Attempt {
            keys: Keys::one(key),
            value: Value::of_lease(self.random.uuid(), self.client, 1, None),
            round: Round::new(self.quorum, Goal::Acquire { valid_until }),
            valid_until,
            is_releasing: false,
            done: Some(done),
            open: 0,
        };
        let id = self.attempts.insert(attempt);
        let command = Command::Acquire { ttl: self.ttl, wants: Wants::Nothing };
        self.send_to_all(id, &command, now);
        self.nodes.iter_mut().for_each(|node| node.grants = true);
    }

    fn handle_release(&mut self, id: usize, done: Option<oneshot::Sender<Completion>>, now: Time) {
        let attempt = &mut self.attempts[id];
        attempt.is_releasing = true;
        attempt.done = done;
        attempt.round = Round::new(self.quorum, Goal::Release);
        self.send_to_all(id, &Command::Release { cooling: None }, now);
    }

    fn send_to_all(&mut self, id: usize, command: &Command, now: Time) {
        for place in 0..self.nodes.len() {
            self.send(place, id, command, Form::Hash, now);
        }
    }

    fn send(&mut self, place: usize, id: usize, command: &Command, form: Form, now: Time) {
        let (node, attempt) = (&mut self.nodes[place], &mut self.attempts[id]);
        let subject = Subject {
            node: NodeId::new(place),
            keys: &attempt.keys,
            value: &attempt.value,
            fence: None,
        };
        let requests = node.conversation.requests();
        let shape = command.write(subject, form, now, Capabilities::default(), requests);
        node.commands.push(Sent { attempt: id, shape, is_release: attempt.is_releasing });
        node.since.get_or_insert(now);
        attempt.open += 1;
    }

    /// Ends the pipeline of the node at `place`, and returns the bytes to write there.
    pub fn poll_transmit(&mut self, place: usize) -> &[u8] {
        let node = &mut self.nodes[place];
        if !node.commands.is_empty() {
            let has_sync_check = std::mem::take(&mut node.grants);
            if has_sync_check {
                append_sync_check(node.conversation.requests());
            }
            let commands = std::mem::take(&mut node.commands);
            node.conversation.end_pipeline(Pipeline { commands, has_sync_check });
        }
        node.conversation.to_send()
    }

    /// The driver has written `count` of those bytes.
    pub fn handle_sent(&mut self, place: usize, count: usize) {
        self.nodes[place].conversation.handle_sent(count);
    }

    pub fn handle_bytes(&mut self, place: usize, bytes: &[u8], now: Time) {
        self.nodes[place].conversation.handle_bytes(bytes);
        while let Some((pipeline, replies)) =
            self.nodes[place].conversation.poll_replies().expect("well-formed replies")
        {
            let expected = pipeline.commands.iter().map(|sent| sent.shape.len()).sum::<usize>();
            let expected = expected + usize::from(pipeline.has_sync_check);
            verify_sync(&replies, expected, pipeline.has_sync_check).expect("replies in sync");
            let mut replies = &replies[..];
            for sent in pipeline.commands {
                let (ours, rest) = replies.split_at(sent.shape.len());
                replies = rest;
                self.handle_replies(place, &sent, ours, now);
            }
        }
        let node = &mut self.nodes[place];
        let is_idle = node.conversation.in_flight() == 0 && node.commands.is_empty();
        node.since = if is_idle { None } else { Some(now) };
    }

    fn handle_replies(&mut self, place: usize, sent: &Sent, replies: &[redis::Value], now: Time) {
        let id = sent.attempt;
        self.attempts[id].open -= 1;
        if let Some(form) = sent.shape.other_form(replies) {
            self.send(place, id, &Command::Release { cooling: None }, form, now);
            return;
        }
        let answer = sent.shape.read(replies, &self.attempts[id].value);
        if sent.is_release == self.attempts[id].is_releasing {
            self.handle_vote(place, id, answer.vote(), now);
        }
        if self.attempts.get(id).is_some_and(|it| it.is_releasing && it.open == 0) {
            self.attempts.remove(id);
        }
    }

    fn handle_vote(&mut self, place: usize, id: usize, vote: Vote, now: Time) {
        let attempt = &mut self.attempts[id];
        let Some(outcome) = attempt.round.handle_vote(NodeId::new(place), vote, now) else {
            return;
        };
        let held = Held { id, valid_until: attempt.valid_until };
        let is_held = outcome == Outcome::Won || attempt.is_releasing;
        if let Some(done) = attempt.done.take() {
            self.completions.push((done, is_held.then_some(held)));
        }
        if !is_held {
            self.handle_release(id, None, now);
        }
    }

    /// When the next node has been silent for too long.
    pub fn poll_timeout(&self) -> Option<Time> {
        let since = self.nodes.iter().filter_map(|node| node.since).min()?;
        Some(since.after(self.node_timeout))
    }

    /// The nodes that have been silent for too long vote no longer in rounds of that time.
    pub fn handle_timeout(&mut self, now: Time) {
        let timeout = self.node_timeout;
        let is_late = |node: &Node| node.since.is_some_and(|since| now.since(since) >= timeout);
        let late: NodeSet =
            self.quorum.ids().filter(|node| is_late(&self.nodes[node.index()])).collect();
        if late.len() == 0 {
            return;
        }
        let open: Vec<_> = self.attempts.iter().map(|(id, _)| id).collect();
        for id in open {
            for node in late.iter() {
                self.handle_vote(node.index(), id, Vote::Failed, now);
            }
        }
        for node in late.iter() {
            self.nodes[node.index()].since = Some(now);
        }
    }

    /// Requests that have ended. The caller completes them once it has left the coordinator.
    pub fn take_completions(&mut self, into: &mut Vec<Done>) {
        into.append(&mut self.completions);
    }
}
