//! Virtual Redis masters.

use crate::clock::{Clock, Instant, MS, S};
use crate::counts::Count;
use crate::event::Event;
use crate::link::Deed;
use crate::mutation::Mutation;
use crate::network::State;
use crate::protocol::Vote;
use crate::trace::note;
use crate::world::{World, index, small};

/// A key's value, and when it expires on the node's clock, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Stored {
    value: u64,
    expiry: u64,
}

pub(crate) struct Node {
    clock: Clock,
    key: Option<Stored>,
    /// The last number that was drawn, or confirmed, for the key.
    counter: u64,
    /// When its process started, by its own clock.
    started: u64,
    is_down: bool,
    is_paused: bool,
    /// When its process starts for the first time, if that is in the run.
    pub(crate) starts_at: Instant,
    /// When its clock stepped last, and whether ahead.
    last_step: Option<(Instant, bool)>,
    /// Grows with each start of the process.
    pub(crate) run: u32,
    /// Grows with each pause and crash, so that the end of an earlier one does not end this.
    turn: u32,
    /// Refuses commands with errors until then, as it loads its data.
    loading_until: Instant,
    /// What came while it was paused.
    backlog: Vec<u32>,
}

/// What a node says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) vote: Vote,
    /// How long the key that is in the way has to live, in milliseconds.
    pub(crate) free_in: Option<u64>,
    /// Where the counter stands. Of a set-up: how many seconds the process says it has been up.
    pub(crate) number: Option<u64>,
    /// What its clock shows, if it was asked.
    pub(crate) shown_us: Option<u64>,
}

impl Answer {
    pub(crate) fn of(vote: Vote) -> Self {
        Self { vote, free_in: None, number: None, shown_us: None }
    }

    fn numbered(number: u64) -> Self {
        Self { number: Some(number), ..Self::of(Vote::Granted) }
    }
}

impl Node {
    /// A node that has been up for long.
    pub(crate) fn new(clock: Clock, counter: u64) -> Self {
        Self {
            clock,
            key: None,
            counter,
            started: 0,
            is_down: false,
            is_paused: false,
            starts_at: 0,
            last_step: None,
            run: 0,
            turn: 0,
            loading_until: 0,
            backlog: Vec::new(),
        }
    }

    /// Redis knows the time in milliseconds.
    fn ms(&self, now: Instant) -> u64 {
        self.clock.read(now) / MS
    }

    /// What stands at the key. It is gone from its last millisecond on: the real one may keep it a
    /// millisecond longer.
    fn stored(&self, now: Instant) -> Option<Stored> {
        self.key.filter(|stored| self.ms(now) < stored.expiry)
    }

    pub(crate) fn value(&self, now: Instant) -> Option<u64> {
        self.stored(now).map(|stored| stored.value)
    }

    /// As Redis says it: the difference of two clock readings without their fractions, so up to a
    /// second more than it is.
    pub(crate) fn uptime_s(&self, now: Instant) -> u64 {
        (self.clock.read(now) / S).saturating_sub(self.started / S)
    }

    pub(crate) fn shown_us(&self, now: Instant) -> u64 {
        self.clock.read(now) / 1_000
    }

    fn execute(
        &mut self,
        now: Instant,
        deed: Deed,
        (value, px): (u64, u64),
        mutation: Option<Mutation>,
    ) -> Answer {
        if now < self.loading_until {
            return Answer::of(Vote::Failed);
        }
        let ms = self.ms(now);
        self.key = self.stored(now);
        let fresh = Stored { value, expiry: ms + px };
        let is_ours = self.key.is_some_and(|stored| stored.value == value);
        match (deed, &mut self.key) {
            (Deed::Acquire { .. } | Deed::Repair { .. }, key @ None) => {
                *key = Some(fresh);
                Answer::of(Vote::Granted)
            }
            (Deed::Acquire { .. }, key) if mutation == Some(Mutation::SetWithoutNx) => {
                *key = Some(fresh);
                Answer::of(Vote::Granted)
            }
            (Deed::Extend { .. }, key)
                if !is_ours && mutation == Some(Mutation::NoCompareOnExtend) =>
            {
                *key = Some(fresh);
                Answer::of(Vote::Granted)
            }
            (Deed::Extend { .. }, Some(stored)) if is_ours => {
                let shortens = mutation == Some(Mutation::ShorteningExtend);
                stored.expiry = if shortens { ms + px } else { stored.expiry.max(ms + px) };
                Answer::of(Vote::Granted)
            }
            (Deed::Raise { .. }, Some(_)) if is_ours => Answer::of(Vote::Granted),
            (Deed::Release, key @ Some(_))
                if is_ours || mutation == Some(Mutation::NoCompareOnRelease) =>
            {
                *key = None;
                Answer::of(Vote::Granted)
            }
            (_, Some(stored)) => {
                let free_in = Some(stored.expiry.saturating_sub(ms));
                Answer { free_in, ..Answer::of(Vote::Denied) }
            }
            (_, None) => Answer::of(Vote::Missing),
        }
    }

    /// What becomes of the counter, once it is known how the key stands.
    fn count(
        &mut self,
        deed: Deed,
        number: u64,
        answer: Answer,
        mutation: Option<Mutation>,
    ) -> Answer {
        let is_raise = matches!(deed, Deed::Raise { .. });
        let is_blind =
            mutation == Some(Mutation::UncheckedRaise) || mutation == Some(Mutation::WriteBack);
        let is_granted = answer.vote == Vote::Granted;
        if answer.vote == Vote::Failed || !(is_granted || is_raise && is_blind) {
            return answer;
        }
        let counter = self.counter;
        self.counter = match (deed, mutation) {
            (Deed::Acquire { .. }, Some(Mutation::SameNumber)) => counter.max(number),
            (Deed::Acquire { .. }, _) => (counter + 1).max(number),
            (Deed::Raise { .. }, Some(Mutation::WriteBack)) => number,
            (Deed::Release, Some(Mutation::ForgottenCounter)) => 0,
            (Deed::Extend { .. }, Some(Mutation::LoweringExtend))
            | (Deed::Repair { .. }, Some(Mutation::LoweringRepair))
                if number > 0 =>
            {
                number
            }
            _ => counter.max(number),
        };
        match deed {
            Deed::Acquire { .. } | Deed::Raise { .. } => Answer::numbered(self.counter),
            _ => answer,
        }
    }
}

impl World {
    /// A packet has come over its connection.
    pub(crate) fn handle_arrival(&mut self, packet: u32) {
        if !self.gets_through(packet) {
            return;
        }
        let connection = self.packets[index(packet)].connection;
        let at = self.connections[index(connection)].node;
        let node = &mut self.nodes[at];
        if node.is_down {
            self.refuse_connection(connection);
        } else if node.is_paused {
            node.backlog.push(packet);
        } else {
            self.execute(packet);
        }
    }

    /// A packet is read: all of its pipeline, or one half.
    fn execute(&mut self, packet: u32) {
        let sent = self.packets[index(packet)];
        let (head, is_tail) = (sent.tail_of.unwrap_or(packet), sent.tail_of.is_some());
        if !is_tail && !sent.has_tail {
            self.answer(packet);
            return;
        }
        let at = self.connections[index(sent.connection)].node;
        let is_command = is_tail == self.scenario.has(Mutation::TimeFirst);
        if is_command {
            self.answer(head);
        } else {
            let shown_us = Some(self.nodes[at].shown_us(self.now));
            let it = &mut self.packets[index(head)];
            let answer = it.answer.unwrap_or(Answer::of(Vote::Failed));
            it.answer = Some(Answer { shown_us, ..answer });
        }
        if is_tail && let Some(answer) = self.packets[index(head)].answer {
            self.reply(head, answer);
        }
    }

    fn answer(&mut self, packet: u32) {
        let sent = self.packets[index(packet)];
        let connection = &mut self.connections[index(sent.connection)];
        let at = connection.node;
        let mutation = self.scenario.mutation;
        let shown_us = self.nodes[at].shown_us(self.now);
        if sent.order.deed == Deed::SetUp {
            connection.run = Some(self.nodes[at].run);
            self.end_old_connections(sent.connection);
            let answer = Answer::numbered(self.nodes[at].uptime_s(self.now));
            self.reply(packet, Answer { shown_us: Some(shown_us), ..answer });
            return;
        }
        if sent.order.deed == Deed::Beat {
            self.reply(packet, Answer { shown_us: Some(shown_us), ..Answer::of(Vote::Granted) });
            return;
        }
        let is_old = connection.state != State::Open;
        if is_old {
            self.counts.add(Count::LatePackets);
        }
        if self.scenario.fencing.fades > 0 && self.dice.chance(self.scenario.fencing.fades) {
            self.fade(at);
        }
        let (deed, told) = (sent.order.deed, (sent.value, sent.px));
        let answer = self.nodes[at].execute(self.now, deed, told, mutation);
        let answer = self.nodes[at].count(deed, sent.number, answer, mutation);
        if matches!(deed, Deed::Acquire { .. } | Deed::Repair { .. })
            && answer.vote == Vote::Granted
        {
            self.ledger.begin_tenure(at, sent.order.claim);
        }
        if matches!((deed, answer.vote), (Deed::Repair { .. }, Vote::Granted)) {
            self.counts.add(Count::Repaired);
        }
        note!(
            self,
            "n{at}: {deed:?} of {:x}{}: {answer:?}",
            sent.value,
            if is_old { " (late)" } else { "" }
        );
        if sent.has_tail {
            let shown_us = sent.answer.and_then(|answer| answer.shown_us);
            self.packets[index(packet)].answer = Some(Answer { shown_us, ..answer });
        } else {
            let shown_us = sent.order.deed.is_pipelined().then_some(shown_us);
            self.reply(packet, Answer { shown_us, ..answer });
        }
    }

    pub(crate) fn pause_node(&mut self, at: usize, until: Instant) {
        let node = &mut self.nodes[at];
        if node.is_down || node.is_paused {
            return;
        }
        self.counts.add(Count::NodePauses);
        node.is_paused = true;
        node.turn += 1;
        self.queue.push(until, Event::Resume { node: small(at), turn: node.turn });
    }

    pub(crate) fn resume_node(&mut self, at: usize, turn: u32) {
        if self.nodes[at].turn == turn {
            self.wake_node(at);
        }
    }

    pub(crate) fn wake_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.is_paused = false;
        for packet in std::mem::take(&mut node.backlog) {
            if self.is_readable(packet) {
                self.execute(packet);
            }
        }
    }

    pub(crate) fn crash_node(&mut self, at: usize, forgets: bool, until: Instant) {
        // What is trusted keeps its promise.
        let forgets = forgets && self.scenario.trusted & 1 << at == 0;
        let node = &mut self.nodes[at];
        if node.is_down {
            return;
        }
        self.counts.add(match (forgets, until - self.now > MS) {
            (false, _) => Count::DurableCrashes,
            (true, true) => Count::EmptyCrashes,
            (true, false) => Count::AmnesiaCrashes,
        });
        node.is_down = true;
        node.is_paused = false;
        node.turn += 1;
        node.backlog.clear();
        if forgets {
            node.key = None;
            node.counter = 0;
            self.ledger.wipe(at, self.now);
        }
        let node = &mut self.nodes[at];
        self.queue.push(until, Event::Restart { node: small(at), turn: node.turn });
        self.cut_off(at);
    }

    pub(crate) fn restart_node(&mut self, at: usize, turn: u32) {
        let loading = self.dice.pick(&[0, 0, 2, 20]) * MS;
        let node = &mut self.nodes[at];
        if node.turn == turn {
            node.is_down = false;
            node.started = node.clock.read(self.now);
            node.run += 1;
            node.loading_until = self.now + loading;
            note!(self, "n{at} restarts, loads for {} ms", loading / MS);
        }
    }

    /// A node's key goes before its time; its counter stays.
    pub(crate) fn fade(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.key.take().is_some() {
            self.counts.add(Count::Fades);
            note!(self, "n{at} loses the key");
        }
    }

    /// Sets a node's clock. What has expired before stays so.
    pub(crate) fn jump_node(&mut self, at: usize, by: i64) {
        let node = &mut self.nodes[at];
        node.key = node.stored(self.now);
        node.clock.jump(self.now, by);
    }

    /// A node's clock steps; but once everybody knows of the step before, if that went the other way, or if
    /// this one is shorter than the ways that a packet can be held up.
    pub(crate) fn step_node(&mut self, at: usize, by: i64) -> bool {
        let is_ahead = by > 0;
        let slow = 2 * (self.scenario.weather.long + self.scenario.weather.delay.1);
        if let Some((stepped, was_ahead)) = self.nodes[at].last_step
            && (was_ahead != is_ahead || by.unsigned_abs() < slow)
            && !self.is_known_by_all(at, stepped)
        {
            return false;
        }
        self.counts.add(if is_ahead { Count::JumpsForth } else { Count::JumpsBack });
        self.nodes[at].last_step = Some((self.now, is_ahead));
        self.jump_node(at, by);
        true
    }

    /// A node that is started for the first time in the middle of the run.
    pub(crate) fn expect_node(&mut self, at: usize, starts_at: Instant) {
        let node = &mut self.nodes[at];
        node.is_down = true;
        node.starts_at = starts_at;
        self.queue.push(starts_at, Event::Restart { node: small(at), turn: node.turn });
    }
}
