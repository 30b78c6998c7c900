//! What a client makes of the times that nodes tell with what they grant.

use crate::clock::{Instant, MS};
use crate::counts::Count;
use crate::event::Event;
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::{ClockSkew, Goal, NodeId, Quorum, Reading, Tenure, Time, Told, Vote};
use crate::scenario::Scenario;
use crate::trace::note;
use crate::world::{World, small};
use std::time::Duration;

/// What a grant is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    written: Time,
    counts_from: Time,
}

/// Steps of several nodes so close to each other are one, to a client with that mutation.
const TOGETHER: Duration = Duration::from_secs(1);

impl Scenario {
    pub(crate) fn clock_skew(&self) -> ClockSkew {
        let term = match self.mutation {
            Some(Mutation::ForgottenOffsets) => self.term() / 16,
            _ => self.term(),
        };
        ClockSkew::new(Quorum::majority(self.nodes), self.drift, term)
    }
}

impl World {
    /// A node has told the time behind what was written then. The reading comes before the votes.
    pub(crate) fn read_clock(
        &mut self,
        client: usize,
        node: usize,
        written: Time,
        answer: Answer,
    ) -> Option<Worth> {
        let shown_us = answer.shown_us?;
        let received = self.local(client);
        let prompt = Duration::from_nanos(2 * self.scenario.weather.delay.1 + MS);
        let link = &mut self.clients[client].links[node];
        if received.since(written) < prompt {
            link.read_at = link.read_at.max(written);
        }
        let reading = Reading { sent: written, shown_us, received };
        let clocks = &mut self.clients[client].mind.clocks;
        let told = clocks.handle_reading(NodeId::new(node), reading);
        note!(self, "c{client} reads n{node}: {reading:?}, {told:?}");
        if let Some(ahead) = told.ahead {
            note!(self, "c{client}: n{node} is ahead by {ahead:?}");
            self.counts.add(Count::StepsSeen);
            if ahead > self.scenario.drift.allowance(self.scenario.ttl) {
                self.check_lease(client);
            }
        }
        let counts_from = self.misread(client, node, reading, told);
        Some(Worth { written, counts_from })
    }

    /// What a client with a mutation makes of it.
    fn misread(&mut self, client: usize, node: usize, reading: Reading, told: Told) -> Time {
        let now = reading.received;
        let late = told.counts_from.since(now);
        let scenario = &self.scenario;
        let mind = &mut self.clients[client].mind;
        if let Some(ahead) = told.ahead {
            mind.steps[node] = Some((now, ahead));
        }
        let is_recent = |(at, _): &(Time, Duration)| now.since(*at) < TOGETHER;
        match scenario.mutation {
            Some(Mutation::FromWriting) => reading.sent.after(late),
            Some(Mutation::LastStep) => {
                let step = mind.steps[node].filter(|(at, _)| now.since(*at) < scenario.term());
                step.map_or(now, |(at, ahead)| now.after(ahead.saturating_sub(now.since(at) / 100)))
            }
            Some(Mutation::SeveralStoodStill)
                if mind.steps.iter().flatten().filter(|step| is_recent(step)).count() > 1 =>
            {
                mind.clocks = scenario.clock_skew();
                mind.steps.fill(None);
                now
            }
            Some(Mutation::Undeferred) => now,
            _ => told.counts_from,
        }
    }

    /// Extends a lease whose keys end too soon, without making it longer.
    fn check_lease(&mut self, client: usize) {
        let now = self.local(client);
        let is_held = |tenure| matches!(tenure, Tenure::Held { .. });
        let holding = self.clients[client].holding.as_ref();
        if !holding.is_some_and(|it| is_held(it.renewal.tenure(now))) {
            return;
        }
        self.counts.add(Count::Checks);
        if let Some(close_at) = self.extend(client, None, false) {
            let round = self.rounds;
            self.at_local(client, close_at, Event::Settle { client: small(client), round });
        }
    }

    /// What a node's vote is worth in a round that makes a lease.
    pub(crate) fn weigh(
        &mut self,
        client: usize,
        node: NodeId,
        vote: Vote,
        worth: Option<Worth>,
    ) -> Vote {
        let now = self.local(client);
        if vote != Vote::Granted {
            return vote;
        }
        if self.clients[client].mind.clocks.fast(node, now).is_some() {
            self.counts.add(Count::FastGrants);
            return Vote::Failed;
        }
        if self.may_have_forgotten(client, node) {
            self.counts.add(Count::Unheard);
            self.check_withheld(client, node);
            return Vote::Failed;
        }
        let attempt = self.clients[client].attempt.as_mut().expect("it has the vote's round");
        let Some(worth) = worth.filter(|worth| worth.counts_from > now) else { return vote };
        if !matches!(attempt.round.goal(), Goal::Acquire { .. }) {
            return vote;
        }
        let ttl = self.scenario.ttl;
        let validity = ttl.as_duration().saturating_sub(self.scenario.drift.allowance(ttl));
        let end = worth.written.after(validity);
        if worth.counts_from < end {
            self.counts.add(Count::Deferred);
            attempt.round.note_counts_from(node, worth.counts_from);
        } else {
            self.counts.add(Count::Barred);
            if !self.scenario.has(Mutation::BarredCount) {
                return Vote::Failed;
            }
        }
        vote
    }

    /// A vote of a node whose clock runs fast does not extend a lease.
    pub(crate) fn weigh_extension(&self, client: usize, node: NodeId, vote: Vote) -> Vote {
        let now = self.local(client);
        let is_fast = self.clients[client].mind.clocks.fast(node, now).is_some();
        if is_fast && vote == Vote::Granted { Vote::Failed } else { vote }
    }

    /// The time of an attempt may be over, or that of grants have come which count later. True if it
    /// goes on.
    pub(crate) fn goes_on(&mut self, client: usize) -> bool {
        let now = self.local(client);
        let it = &mut self.clients[client];
        let deadline = it.deadline;
        let attempt = it.attempt.as_mut().expect("an attempt is under way");
        let Some(due) = attempt.round.due() else { return false };
        let counts_at = if self.scenario.has(Mutation::Unwaited) { due } else { now };
        if attempt.round.handle_time(counts_at).is_some() {
            self.counts.add(Count::Waits);
            self.hear_decision(client);
            return true;
        }
        self.wait_until_due(client, due.min(deadline))
    }

    fn wait_until_due(&mut self, client: usize, at: Time) -> bool {
        let is_ahead = self.local(client) < at;
        if is_ahead {
            self.open_until(client, at);
        }
        is_ahead
    }

    /// Sees to it that an attempt looks when grants begin to count.
    pub(crate) fn wait_for_grants(&mut self, client: usize) {
        let it = &self.clients[client];
        let due = it.attempt.as_ref().and_then(|attempt| attempt.round.due());
        if due.is_some() && self.scenario.has(Mutation::Unwaited) {
            self.open_until(client, self.local(client));
        } else if let Some(due) = due {
            let at = due.min(it.deadline);
            self.wait_until_due(client, at);
        }
    }

    /// True if every client knows of all steps of a node's clock up to now, by a reading that took no longer
    /// than usual: one that goes back and forth between two of them is seen by nobody. Who is connected
    /// and idle reads it every five seconds.
    pub(crate) fn is_known_by_all(&self, node: usize, stepped: Instant) -> bool {
        let idle = Duration::from_secs(6);
        self.clients.iter().all(|it| {
            let link = &it.links[node];
            let now = it.clock.time(self.now);
            let is_idle = link.is_up && link.under_way.is_empty() && !it.is_stopped;
            let is_late = is_idle && now.since(link.last_traffic) > idle;
            link.read_at > it.clock.time(stepped) || is_late || !it.mind.sights[node].is_met
        })
    }
}
