//! What is asked for, and what comes of it.

use super::adoption::Adoption;
use super::waiter::AttemptGuard;
use crate::error::ClientError;
use crate::node::{Ballot, Claim, NoRuntime, QueuedCommand, Unready};
use crate::observe::Tag;
use crate::protocol::{Refusal, Time, Ttl};
use crate::round::Tally;
use crate::wire::{CounterKeys, Keys, Wants};
use std::sync::Arc;
use std::time::Duration;

/// What is to be acquired, and how long to try.
pub(crate) struct AcquireRequest {
    pub(crate) keys: Keys,
    pub(crate) ttl: Ttl,
    /// What to tell those who ask who holds it.
    pub(crate) metadata: Option<Arc<str>>,
    /// The lock to adopt; `None` to acquire a free one.
    pub(crate) adopts: Option<Adoption>,
    /// The counters beside the keys, if a fencing token is wanted.
    pub(crate) counters: Option<Arc<CounterKeys>>,
    /// True if it has one attempt only: who is in the way is asked at once.
    pub(crate) is_last_chance: bool,
    /// For how long it is kept up at most, if it is: then it is told when the lock is touched, also when nobody waits
    /// for it.
    pub(crate) max_hold: Option<Duration>,
    /// The end of all waiting; `None` to let one attempt take its time.
    pub(crate) deadline: Option<Time>,
    /// True to give up as soon as the holder is seen to outlast the deadline.
    pub(crate) gives_up_early: bool,
    /// What events call it.
    pub(crate) tag: Tag,
    /// How much of each key is the prefix.
    pub(crate) prefix: usize,
}

/// A lock that is held.
pub(crate) struct Acquired {
    pub(crate) guard: AttemptGuard,
    pub(crate) valid_until: Time,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tag: Tag,
}

/// Why there is none.
pub(crate) enum AcquireFailure {
    /// What the nodes said in the round that is the reason, if there was one.
    Refused(Refusal, Option<Arc<Tally>>),
    /// The future was not polled, and what its attempt may have won was given up.
    NotPolled(Arc<Tally>),
    /// So many other rounds of this client were under way that there was no room for one more.
    Overloaded(Option<Arc<Tally>>),
    Closed,
    NoRuntime(NoRuntime),
}

impl From<Unready> for AcquireFailure {
    fn from(reason: Unready) -> Self {
        match reason {
            Unready::Closed => Self::Closed,
            Unready::NoRuntime(reason) => Self::NoRuntime(reason),
        }
    }
}

impl From<Unready> for ClientError {
    fn from(reason: Unready) -> Self {
        match reason {
            Unready::Closed => Self::Closed,
            Unready::NoRuntime(reason) => reason.into(),
        }
    }
}

impl AcquireRequest {
    /// The command that this is to each node.
    pub(super) fn command(
        &self,
        claim: Arc<Claim>,
        is_repeated: bool,
        ballot: Ballot,
    ) -> QueuedCommand {
        // Who waits is told when the lock is free, and who keeps it when it is touched. Who holds it
        // is not asked where most find it free.
        let wants = match self.deadline {
            Some(_) if is_repeated || self.is_last_chance => Wants::WatchAndHolder,
            Some(_) => Wants::Watch,
            None if self.max_hold.is_some() => Wants::Watch,
            None => Wants::Nothing,
        };
        match &self.adopts {
            None => QueuedCommand::acquire(claim, self.ttl, wants, ballot),
            Some(Adoption { value, .. }) => {
                QueuedCommand::adopt(claim, self.ttl, value.clone(), ballot)
            }
        }
    }
}
