//! A lease: its renewal, repairs, and its end (`src/holding.rs` of the library).

use crate::client::{Attempt, Task};
use crate::clock::Instant;
use crate::counts::Count;
use crate::event::Event;
use crate::link::{Deed, Order};
use crate::mutation::Mutation;
use crate::protocol::{
    Extended, Goal, Loss, NodeId, NodeSet, Outcome, Renewal, Round, Step, Tenure, Time, Ttl, Vote,
};
use crate::trace::note;
use crate::world::{World, index, small};
use std::time::Duration;

pub(crate) struct Holding {
    claim: u32,
    /// The nodes that have granted it, at any time.
    granted: NodeSet,
    pub(crate) renewal: Renewal,
    extensions: Vec<Extension>,
    /// The extension of the upkeep that is under way.
    upkeep: Option<u32>,
    is_watched: bool,
    turn: u32,
    works_until: Time,
    extends_at: Option<Time>,
}

struct Extension {
    id: u32,
    round: Round,
    t1: Time,
    ttl: Ttl,
    /// T1 + ttl: until when the nodes that grant it keep the key.
    until: Time,
    close_at: Time,
    is_upkeep: bool,
    is_settled: bool,
}

impl World {
    pub(crate) fn begin_lease(
        &mut self,
        client: usize,
        attempt: &Attempt,
        valid_until: Time,
        work: Duration,
    ) {
        let now = self.local(client);
        let mut renewal = Renewal::new(self.quorum(), self.scenario.drift, valid_until);
        let is_renewed = self.dice.chance(self.scenario.renewed);
        if is_renewed {
            let most = work * self.dice.pick(&[1, 2, 4]);
            renewal = renewal.kept_up(self.scenario.ttl, attempt.t1, most);
        }
        let by_hand = if self.scenario.mode.restarts_groups() { 700 } else { 300 };
        let extends_at = self.dice.chance(by_hand).then(|| now.after(work / 2));
        let holding = Holding {
            claim: attempt.claim,
            granted: attempt.round.granted(),
            renewal,
            extensions: Vec::new(),
            upkeep: None,
            is_watched: is_renewed || self.dice.chance(500),
            turn: 0,
            works_until: now.after(work),
            extends_at,
        };
        let until = holding.renewal.valid_until(now).unwrap_or(now);
        let (is_watched, looks_at) =
            (holding.is_watched, extends_at.unwrap_or(holding.works_until));
        self.clients[client].holding = Some(holding);
        self.believe(client, until);
        self.check_wait(client);
        self.set_task(client, Task::Working, looks_at);
        if is_watched {
            self.handle_ring(client);
        }
    }

    /// From now on the client believes that it holds until then.
    pub(crate) fn believe(&mut self, client: usize, valid_until: Time) {
        let end = match self.scenario.mutation {
            Some(Mutation::NoEnd) => Instant::MAX,
            _ => self.clients[client].clock.when(valid_until),
        };
        note!(self, "c{client} holds until {end}");
        self.checker.hold(client, self.now, end);
    }

    /// The holder's own work: it extends by hand, or has done and releases.
    pub(crate) fn work(&mut self, client: usize) {
        let ttl = self.scenario.ttl;
        let holding = self.clients[client].holding.as_mut().expect("it works on a lease");
        let works_until = holding.works_until;
        if holding.extends_at.take().is_none() {
            self.end_lease(client);
            return;
        }
        // Also to less than what is left, which must not shorten it; or only to ask whether it is held.
        let is_long = self.scenario.mode.restarts_groups();
        let quarters = if is_long { [0, 4, 8, 8, 8] } else { [0, 1, 2, 4, 8] };
        let asked = ttl.as_duration() * self.dice.pick(&quarters) / 4;
        let asked = Ttl::from_duration(asked).ok();
        if let Some(close_at) = self.extend(client, asked, false) {
            let round = self.rounds;
            self.at_local(client, close_at, Event::Settle { client: small(client), round });
        }
        self.set_task(client, Task::Working, works_until);
    }

    /// Starts an extension to `ttl`, or else a check, if it is still held; returns when to stop waiting
    /// for votes.
    pub(crate) fn extend(
        &mut self,
        client: usize,
        ttl: Option<Ttl>,
        is_upkeep: bool,
    ) -> Option<Time> {
        let (t1, id) = (self.local(client), self.rounds + 1);
        let timeout = t1.after(self.scenario.node_timeout);
        let holding = self.clients[client].holding.as_mut().expect("a lease");
        let (ttl, round) = match ttl {
            Some(ttl) => (ttl, holding.renewal.begin(ttl, t1).ok()?),
            None => holding.renewal.begin_check(t1).ok()?,
        };
        let close_at = match round.goal() {
            Goal::Extend { current, .. } => timeout.min(current),
            _ => timeout,
        };
        self.rounds = id;
        let until = t1.after(ttl.as_duration());
        let is_settled = false;
        let it = Extension { id, round, t1, ttl, until, close_at, is_upkeep, is_settled };
        holding.extensions.push(it);
        if is_upkeep {
            holding.upkeep = Some(id);
        }
        let order = Order { claim: holding.claim, deed: Deed::Extend { until }, round: id };
        self.send_each(client, order);
        Some(close_at)
    }

    /// The lease's alarm: closes the upkeep's extension, asks what is to be done, sets the next.
    pub(crate) fn handle_ring(&mut self, client: usize) {
        let now = self.local(client);
        let Some(holding) = &mut self.clients[client].holding else { return };
        let is_due = |it: &&mut Extension| Some(it.id) == holding.upkeep && now >= it.close_at;
        if let Some(due) = holding.extensions.iter_mut().find(is_due) {
            let (id, is_closed) = (due.id, due.round.handle_close(now).is_some());
            if is_closed {
                self.settle_extension(client, id);
            }
        }
        let Some(holding) = &mut self.clients[client].holding else { return };
        let until = match holding.renewal.step(now) {
            Step::Extend { ttl } => self.extend(client, Some(ttl), true).unwrap_or(now),
            Step::Wait { until } => until,
            Step::Ended(_) if self.scenario.has(Mutation::NoEnd) => return,
            Step::Ended(_) => {
                self.end_lease(client);
                return;
            }
        };
        let holding = self.clients[client].holding.as_ref().expect("it is held");
        let under_way = holding.extensions.iter().find(|it| Some(it.id) == holding.upkeep);
        let until = under_way.map_or(until, |it| it.close_at.min(until));
        self.set_ring(client, until);
    }

    fn set_ring(&mut self, client: usize, at: Time) {
        self.rings += 1;
        let turn = self.rings;
        if let Some(holding) = &mut self.clients[client].holding {
            holding.turn = turn;
            self.at_local(client, at, Event::Ring { client: small(client), turn });
        }
    }

    /// True if this is the alarm that was set last.
    pub(crate) fn is_ringing(&self, client: usize, turn: u32) -> bool {
        self.clients[client].holding.as_ref().is_some_and(|holding| holding.turn == turn)
    }

    /// A node's answer to an extension.
    pub(crate) fn count_extended(&mut self, client: usize, node: NodeId, round: u32, vote: Vote) {
        let now = self.local(client);
        let wake = self.dice.below(100_000);
        let remembers =
            self.scenario.has(Mutation::LastingRepair) || self.scenario.has(Mutation::Revival);
        let it = &mut self.clients[client];
        let past = it.past.as_mut().filter(|_| remembers);
        let Some((holding, extension)) =
            it.holding.as_mut().into_iter().chain(past).find_map(|it| {
                let place = it.extensions.iter().position(|extension| extension.id == round)?;
                Some((&mut it.granted, &mut it.extensions[place]))
            })
        else {
            return;
        };
        if vote == Vote::Granted {
            holding.insert(node);
        }
        let is_decided = extension.round.handle_vote(node, vote, now).is_some();
        let (is_won, is_upkeep) =
            (extension.round.outcome() == Some(Outcome::Won), extension.is_upkeep);
        if self.scenario.has(Mutation::Revival) {
            self.revive(client, round);
        }
        if is_decided && is_upkeep {
            self.settle_extension(client, round);
        } else if is_decided {
            let at = now.after(Duration::from_nanos(wake));
            self.at_local(client, at, Event::Settle { client: small(client), round });
        }
        if is_won && (is_decided || vote == Vote::Missing) {
            self.repair(client, node, round, is_decided);
        }
    }

    /// What a client with that mutation does when an extension comes after the end.
    fn revive(&mut self, client: usize, round: u32) {
        let now = self.local(client);
        let it = &mut self.clients[client];
        let Some(past) = &it.past else { return };
        let Some(extension) = past.extensions.iter().find(|it| it.id == round) else { return };
        let Goal::Extend { proposed, .. } = extension.round.goal() else { return };
        let is_granted = self.scenario.nodes / 2 < extension.round.granted().len();
        if is_granted && now < proposed && matches!(it.task, Task::Thinking | Task::Resting) {
            let mut holding = it.past.take().expect("it was just there");
            holding.renewal = Renewal::new(self.quorum(), self.scenario.drift, proposed);
            self.claims[index(holding.claim)].is_withdrawn = false;
            self.clients[client].holding = Some(holding);
            self.believe(client, proposed);
            self.set_task(client, Task::Working, proposed);
        }
    }

    /// The vote is over, and a majority holds the key: nodes that lost it get it back.
    fn repair(&mut self, client: usize, node: NodeId, round: u32, is_decided: bool) {
        let now = self.local(client);
        let it = &self.clients[client];
        let current = it.holding.as_ref();
        let held = current.filter(|it| matches!(it.renewal.tenure(now), Tenure::Held { .. }));
        let past = it.past.as_ref().filter(|_| self.scenario.has(Mutation::LastingRepair));
        let found = held.into_iter().chain(past).find_map(|holding| {
            let extension = holding.extensions.iter().find(|it| it.id == round)?;
            Some((holding.claim, extension.until, extension.round.missing()))
        });
        let Some((claim, until, missing)) = found else { return };
        let order = Order { claim, deed: Deed::Repair { until }, round: 0 };
        for lost in (0..self.scenario.nodes).map(NodeId::new).filter(|id| missing.contains(*id)) {
            if is_decided || lost == node {
                self.send(client, lost.index(), order);
            }
        }
    }

    /// An extension that the holder asked for: its time is over, or its task hears of its decision.
    pub(crate) fn handle_settle(&mut self, client: usize, round: u32) {
        let now = self.local(client);
        let Some(holding) = &mut self.clients[client].holding else { return };
        if let Some(it) = holding.extensions.iter_mut().find(|it| it.id == round) {
            it.round.handle_close(now);
            self.settle_extension(client, round);
        }
    }

    /// Takes how an extension has ended.
    fn settle_extension(&mut self, client: usize, round: u32) {
        let now = self.local(client);
        let mutation = self.scenario.mutation;
        let Some(holding) = &mut self.clients[client].holding else { return };
        let Some(place) = holding.extensions.iter().position(|it| it.id == round) else { return };
        let it = &mut holding.extensions[place];
        if std::mem::replace(&mut it.is_settled, true) {
            return;
        }
        let (is_upkeep, outcome) = (it.is_upkeep, it.round.outcome());
        let extended = if is_upkeep {
            holding.upkeep = None;
            holding.renewal.handle_upkeep(&it.round, it.t1, now)
        } else {
            holding.renewal.handle_outcome(&it.round, now)
        };
        let mistake = mutation
            .and_then(|mutation| misjudge(mutation, it, extended, now, self.scenario.drift));
        let extended = mistake.map_or(extended, Extended::Until);
        if let Some(until) = mistake {
            let renewal = Renewal::new(self.quorum(), self.scenario.drift, until);
            self.clients[client].holding.as_mut().expect("it is held").renewal = renewal;
        }
        note!(self, "c{client} extension {outcome:?}: {extended:?}");
        match extended {
            Extended::Until(until) => {
                self.counts.add(Count::ExtensionsWon);
                self.believe(client, until);
            }
            Extended::Unchanged(_) => {
                self.counts.add(Count::ExtensionsFailed);
                if is_upkeep {
                    self.set_ring(client, now);
                }
            }
            Extended::Ended(Tenure::Lost(Loss::Expired)) => {
                self.counts.add(Count::ExtensionsTooLate);
                self.end_lease(client);
            }
            Extended::Ended(_) => self.end_lease(client),
        }
    }

    /// The lease has ended, or ends now: it is released everywhere.
    fn end_lease(&mut self, client: usize) {
        let now = self.local(client);
        let mut holding = self.clients[client].holding.take().expect("a lease");
        let was = holding.renewal.release(now);
        note!(self, "c{client} ends: {was:?}");
        self.counts.add(match was {
            Tenure::Held { .. } | Tenure::Released => Count::Released,
            Tenure::Lost(Loss::QuorumLost) => Count::QuorumLost,
            Tenure::Lost(Loss::TakenOver) => Count::TakenOver,
            Tenure::Lost(Loss::MaxHold) => Count::MaxHold,
            Tenure::Lost(_) => Count::Expired,
        });
        if let Tenure::Lost(loss @ (Loss::QuorumLost | Loss::TakenOver)) = was {
            self.check_loss(client, loss);
        }
        self.checker.end(client, self.now);
        self.rounds += 1;
        let round = Round::new(self.quorum(), Goal::Release);
        self.clients[client].release = Some((self.rounds, round));
        let (claim, granted) = (holding.claim, holding.granted);
        self.clients[client].past = Some(holding);
        self.give_up(client, claim, granted, self.rounds);
        if self.scenario.has(Mutation::RenewalAfterRelease) {
            self.renew_in_vain(client);
        }
        self.go_on(client);
    }

    /// What a client with that mutation does after the release.
    pub(crate) fn renew_in_vain(&mut self, client: usize) {
        let (now, ttl) = (self.local(client), self.scenario.ttl.as_duration());
        let Some(past) = &self.clients[client].past else { return };
        let until = now.after(ttl);
        let order = Order { claim: past.claim, deed: Deed::Repair { until }, round: 0 };
        self.send_each(client, order);
        let event = Event::Ring { client: small(client), turn: u32::MAX };
        self.at_local(client, now.after(ttl / 3), event);
    }
}

/// What a client with a mutation takes an extension for.
fn misjudge(
    mutation: Mutation,
    it: &Extension,
    extended: Extended,
    now: Time,
    drift: crate::protocol::Drift,
) -> Option<Time> {
    let Goal::Extend { proposed, .. } = it.round.goal() else { return None };
    match (mutation, extended) {
        (Mutation::FailedExtensionCounts, Extended::Unchanged(until)) => Some(until.max(proposed)),
        (Mutation::ExtendedFromReply, Extended::Until(until)) => {
            let validity = it.ttl.as_duration().saturating_sub(drift.allowance(it.ttl));
            Some(until.max(now.after(validity)))
        }
        _ => None,
    }
}
