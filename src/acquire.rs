//! An acquire in the making, and the future that it is.

use crate::clock;
use crate::driver::{Defeat, Wish};
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::node::{Keys, Value};
use crate::protocol::{Refusal, RetryPolicy, Time};
use crate::redlock::Inner;
use crate::settings::check_metadata;
use crate::tally::Tally;
use futures::future::BoxFuture;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// An acquire with its settings. It is a future: `.await` it, spawn it, or race it in `select!`.
/// It does nothing before it is polled; the settings count from then, and so does the wait bound.
///
/// # Cancel safety
/// If it is dropped, at whatever point, every node that may have set the key is told to release it,
/// also one that hangs at the time and resumes later.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    client: Arc<Inner>,
    target: Target,
    ttl: Duration,
    /// `None` for a single attempt that takes its time.
    wait: Option<Duration>,
    retry: RetryPolicy,
    gives_up_early: bool,
    /// The most time to hold it, if it is to be extended in the background.
    auto_extend: Option<Duration>,
    metadata: Option<Arc<str>>,
    is_fenced: bool,
    running: Option<Running>,
}

/// What is to be locked.
#[derive(Clone)]
enum Target {
    One(Box<[u8]>),
    All(Vec<Box<[u8]>>),
    /// What this value stands for.
    HandedOver(Box<[u8]>, Arc<Value>),
}

/// The most resources of one lease: a node does nothing else while it looks at them.
const MOST_RESOURCES: usize = 1_000;

type Running = BoxFuture<'static, Result<Lease, AcquireError>>;

impl Acquire {
    fn new(client: Arc<Inner>, target: Target) -> Self {
        let (ttl, metadata) = (client.settings.ttl, client.settings.metadata.clone());
        let is_fenced = client.settings.is_fenced;
        Self {
            client,
            target,
            ttl,
            wait: None,
            retry: RetryPolicy::none(),
            gives_up_early: false,
            auto_extend: None,
            metadata,
            is_fenced,
            running: None,
        }
    }

    pub(crate) fn one(client: Arc<Inner>, resource: &[u8]) -> Self {
        Self::new(client, Target::One(resource.into()))
    }

    pub(crate) fn all<I>(client: Arc<Inner>, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let resources = resources.into_iter().map(|resource| resource.as_ref().into());
        Self::new(client, Target::All(resources.collect()))
    }

    pub(crate) fn handed_over(client: Arc<Inner>, resource: &[u8], value: &str) -> Self {
        let value = Arc::new(Value::of(value.as_bytes()));
        Self::new(client, Target::HandedOver(resource.into(), value))
    }

    /// Waits and tries again as the client's settings say.
    pub(crate) fn patient(self) -> Self {
        let (wait, retry) = (self.client.settings.wait, self.client.settings.retry.clone());
        self.wait(wait).retry(retry)
    }

    /// How long the nodes keep the lock, in place of the client's [`ttl`](crate::Builder::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to try in all, in place of the client's [`wait`](crate::Builder::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// When to try again, in place of the client's [`retry`](crate::Builder::retry).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// At most so many attempts, within the wait bound.
    ///
    /// An attempt is made when there is reason to believe that the lock is free, and else as the
    /// [retry policy](Self::retry) says.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retry = self.retry.limit(attempts.saturating_sub(1));
        self
    }

    /// Gives up at once when the holder's remaining ttl already exceeds the time left to wait. It
    /// could still be released earlier: that chance is given up too.
    pub fn give_up_early(mut self) -> Self {
        self.gives_up_early = true;
        self
    }

    /// Extends the lease in the background, each time a third of its validity has passed, until it
    /// is released or dropped, or has been held for `max_hold`: then it is lost, so that a holder
    /// that hangs does not keep the lock for ever.
    ///
    /// Nodes that lost the key get it back while a majority has it. When extensions fail they are
    /// tried again until the validity ends; see [`lost`](crate::LeaseRef::lost).
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.auto_extend = Some(max_hold);
        self
    }

    /// What is told to those who ask [who holds the lock](crate::Redlock::status), in place of the
    /// client's [`metadata`](crate::Builder::metadata). It stands in the value under the key, and
    /// everybody who can read the key can read it. At most 4096 bytes.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = Some(metadata.into().into());
        self
    }

    /// Gives the lease a [fencing token](crate::LeaseRef::token): a number that is higher than that of
    /// every lease that ended before, for resources that can refuse who comes too late.
    ///
    /// Each node that grants draws a number from a counter of the resource. If a quorum draws the same
    /// one, as a rule, the token costs no round trip; if not, a second one, for which the nodes have
    /// another node timeout. With [`acquire_all`](crate::Redlock::acquire_all) the one token of the
    /// lease is ordered against every lease that has one of its resources. Leases without a token do
    /// not count: use it for all leases of a resource, or for none.
    pub fn fenced(mut self) -> Self {
        self.is_fenced = true;
        self
    }

    fn start(&self) -> Running {
        let client = self.client.clone();
        let is_adoption = matches!(self.target, Target::HandedOver(..));
        // What was handed over is there or not: waiting does not help.
        let wait = self.wait.filter(|_| !is_adoption);
        let schedule =
            if is_adoption { RetryPolicy::none().schedule() } else { self.retry.schedule() };
        let deadline = wait.map(|wait| clock::now().after(wait));
        let wish = self.wish(deadline);
        let max_hold = self.auto_extend;
        Box::pin(async move {
            let wish = wish?;
            let (ttl, keys) = (wish.ttl, wish.keys.clone());
            match client.driver.win(wish, schedule).await {
                Ok(win) => Lease::new(&client, win, max_hold.map(|most| (ttl, most)))
                    .ok_or(AcquireError::Closed),
                Err(defeat) if is_adoption => Err(client.explain(defeat, &keys).of_adoption()),
                Err(defeat) => Err(client.explain(defeat, &keys)),
            }
        })
    }

    fn wish(&self, deadline: Option<Time>) -> Result<Wish, ConfigError> {
        let settings = &self.client.settings;
        let (keys, adopts) = match &self.target {
            Target::One(resource) => (Keys::one(settings.key(resource)), None),
            Target::HandedOver(resource, value) => {
                (Keys::one(settings.key(resource)), Some(value.clone()))
            }
            Target::All(resources) => {
                let keys = resources.iter().map(|resource| settings.key(resource)).collect();
                (Keys::all(keys).ok_or(ConfigError::NoResources)?, None)
            }
        };
        if keys.len() > MOST_RESOURCES {
            let (given, most) = (keys.len(), MOST_RESOURCES);
            return Err(ConfigError::TooManyResources { given, most });
        }
        check_metadata(self.metadata.as_deref())?;
        Ok(Wish {
            keys,
            ttl: settings.check_ttl(self.ttl)?,
            metadata: self.metadata.clone(),
            adopts,
            token_ttl: self.is_fenced.then_some(settings.token_ttl),
            is_watched: self.auto_extend.is_some(),
            deadline,
            gives_up_early: self.gives_up_early,
        })
    }
}

impl Inner {
    fn explain(&self, defeat: Defeat, keys: &Keys) -> AcquireError {
        let names = || self.driver.pool.shared().iter().map(|node| node.name.clone());
        let report = |tally: Arc<Tally>| Box::new(tally.report(names()));
        match defeat {
            Defeat::Closed => AcquireError::Closed,
            Defeat::NoRuntime => AcquireError::NoRuntime,
            Defeat::Refused(refusal, Some(tally)) => {
                let report = report(tally);
                match refusal {
                    Refusal::Contended => {
                        let held_here = keys.iter().any(|key| self.roster.holds(key));
                        AcquireError::Contended { report, held_here }
                    }
                    Refusal::NoQuorum => AcquireError::NoQuorum { report },
                    Refusal::Expired => AcquireError::Expired { report },
                    Refusal::Timeout => AcquireError::Timeout { report: Some(report) },
                }
            }
            Defeat::Refused(_, None) => AcquireError::Timeout { report: None },
        }
    }
}

impl AcquireError {
    /// The same, if it was an adoption.
    fn of_adoption(self) -> Self {
        match self {
            Self::Contended { report, .. } => Self::NotHeld { report },
            other => other,
        }
    }
}

impl Future for Acquire {
    type Output = Result<Lease, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.running.is_none() {
            self.running = Some(self.start());
        }
        let running = self.running.as_mut().expect("started above");
        running.as_mut().poll(cx)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("target", &self.target)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Names what is to be locked, and no value.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(resource) | Self::HandedOver(resource, _) => {
                write!(f, "{:?}", String::from_utf8_lossy(resource))
            }
            Self::All(resources) => f
                .debug_list()
                .entries(resources.iter().map(|one| String::from_utf8_lossy(one)))
                .finish(),
        }
    }
}
