//! A client's side of fencing tokens: hints by its wall clock, and the round that confirms.

use crate::client::Attempt;
use crate::clock::Instant;
use crate::counts::Count;
use crate::dice::Dice;
use crate::ledger::Commit;
use crate::link::{Deed, Order};
use crate::mode::{Hint, Mode};
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::{Goal, Next, NodeId, NodeSet, Time, hint};
use crate::scenario::Scenario;
use crate::trace::note;
use crate::world::{World, index};

const US_OF_S: u64 = 1_000_000;

/// When runs begin, by a wall clock that is right: microseconds since 1970.
const START_US: u64 = 1_700_000_000 * US_OF_S;

/// What a run does about tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fencing {
    /// Every acquire asks for a token.
    pub(crate) is_on: bool,
    /// The run is about tokens, and nothing else.
    pub(crate) is_looked_at: bool,
    hints: bool,
    /// Clients' wall clocks are off by as much, either way; and are set by as much.
    skew_us: u64,
    pub(crate) wall_jump_us: u64,
    /// Counters begin with numbers below this.
    first_numbers: u64,
    /// Of a thousand commands, before how many the node's key is gone.
    pub(crate) fades: u64,
}

impl Fencing {
    pub(crate) fn draw(mode: Mode, dice: &mut Dice) -> Self {
        let off = Self {
            is_on: false,
            is_looked_at: false,
            hints: false,
            skew_us: 0,
            wall_jump_us: 0,
            first_numbers: 0,
            fades: 0,
        };
        match mode {
            Mode::Tokens => Self {
                is_on: true,
                is_looked_at: true,
                hints: dice.chance(500),
                skew_us: dice.pick(&[0, 5_000, 5 * US_OF_S, 3_600 * US_OF_S]),
                wall_jump_us: dice.pick(&[0, 10_000, 10 * US_OF_S, 3_600 * US_OF_S]),
                first_numbers: dice.pick(&[0, 5, 1_000]),
                fades: dice.pick(&[0, 10, 50, 200]),
            },
            Mode::Wiped(wiped) => Self {
                is_on: true,
                is_looked_at: true,
                hints: wiped.hint != Hint::None,
                skew_us: match wiped.hint {
                    Hint::None => 0,
                    Hint::Within(ms) => ms * 1_000 / 2,
                },
                ..off
            },
            Mode::Guarded(_) | Mode::Stepped(_) => {
                Self { is_on: dice.chance(500), hints: dice.chance(500), ..off }
            }
            _ => off,
        }
    }

    pub(crate) fn first_number(&self, dice: &mut Dice) -> u64 {
        if self.first_numbers > 0 { dice.below(self.first_numbers) } else { 0 }
    }

    pub(crate) fn wall(&self, dice: &mut Dice) -> Wall {
        let ahead = if self.skew_us > 0 { dice.below(2 * self.skew_us) } else { 0 };
        Wall { shown_us: START_US - self.skew_us + ahead }
    }
}

/// A client's wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    /// What it would have shown when the run began.
    shown_us: u64,
}

impl Wall {
    fn read_us(self, now: Instant) -> u64 {
        self.shown_us + now / 1_000
    }

    pub(crate) fn jump(&mut self, by_us: i64) {
        self.shown_us = self.shown_us.saturating_add_signed(by_us);
    }
}

impl Scenario {
    /// True if clients take any number that was answered for a confirmation.
    fn mistakes_numbers(&self) -> bool {
        matches!(
            self.mutation,
            Some(
                Mutation::PlainMax
                    | Mutation::LowestNumber
                    | Mutation::EarlyToken
                    | Mutation::HigherConfirms
            )
        )
    }
}

impl World {
    /// The number to which a client asks all counters to go.
    pub(crate) fn hint(&self, client: usize) -> u64 {
        let it = &self.clients[client];
        let fencing = &self.scenario.fencing;
        if fencing.is_on && fencing.hints { hint(it.seen, it.wall.read_us(self.now)) } else { 0 }
    }

    /// Takes down where a node's counter stands, before its vote.
    pub(crate) fn note_number(&mut self, client: usize, node: NodeId, answer: Answer) {
        let confirms = self.scenario.has(Mutation::HigherConfirms);
        let Some(number) = answer.number.filter(|_| self.scenario.fencing.is_on) else { return };
        let attempt = self.clients[client].attempt.as_mut().expect("it has the vote's round");
        attempt.numbers.push((node, number));
        let number = match attempt.round.goal() {
            Goal::Raise { token, .. } if confirms => token,
            _ => number,
        };
        attempt.round.note_number(node, number);
    }

    /// The round that confirms `token`: behind the acquire, on all nodes.
    pub(crate) fn raise(
        &mut self,
        client: usize,
        mut attempt: Attempt,
        valid_until: Time,
        token: u64,
    ) {
        self.counts.add(Count::Raises);
        self.rounds += 1;
        let now = self.local(client);
        let it = &mut self.clients[client];
        let acquisition = it.acquisition.as_mut().expect("an acquire is under way");
        (attempt.round, attempt.close_at) = acquisition.begin_raise(valid_until, token, now);
        attempt.id = self.rounds;
        attempt.numbers.clear();
        let (claim, round, close_at) = (attempt.claim, attempt.id, attempt.close_at);
        it.attempt = Some(attempt);
        self.open_until(client, close_at);
        if self.scenario.has(Mutation::EarlyRepair) {
            let until = now.after(self.scenario.ttl.as_duration());
            self.send_each(client, Order { claim, deed: Deed::Repair { until }, round: 0 });
        }
        self.send_each(client, Order { claim, deed: Deed::Raise { token }, round });
    }

    /// A lease comes to life; its token is committed.
    pub(crate) fn commit(&mut self, client: usize, attempt: &Attempt, token: Option<u64>) {
        let Some(token) = token else { return };
        let is_at_once = matches!(attempt.round.goal(), Goal::Acquire { .. });
        self.counts.add(if is_at_once { Count::Committed } else { Count::Confirmed });
        note!(self, "c{client} has token {token}");
        self.claims[index(attempt.claim)].token = token;
        let granted = attempt.round.granted();
        let is_mistaken = self.scenario.mistakes_numbers();
        let confirmed = |(node, number): &&(NodeId, u64)| {
            granted.contains(*node) && (*number == token || is_mistaken)
        };
        let nodes: NodeSet = attempt.numbers.iter().filter(confirmed).map(|it| it.0).collect();
        let (claim, began, returned) = (attempt.claim, attempt.began, self.now);
        let commit = Commit { client, claim, token, nodes, began, returned };
        if let Some(what) = self.ledger.commit(commit) {
            self.checker.violation.get_or_insert(what);
        }
    }

    /// What a client with a mutation takes for its token.
    pub(crate) fn mistake_token(&mut self, client: usize, next: Next, attempt: &Attempt) -> Next {
        let Goal::Acquire { .. } = attempt.round.goal() else { return next };
        let (Next::Raise { valid_until, token } | Next::Lease { valid_until, token: Some(token) }) =
            next
        else {
            return next;
        };
        let granted = attempt.round.granted();
        let numbers = attempt.numbers.iter().filter(|(node, _)| granted.contains(*node));
        let numbers = numbers.map(|(_, number)| *number);
        let token = match self.scenario.mutation {
            Some(Mutation::PlainMax) => numbers.max(),
            Some(Mutation::LowestNumber) => numbers.min(),
            Some(Mutation::EarlyToken) => {
                let deed = Deed::Raise { token };
                self.send_each(client, Order { claim: attempt.claim, deed, round: 0 });
                Some(token)
            }
            _ => return next,
        };
        Next::Lease { valid_until, token }
    }
}
