//! The restart guard: which nodes count for a client that has seen them restart, or young.

use crate::client::Client;
use crate::clock::{Instant, MS};
use crate::counts::Count;
use crate::event::Event;
use crate::fault::{Fault, Planned};
use crate::link::Link;
use crate::mind::Mind;
use crate::mode::{Guarded, Mode, Outside, Stepped};
use crate::mutation::Mutation;
use crate::protocol::{NodeId, Quarantine, Quorum, Rule, Server, Time, Ttl};
use crate::scenario::Scenario;
use crate::world::{World, small};
use std::time::Duration;

/// What a run does about nodes that restart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    rule: Rule,
    /// Some clients come in the middle of the run.
    pub(crate) has_newcomers: bool,
}

impl Guard {
    pub(crate) fn of(mode: Mode) -> Self {
        let (rule, has_newcomers) = match mode {
            Mode::Guarded(Guarded::Observed) | Mode::Stepped(Stepped::Restarts) => {
                (Rule::Observed, false)
            }
            Mode::Guarded(Guarded::Minority | Guarded::Rolling | Guarded::Fresh)
            | Mode::Outside(Outside::Newcomers | Outside::SilentOld) => (Rule::Observed, true),
            Mode::Guarded(Guarded::Strict) => (Rule::Strict, true),
            Mode::Outside(Outside::StepNewcomers) => (Rule::Off, true),
            _ => (Rule::Off, false),
        };
        Self { rule, has_newcomers }
    }
}

/// What a client has seen of a node. How old it was, only clients with a mutation go by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    pub(crate) is_met: bool,
    young_until: Time,
    is_old: bool,
}

impl Scenario {
    /// For how long something that was granted can stand.
    pub(crate) fn term(&self) -> Duration {
        let longest = match self.mutation {
            Some(Mutation::ShortQuarantine) => self.ttl_ns(),
            _ => self.longest_ttl(),
        };
        let longest = Ttl::from_duration(Duration::from_nanos(longest)).expect("a good ttl");
        let second = Duration::from_secs(u64::from(self.has(Mutation::TrustedUptime)));
        self.drift.quarantine(longest).saturating_sub(second)
    }

    pub(crate) fn quarantine(&self) -> Quarantine<u32> {
        let quorum = Quorum::majority(self.nodes);
        let mut memory = Quarantine::new(quorum, self.guard.rule, self.term());
        if self.has(Mutation::HastyNewness) {
            quorum.ids().for_each(|node| memory.handle_unreachable(node, Time::default()));
        }
        memory
    }

    /// What a client makes of what a server says of itself.
    fn server(&self, node: usize, run: u32, uptime_s: u64, is_first: bool) -> Server<u32> {
        let (run, uptime_s) = match self.mutation {
            Some(Mutation::NoQuarantine) => (0, uptime_s),
            Some(Mutation::TrustedUptime) => (run, uptime_s + 1),
            Some(Mutation::BlindStrict) if is_first => (run, 1_000_000),
            _ => (run, uptime_s),
        };
        let is_trusted = self.trusted & 1 << node != 0 || self.has(Mutation::TrustedDisk);
        Server { run: Some(run), uptime: Some(Duration::from_secs(uptime_s)), is_trusted }
    }
}

impl World {
    /// A client has a connection to a process that says how long it has been up.
    pub(crate) fn meet(&mut self, client: usize, node: usize, run: u32, uptime_s: u64) {
        let now = self.local(client);
        let id = NodeId::new(node);
        let it = &mut self.clients[client];
        let is_first = !std::mem::replace(&mut it.mind.sights[node].is_met, true);
        let server = self.scenario.server(node, run, uptime_s, is_first);
        let age = server.uptime.unwrap_or_default().saturating_sub(Duration::from_secs(1));
        let term = self.scenario.term();
        let mind = &mut it.mind;
        mind.memory.handle_set_up(id, server, now);
        if is_first {
            let sight = &mut mind.sights[node];
            (sight.young_until, sight.is_old) = (now.after(term.saturating_sub(age)), age > term);
            let known = mind.oldest.map(|(at, age)| now.since(at) + age);
            if known.is_none_or(|known| known < age) {
                mind.oldest = Some((now, age));
            }
        }
        let is_sentenced = mind.memory.sentence(id, now).is_some_and(|it| it.noticed == now);
        let is_young = mind.memory.recent_start(id, now).is_some_and(|it| it.noticed == now);
        for (_, what) in [(is_sentenced, Count::Quarantines), (is_young, Count::Youths)]
            .into_iter()
            .filter(|(is_so, _)| *is_so)
        {
            self.counts.add(what);
        }
    }

    /// True if what a node grants does not count, as it may have forgotten what it granted before.
    pub(crate) fn may_have_forgotten(&self, client: usize, node: NodeId) -> bool {
        let now = self.local(client);
        let it = &self.clients[client];
        let mind = &it.mind;
        if mind.memory.sentence(node, now).is_some() {
            return true;
        }
        let is_young = mind.memory.recent_start(node, now).is_some();
        let quorum = Quorum::majority(self.scenario.nodes);
        let seems_young = |node: &NodeId| now < mind.sights[node.index()].young_until;
        match self.scenario.mutation {
            Some(Mutation::YoungCount) => false,
            Some(Mutation::NewByVotes) => {
                is_young && !quorum.blocked(quorum.ids().filter(seems_young).count())
            }
            Some(Mutation::ForgottenWitness) => {
                let is_old = |node: &NodeId| mind.sights[node.index()].is_old;
                let mut old = quorum.ids().filter(is_old).peekable();
                let is_met = old.peek().is_some();
                is_young && (!is_met || old.any(|node| it.links[node.index()].is_up))
            }
            Some(Mutation::ForgottenNatives) => {
                let oldest = mind.oldest.map(|(at, age)| now.since(at) + age);
                let is_old = oldest.is_some_and(|age| age > self.scenario.term());
                is_young || is_old && seems_young(&node)
            }
            _ => is_young,
        }
    }

    /// Nothing may be withheld where a deployment is new.
    pub(crate) fn check_withheld(&mut self, client: usize, node: NodeId) {
        if self.scenario.mode == Mode::Guarded(Guarded::Fresh) {
            let what = format!("c{client} does not count {node:?}, though the deployment is new");
            self.checker.violation.get_or_insert(what);
        }
    }

    /// When a newcomer comes: often soon after a restart, or a step.
    fn arrival(&mut self) -> Instant {
        let longest = self.scenario.longest_ttl();
        if self.scenario.mode == Mode::Guarded(Guarded::Fresh) {
            let first = self.nodes.iter().map(|node| node.starts_at).min().unwrap_or_default();
            return self.dice.below(first + longest / 4 * 3);
        }
        let is_step = self.scenario.mode == Mode::Outside(Outside::StepNewcomers);
        let is_cause = |it: &&Planned| match it.fault {
            Fault::Crash { .. } => !is_step,
            Fault::Step { .. } => is_step,
            _ => false,
        };
        let causes: Vec<_> = self.faults.iter().filter(is_cause).map(|it| it.at).collect();
        if causes.is_empty() || self.dice.chance(300) {
            return self.dice.below(self.scenario.horizon / 4 * 3);
        }
        self.dice.pick(&causes) + self.dice.of_any_size(4 * MS, self.scenario.ttl_ns())
    }

    /// A client that connects for the first time in the middle of the run.
    pub(crate) fn expect_newcomer(&mut self, client: usize) {
        self.counts.add(Count::Newcomers);
        let nodes = self.scenario.nodes;
        let clock = self.scenario.clock(&mut self.dice);
        let wall = self.scenario.fencing.wall(&mut self.dice);
        let at = self.arrival();
        let comes = clock.time(at);
        let links = (0..nodes).map(|_| Link::new(&self.scenario, comes)).collect();
        let mut mind = Mind::new(&self.scenario);
        let patience = self.scenario.connect_timeout + self.scenario.node_timeout;
        mind.settles_by = comes.after(patience);
        self.clients.push(Client::new(clock, wall, links, mind));
        for node in 0..nodes {
            self.queue.push(at, Event::Connect { client: small(client), node: small(node) });
        }
        self.think_from(client, comes);
    }

    /// True if this is the connection by which a client meets the node that never restarts: that one is
    /// promised to be there.
    pub(crate) fn is_first_meeting(&self, client: usize, node: usize) -> bool {
        self.scenario.witness == Some(node) && !self.clients[client].mind.sights[node].is_met
    }

    /// True if a fault would keep a client from meeting the node that is promised to be there: it is about
    /// to.
    pub(crate) fn hinders_meeting(&self, fault: Fault) -> bool {
        let Some(witness) = self.scenario.witness else { return false };
        let is_meeting = |client: usize| {
            let is_connecting = self.clients[client].links[witness].connection.is_some();
            is_connecting && self.is_first_meeting(client, witness)
        };
        match fault {
            Fault::Pause { node } => node == witness && (0..self.clients.len()).any(is_meeting),
            Fault::Block { client, node } => node == witness && is_meeting(client),
            Fault::Stop { client } => is_meeting(client),
            _ => false,
        }
    }
}
