//! One run: a world of nodes, networks and clients, from a seed.

use crate::checker::Checker;
use crate::client::{Client, Task};
use crate::clock::{Instant, MS};
use crate::counts::{Count, Counts};
use crate::dice::Dice;
use crate::event::{Event, Queue};
use crate::fault::{self, Planned};
use crate::ledger::Ledger;
use crate::link::{Claim, Link};
use crate::mind::Mind;
use crate::mode::Mode;
use crate::mutation::Mutation;
use crate::network::{Connection, Packet};
use crate::node::{Answer, Node};
use crate::protocol::{NodeId, Time, Vote};
use crate::scenario::Scenario;
use crate::trace::{Trace, note};
use std::time::Duration;

/// A run has no more events than this: beyond, something goes round in circles.
const MOST_EVENTS: u64 = 2_000_000;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What must not be, and was.
    pub violation: Option<String>,
    /// How often a client began to hold while another did.
    pub overlaps: u64,
    /// How often a token was not higher than that of a lease which had been handed out before.
    pub disorders: u64,
    /// What happened.
    pub counts: Counts,
    /// Of all events.
    pub hash: u64,
    /// The trace as text, if it was asked for.
    pub trace: String,
}

/// Plays `seed`; writes the trace if asked to.
pub fn run(seed: u64, mode: Mode, mutation: Option<Mutation>, writes_trace: bool) -> Outcome {
    World::new(seed, mode, mutation, writes_trace).play()
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) dice: Dice,
    pub(crate) now: Instant,
    pub(crate) queue: Queue,
    pub(crate) faults: Vec<Planned>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) packets: Vec<Packet>,
    pub(crate) clients: Vec<Client>,
    pub(crate) claims: Vec<Claim>,
    /// The last round's number, and the last alarm's.
    pub(crate) rounds: u32,
    pub(crate) rings: u32,
    pub(crate) checker: Checker,
    pub(crate) ledger: Ledger,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    pub(crate) is_healed: bool,
}

impl World {
    fn new(seed: u64, mode: Mode, mutation: Option<Mutation>, writes_trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::draw(mode, mutation, &mut dice);
        let nodes = (0..scenario.nodes).map(|_| {
            let clock = scenario.node_clock(&mut dice);
            Node::new(clock, scenario.fencing.first_number(&mut dice))
        });
        let nodes = nodes.collect();
        let checker = Checker::new(scenario.clients, mode.is_exclusive());
        let mut world = Self {
            faults: fault::plan(&scenario, &mut dice),
            scenario,
            dice,
            now: 0,
            queue: Queue::default(),
            nodes,
            connections: Vec::new(),
            packets: Vec::new(),
            clients: Vec::new(),
            // The first one belongs to nobody: connections are set up for it.
            claims: vec![Claim::default()],
            rounds: 0,
            rings: 0,
            checker,
            ledger: Ledger::new(mode),
            counts: Counts::default(),
            trace: Trace::new(writes_trace),
            is_healed: false,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        note!(self, "{:?}", self.scenario);
        for (node, starts_at) in self.scenario.starts.clone().into_iter().enumerate() {
            self.expect_node(node, starts_at);
        }
        for (place, planned) in self.faults.iter().enumerate() {
            self.queue.push(planned.at, Event::Fault { index: word(place) });
        }
        let is_new = !self.scenario.starts.is_empty();
        for client in 0..self.scenario.clients {
            if self.scenario.guard.has_newcomers && (is_new || client > 0 && self.dice.chance(500))
            {
                self.expect_newcomer(client);
                continue;
            }
            self.welcome(client);
        }
        let last = if self.scenario.mode == Mode::Liveness { Event::Heal } else { Event::End };
        self.queue.push(self.scenario.horizon, last);
    }

    /// A client that knows all nodes.
    fn welcome(&mut self, client: usize) {
        let clock = self.scenario.clock(&mut self.dice);
        let wall = self.scenario.fencing.wall(&mut self.dice);
        let nodes = 0..self.scenario.nodes;
        let now = clock.time(0);
        let link = |node| {
            let connection = self.open_connection(client, node, Some(0));
            Link::on(connection, &self.scenario, now)
        };
        let links = nodes.clone().map(link).collect();
        let mind = Mind::new(&self.scenario);
        self.clients.push(Client::new(clock, wall, links, mind));
        let way = nanos_before(now, self.scenario.weather.delay.1);
        for node in nodes {
            let it = &self.nodes[node];
            let (uptime_s, shown_us) = (it.uptime_s(0), Some(it.shown_us(0)));
            let answer = Answer { shown_us, ..Answer::of(Vote::Granted) };
            self.read_clock(client, node, way, answer);
            self.meet(client, node, 0, uptime_s);
            self.set_alarm(client, node);
        }
        self.think(client);
    }

    fn play(mut self) -> Outcome {
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            self.counts.add(Count::Events);
            self.trace.mix(&(at, event));
            note!(self, "{event:?}");
            if event == Event::End {
                self.check_end();
                break;
            }
            self.handle(event);
            let is_over = self.checker.violation.is_some() && self.scenario.mode.is_promised();
            if is_over {
                break;
            }
            if self.counts.get(Count::Events) > MOST_EVENTS {
                self.checker.violation = Some("too many events".into());
            }
        }
        if let Some(what) = &self.checker.violation {
            note!(self, "VIOLATION: {what}");
        }
        let (hash, trace) = self.trace.finish();
        let (violation, overlaps) = (self.checker.violation, self.checker.overlaps);
        let disorders = self.ledger.disorders;
        Outcome { violation, overlaps, disorders, counts: self.counts, hash, trace }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        if let Some(client) = event.client()
            && self.clients[client].is_stopped
        {
            self.clients[client].backlog.push(event);
            return;
        }
        match event {
            Event::Arrive { packet } => self.handle_arrival(packet),
            Event::Reply { client, packet } => self.handle_reply(client.into(), packet),
            Event::Break { connection } => self.handle_break(connection),
            Event::Disconnected { client, connection } => {
                self.handle_disconnected(client.into(), connection);
            }
            Event::Refused { client, connection } => self.handle_refused(client.into(), connection),
            Event::Connect { client, node } => self.connect(client.into(), node.into()),
            Event::Alarm { client, node } => self.handle_alarm(client.into(), node.into()),
            Event::Fail { client, node, round } => {
                let answer = (Answer::of(Vote::Failed), None);
                self.count_vote(client.into(), NodeId::new(node.into()), round, answer);
            }
            Event::Task { client, turn } => {
                if self.clients[usize::from(client)].turn == turn {
                    self.handle_task(client.into());
                }
            }
            Event::Ring { client, turn } => {
                if turn == u32::MAX {
                    self.renew_in_vain(client.into());
                } else if self.is_ringing(client.into(), turn) {
                    self.handle_ring(client.into());
                }
            }
            Event::Settle { client, round } => self.handle_settle(client.into(), round),
            Event::Fault { index } => self.handle_fault(index),
            Event::Resume { node, turn } => self.resume_node(node.into(), turn),
            Event::Restart { node, turn } => self.restart_node(node.into(), turn),
            Event::Continue { client } => self.continue_client(client.into()),
            Event::Heal => self.heal(),
            Event::End => {}
        }
    }

    /// The network is as it should be from now on; nodes and clients are, by plan.
    fn heal(&mut self) {
        note!(self, "healed");
        self.is_healed = true;
        let last = self.last_moment();
        self.queue.push(last, Event::End);
    }

    /// A lease has ended: the client wants another one, or it has had its last.
    pub(crate) fn go_on(&mut self, client: usize) {
        let won_after = self.clients[client].waiting_since.max(self.scenario.horizon);
        let is_last = self.is_healed && self.checker.began(client) >= won_after;
        if !is_last {
            self.think(client);
            return;
        }
        self.clients[client].task = Task::Done;
        self.clients[client].turn += 1;
        if self.clients.iter().all(|client| client.task == Task::Done) {
            let at = self.now + self.scenario.delivery();
            self.queue.push(at, Event::End);
        }
    }

    /// The client's clock.
    pub(crate) fn local(&self, client: usize) -> Time {
        self.clients[client].clock.time(self.now)
    }

    /// Something happens at a client when its clock shows `time`; timers may be a little late.
    pub(crate) fn at_local(&mut self, client: usize, time: Time, event: Event) {
        let at = self.clients[client].clock.when(time).max(self.now);
        let late = self.dice.below(MS / 8);
        self.queue.push(at + late, event);
    }
}

fn nanos_before(time: Time, nanos: Instant) -> Time {
    Time::from_nanos(time.as_nanos() - nanos)
}

/// Places in lists, as words that events carry.
pub(crate) fn word(place: usize) -> u32 {
    u32::try_from(place).expect("runs are short")
}

pub(crate) fn small(place: usize) -> u8 {
    u8::try_from(place).expect("there are few")
}

pub(crate) fn index(word: u32) -> usize {
    word as usize
}

pub(crate) fn nanos(duration: Duration) -> Instant {
    u64::try_from(duration.as_nanos()).expect("a short time")
}
