//! The restart guard: which nodes count for a client that has seen them restart, or young.

use crate::client::Client;
use crate::clock::{Instant, MS, S};
use crate::counts::Count;
use crate::event::Event;
use crate::fault::{Fault, Planned};
use crate::link::Link;
use crate::mode::{Guarded, Mode, Outside};
use crate::mutation::Mutation;
use crate::protocol::{NodeId, Time, Vote};
use crate::scenario::Scenario;
use crate::world::{World, small};
use std::time::Duration;

/// How a client guards against nodes that have forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Off,
    Observed,
    Strict,
}

/// What a run does about nodes that restart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    watch: Watch,
    /// Some clients come in the middle of the run.
    pub(crate) has_newcomers: bool,
}

impl Guard {
    pub(crate) fn of(mode: Mode) -> Self {
        let (watch, has_newcomers) = match mode {
            Mode::Guarded(Guarded::Observed) => (Watch::Observed, false),
            Mode::Guarded(Guarded::Minority) | Mode::Outside(Outside::Newcomers) => {
                (Watch::Observed, true)
            }
            Mode::Guarded(Guarded::Strict) => (Watch::Strict, true),
            _ => (Watch::Off, false),
        };
        Self { watch, has_newcomers }
    }
}

/// What a client knows of one node's restarts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    /// The run that it saw last.
    run: Option<u32>,
    /// Its grants do not count.
    quarantined_until: Time,
    /// Its grants do not count, unless too many are young.
    young_until: Time,
}

impl Sight {
    /// A node that is known, and counts.
    pub(crate) fn of(run: u32) -> Self {
        Self { run: Some(run), ..Self::default() }
    }
}

impl Scenario {
    /// From a restart on, for so long nothing is granted: the longest ttl, twice the drift, and the
    /// second by which an uptime may be too much.
    fn quarantine(&self) -> Duration {
        let longest = match self.mutation {
            Some(Mutation::ShortQuarantine) => self.ttl_ns(),
            _ => self.longest_ttl(),
        };
        let second = if self.has(Mutation::TrustedUptime) { 0 } else { S };
        Duration::from_nanos(longest / 50 * 51 + second)
    }

    /// A client has a connection to a process that says how long it has been up; `true` if it is
    /// quarantined for that, or young.
    pub(crate) fn look(
        &self,
        sight: &mut Sight,
        run: Option<u32>,
        uptime_s: u64,
        now: Time,
    ) -> Option<Count> {
        let seen = std::mem::replace(&mut sight.run, run);
        let whole = self.quarantine();
        let left = whole.saturating_sub(Duration::from_secs(uptime_s));
        match (self.guard.watch, seen) {
            (Watch::Off, _) => None,
            (_, Some(_)) if seen == run => None,
            (_, Some(_)) if self.has(Mutation::NoQuarantine) => None,
            (_, Some(_)) => {
                sight.quarantined_until = now.after(whole);
                Some(Count::Quarantines)
            }
            (_, None) if left.is_zero() => None,
            (Watch::Strict, None) if self.has(Mutation::BlindStrict) => None,
            (Watch::Strict, None) => {
                sight.quarantined_until = now.after(left);
                Some(Count::Quarantines)
            }
            (Watch::Observed, None) => {
                sight.young_until = now.after(left);
                Some(Count::Youths)
            }
        }
    }
}

impl World {
    /// What a node's vote is worth, in a round that makes a lease.
    pub(crate) fn guard_vote(&mut self, client: usize, node: NodeId, vote: Vote) -> Vote {
        let now = self.local(client);
        let counts_young = self.scenario.has(Mutation::YoungCount);
        let it = &mut self.clients[client];
        let sight = it.links[node.index()].sight;
        if now < sight.young_until && !counts_young {
            it.attempt.as_mut().expect("it has the vote's round").round.note_young(node);
        }
        if vote == Vote::Granted && now < sight.quarantined_until {
            self.counts.add(Count::Unheard);
            return Vote::Failed;
        }
        vote
    }

    /// When a newcomer comes: often soon after a restart.
    fn arrival(&mut self) -> Instant {
        let is_crash = |it: &&Planned| matches!(it.fault, Fault::Crash { .. });
        let crashes: Vec<_> = self.faults.iter().filter(is_crash).map(|it| it.at).collect();
        if crashes.is_empty() || self.dice.chance(300) {
            return self.dice.below(self.scenario.horizon / 4 * 3);
        }
        self.dice.pick(&crashes) + self.dice.of_any_size(4 * MS, self.scenario.ttl_ns())
    }

    /// A client that connects for the first time in the middle of the run.
    pub(crate) fn expect_newcomer(&mut self, client: usize) {
        self.counts.add(Count::Newcomers);
        let nodes = self.scenario.nodes;
        let clock = Scenario::clock(&mut self.dice);
        let wall = self.scenario.fencing.wall(&mut self.dice);
        let links = (0..nodes).map(|_| Link::default()).collect();
        self.clients.push(Client::new(clock, wall, links));
        let at = self.arrival();
        for node in 0..nodes {
            self.queue.push(at, Event::Connect { client: small(client), node: small(node) });
        }
        let comes = self.clients[client].clock.time(at);
        self.think_from(client, comes);
    }
}
