//! A client's task: acquires, holds, releases, again and again (`src/driver.rs` of the library).

use crate::clock::{Clock, Instant, MS};
use crate::clocks::Worth;
use crate::counts::Count;
use crate::event::Event;
use crate::fencing::Wall;
use crate::holding::Holding;
use crate::link::{Claim, Deed, Link, Order};
use crate::mind::Mind;
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::{
    Acquisition, Next, NodeId, NodeSet, Outcome, Quorum, Refusal, RetryPolicy, Round, Time, Vote,
};
use crate::trace::note;
use crate::world::{World, index, small, word};
use std::time::Duration;

/// What a round gets on top of its time, and how late a timer must be to add more, as in the library.
const LAST_LOOK: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_millis(10);
const PUNCTUAL: Duration = Duration::from_millis(5);

/// What the task does, and what its timer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Thinking,
    /// Not all nodes were met yet.
    Settling,
    /// T1 was read, and nothing is sent yet.
    Sending,
    Open,
    Grace,
    Judging,
    Resting,
    Working,
    Done,
}

/// One round of acquire.
pub(crate) struct Attempt {
    pub(crate) id: u32,
    pub(crate) claim: u32,
    pub(crate) round: Round,
    pub(crate) t1: Time,
    /// When that was, in true time.
    pub(crate) began: Instant,
    pub(crate) close_at: Time,
    /// When it looks next whether its time is over.
    looks_at: Time,
    pub(crate) first_reply: Option<Time>,
    /// Where counters stand, as nodes have told that granted.
    pub(crate) numbers: Vec<(NodeId, u64)>,
}

pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) wall: Wall,
    /// The highest number that it was ever answered.
    pub(crate) seen: u64,
    pub(crate) links: Vec<Link>,
    pub(crate) mind: Mind,
    pub(crate) is_stopped: bool,
    pub(crate) stopped_at: Instant,
    /// What happened while it was stopped.
    pub(crate) backlog: Vec<Event>,
    pub(crate) task: Task,
    pub(crate) turn: u32,
    pub(crate) acquisition: Option<Acquisition>,
    /// When the acquire has to end.
    pub(crate) deadline: Time,
    pub(crate) attempt: Option<Attempt>,
    /// The last attempt that was given up.
    pub(crate) given_up: Option<Attempt>,
    pub(crate) holding: Option<Holding>,
    /// The last lease, after its end.
    pub(crate) past: Option<Holding>,
    /// The last release, and its round.
    pub(crate) release: Option<(u32, Round)>,
    /// Since when it has been waiting for the lock.
    pub(crate) waiting_since: Instant,
}

impl Client {
    pub(crate) fn new(clock: Clock, wall: Wall, links: Vec<Link>, mind: Mind) -> Self {
        Self {
            clock,
            wall,
            seen: 0,
            links,
            mind,
            is_stopped: false,
            stopped_at: 0,
            backlog: Vec::new(),
            task: Task::Thinking,
            turn: 0,
            acquisition: None,
            deadline: Time::default(),
            attempt: None,
            given_up: None,
            holding: None,
            past: None,
            release: None,
            waiting_since: 0,
        }
    }
}

impl World {
    /// The quorum that clients go by.
    pub(crate) fn quorum(&self) -> Quorum {
        let nodes = self.scenario.nodes;
        let is_halved = self.scenario.has(Mutation::HalfQuorum) && nodes > 2;
        Quorum::majority(if is_halved { nodes - 2 } else { nodes })
    }

    /// Goes on with the task at `at`.
    pub(crate) fn set_task(&mut self, client: usize, task: Task, at: Time) {
        let it = &mut self.clients[client];
        it.task = task;
        it.turn += 1;
        let event = Event::Task { client: small(client), turn: it.turn };
        self.at_local(client, at, event);
    }

    pub(crate) fn handle_task(&mut self, client: usize) {
        match self.clients[client].task {
            Task::Thinking => self.acquire(client),
            Task::Sending => self.send_attempt(client),
            Task::Open => self.handle_timeout(client),
            Task::Grace => {
                if self.goes_on(client) {
                    return;
                }
                let now = self.local(client);
                if let Some(attempt) = &mut self.clients[client].attempt {
                    attempt.round.handle_close(now);
                }
                self.judge(client);
            }
            Task::Judging => self.judge(client),
            Task::Settling | Task::Resting => self.attempt(client),
            Task::Working => self.work(client),
            Task::Done => {}
        }
    }

    /// Thinks of something else for a while.
    pub(crate) fn think(&mut self, client: usize) {
        self.think_from(client, self.local(client));
    }

    pub(crate) fn think_from(&mut self, client: usize, from: Time) {
        let ttl = self.scenario.ttl_ns();
        let naps = !self.is_healed && self.dice.chance(self.scenario.naps);
        let pause = if naps {
            self.dice.of_any_size(ttl / 2, 4 * ttl)
        } else {
            self.dice.of_any_size(ttl / 256, ttl / 2)
        };
        let at = from.after(Duration::from_nanos(pause));
        self.set_task(client, Task::Thinking, at);
    }

    fn acquire(&mut self, client: usize) {
        let now = self.local(client);
        let is_single = !self.is_healed && self.dice.chance(200);
        let (policy, deadline) = if is_single {
            (RetryPolicy::none(), Time::from_nanos(u64::MAX))
        } else {
            let wait = self.scenario.ttl.as_duration() * self.dice.pick(&[1, 8, 16, 80]) / 8;
            (self.scenario.retry.clone(), now.after(wait))
        };
        let timings = (self.scenario.ttl, self.scenario.drift);
        let timeout = self.scenario.node_timeout;
        let schedule = policy.schedule();
        let acquisition = Acquisition::new(self.quorum(), timings, timeout, deadline, schedule)
            .giving_up_early(self.dice.chance(100))
            .fenced(self.scenario.fencing.is_on);
        self.clients[client].acquisition = Some(acquisition);
        self.clients[client].deadline = deadline;
        self.clients[client].waiting_since = self.now;
        self.attempt(client);
    }

    /// Starts an attempt, if there is time for it.
    fn attempt(&mut self, client: usize) {
        let now = self.local(client);
        let mind = &self.clients[client].mind;
        if now < mind.settles_by && !mind.memory.is_settled(now) {
            self.counts.add(Count::Settlings);
            self.set_task(client, Task::Settling, self.clients[client].mind.settles_by);
            return;
        }
        let value = self.dice.word();
        let value =
            if self.scenario.has(Mutation::ReusedValue) { client as u64 + 1 } else { value };
        let it = &mut self.clients[client];
        let acquisition = it.acquisition.as_mut().expect("an acquire is under way");
        if let Some(refusal) = acquisition.is_over(now) {
            self.refused(client, refusal);
            return;
        }
        let (round, close_at) = acquisition.begin(now);
        self.rounds += 1;
        self.claims.push(Claim { value, ..Claim::default() });
        let claim = word(self.claims.len() - 1);
        let (id, t1, began, first_reply) = (self.rounds, now, self.now, None);
        let numbers = Vec::new();
        let looks_at = close_at;
        it.attempt =
            Some(Attempt { id, claim, round, t1, began, close_at, looks_at, first_reply, numbers });
        self.counts.add(Count::Attempts);
        // The process may be held up between reading T1 and writing.
        if !self.is_healed && self.dice.chance(20) {
            let pause = self.dice.below(self.scenario.ttl_ns());
            self.set_task(client, Task::Sending, now.after(Duration::from_nanos(pause)));
        } else {
            self.send_attempt(client);
        }
    }

    fn send_attempt(&mut self, client: usize) {
        let it = &self.clients[client];
        let attempt = it.attempt.as_ref().expect("an attempt is under way");
        let close_at = attempt.close_at;
        let deed = Deed::Acquire { ttl: self.scenario.ttl, hint: self.hint(client) };
        let order = Order { claim: attempt.claim, deed, round: attempt.id };
        note!(self, "c{client} attempts {:x}", self.claims[index(order.claim)].value);
        self.open_until(client, close_at);
        self.send_each(client, order);
    }

    /// Waits for votes until then.
    pub(crate) fn open_until(&mut self, client: usize, at: Time) {
        let attempt = self.clients[client].attempt.as_mut().expect("an attempt is under way");
        attempt.looks_at = at;
        self.set_task(client, Task::Open, at);
    }

    /// The round's time is over: a last look at replies that may be there.
    fn handle_timeout(&mut self, client: usize) {
        if self.goes_on(client) {
            return;
        }
        let now = self.local(client);
        let attempt = self.clients[client].attempt.as_ref().expect("an attempt is under way");
        if now < attempt.close_at {
            self.open_until(client, attempt.close_at);
            return;
        }
        let is_late = now.since(attempt.looks_at) > PUNCTUAL;
        let grace = if is_late { GRACE } else { LAST_LOOK };
        self.set_task(client, Task::Grace, now.after(grace));
    }

    /// A node's answer, for whichever round it belongs to.
    pub(crate) fn count_vote(
        &mut self,
        client: usize,
        node: NodeId,
        round: u32,
        (answer, worth): (Answer, Option<Worth>),
    ) {
        if round == 0 {
            return;
        }
        let it = &mut self.clients[client];
        if it.attempt.as_ref().is_some_and(|attempt| attempt.id == round) {
            self.count_grant(client, node, answer, worth);
        } else if let Some((id, release)) = &mut it.release
            && *id == round
        {
            let now = it.clock.time(self.now);
            if release.handle_vote(node, answer.vote, now) == Some(Outcome::Won) {
                self.counts.add(Count::Undone);
            }
        } else if it.given_up.as_ref().is_some_and(|attempt| attempt.id == round) {
            self.count_late_grant(client, node, answer);
        } else {
            let vote = self.weigh_extension(client, node, answer.vote);
            self.count_extended(client, node, round, vote);
        }
    }

    fn count_grant(&mut self, client: usize, node: NodeId, answer: Answer, worth: Option<Worth>) {
        let now = self.local(client);
        let vote = match (answer.vote, self.scenario.mutation) {
            (Vote::Failed, Some(Mutation::FailedIsGranted))
            | (Vote::Denied, Some(Mutation::DeniedIsGranted)) => Vote::Granted,
            (vote, _) => vote,
        };
        let vote = self.weigh(client, node, vote, worth);
        self.note_number(client, node, answer);
        let it = &mut self.clients[client];
        let attempt = it.attempt.as_mut().expect("it has the vote's round");
        attempt.first_reply.get_or_insert(now);
        if let Some(free_in) = answer.free_in.filter(|_| vote == Vote::Denied) {
            attempt.round.note_free_at(now.after(Duration::from_millis(free_in)));
        }
        let is_decided = attempt.round.handle_vote(node, vote, now).is_some();
        let is_waiting = matches!(it.task, Task::Open | Task::Grace);
        match (is_waiting, is_decided) {
            (true, true) => self.hear_decision(client),
            (true, false) => self.wait_for_grants(client),
            (false, _) => {}
        }
    }

    /// The round is decided: the task hears of it, at once or long after.
    pub(crate) fn hear_decision(&mut self, client: usize) {
        let now = self.local(client);
        let wake = if !self.is_healed && self.dice.chance(self.scenario.judged_late) {
            self.counts.add(Count::LateJudged);
            self.dice.of_any_size(MS, self.scenario.longest_ttl())
        } else {
            self.dice.below(100_000)
        };
        self.set_task(client, Task::Judging, now.after(Duration::from_nanos(wake)));
    }

    /// Judges how the attempt stands, and goes on from there.
    fn judge(&mut self, client: usize) {
        let (now, random) = (self.local(client), self.dice.word());
        let it = &mut self.clients[client];
        let attempt = it.attempt.take().expect("an attempt is under way");
        let acquisition = it.acquisition.as_mut().expect("an acquire is under way");
        let next = acquisition.handle_outcome(&attempt.round, now, random);
        let next = self.misjudge(next, &attempt, now);
        let next = self.mistake_token(client, next, &attempt);
        note!(self, "c{client} judges {:?}: {next:?}", attempt.round.outcome());
        match next {
            Next::Lease { valid_until, token } => {
                self.commit(client, &attempt, token);
                self.hold(client, &attempt, valid_until);
            }
            Next::Retry { at } => {
                self.give_up(client, attempt.claim, attempt.round.granted(), 0);
                self.clients[client].given_up = Some(attempt);
                self.set_task(client, Task::Resting, at);
            }
            Next::Raise { valid_until, token } => self.raise(client, attempt, valid_until, token),
            Next::Refuse { refusal, .. } => {
                self.give_up(client, attempt.claim, attempt.round.granted(), 0);
                self.clients[client].given_up = Some(attempt);
                self.refused(client, refusal);
            }
        }
    }

    /// I5: every node that the claim was written to is told to release it.
    pub(crate) fn give_up(&mut self, client: usize, claim: u32, granted: NodeSet, round: u32) {
        self.claims[index(claim)].is_withdrawn = true;
        let order = Order { claim, deed: Deed::Release, round };
        for node in 0..self.scenario.nodes {
            let is_told = granted.contains(NodeId::new(node));
            if is_told || !self.scenario.has(Mutation::ReleaseToGranters) {
                self.send(client, node, order);
            }
        }
    }

    fn refused(&mut self, client: usize, refusal: Refusal) {
        self.counts.add(match refusal {
            Refusal::Contended => Count::Contended,
            Refusal::NoQuorum => Count::NoQuorum,
            Refusal::Expired => Count::TooLate,
            Refusal::Timeout => Count::Timeout,
        });
        note!(self, "c{client} is refused: {refusal:?}");
        self.clients[client].acquisition = None;
        self.think(client);
    }

    pub(crate) fn hold(&mut self, client: usize, attempt: &Attempt, valid_until: Time) {
        self.counts.add(Count::Wins);
        self.clients[client].acquisition = None;
        let ttl = self.scenario.ttl_ns();
        let work = Duration::from_nanos(if self.is_healed {
            self.dice.below(ttl / 8)
        } else if self.scenario.mode.restarts_groups() {
            // A guard is for the longest leases.
            self.dice.of_any_size(ttl, 4 * ttl)
        } else {
            let most = ttl * self.dice.pick(&[1, 1, 4]);
            self.dice.of_any_size(ttl / 64, most)
        });
        self.begin_lease(client, attempt, valid_until, work);
    }
}
