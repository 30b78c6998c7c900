//! An acquire in the making, and the future that it is.

use crate::clock;
use crate::driver::{Defeat, Wish};
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::protocol::{Refusal, RetryPolicy};
use crate::redlock::Inner;
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
    resource: Box<[u8]>,
    ttl: Duration,
    /// `None` for a single attempt that takes its time.
    wait: Option<Duration>,
    retry: RetryPolicy,
    gives_up_early: bool,
    /// The most time to hold it, if it is to be extended in the background.
    auto_extend: Option<Duration>,
    running: Option<Running>,
}

type Running = BoxFuture<'static, Result<Lease, AcquireError>>;

impl Acquire {
    pub(crate) fn once(client: Arc<Inner>, resource: &[u8]) -> Self {
        let ttl = client.settings.ttl;
        Self {
            client,
            resource: resource.into(),
            ttl,
            wait: None,
            retry: RetryPolicy::none(),
            gives_up_early: false,
            auto_extend: None,
            running: None,
        }
    }

    pub(crate) fn patient(client: Arc<Inner>, resource: &[u8]) -> Self {
        let (wait, retry) = (client.settings.wait, client.settings.retry.clone());
        Self::once(client, resource).wait(wait).retry(retry)
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
    /// tried again until the validity ends; see [`Lease::lost`].
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.auto_extend = Some(max_hold);
        self
    }

    fn start(&self) -> Running {
        let client = self.client.clone();
        let key = [&*client.settings.prefix, &*self.resource].concat().into_boxed_slice();
        let ttl = client.settings.check_ttl(self.ttl);
        let deadline = self.wait.map(|wait| clock::now().after(wait));
        let schedule = self.retry.schedule();
        let (gives_up_early, max_hold) = (self.gives_up_early, self.auto_extend);
        Box::pin(async move {
            let ttl = ttl?;
            match client.driver.win(Wish { key, ttl, deadline, gives_up_early }, schedule).await {
                Ok(win) => Ok(Lease::new(client, win, max_hold.map(|most| (ttl, most)))),
                Err(defeat) => Err(client.explain(defeat)),
            }
        })
    }
}

impl Inner {
    fn explain(&self, defeat: Defeat) -> AcquireError {
        let names = || self.driver.pool.shared().iter().map(|node| node.name.clone());
        let report = |tally: Arc<Tally>| Box::new(tally.report(names()));
        match defeat {
            Defeat::Closed => AcquireError::Closed,
            Defeat::NoRuntime => AcquireError::NoRuntime,
            Defeat::Refused(refusal, Some(tally)) => {
                let report = report(tally);
                match refusal {
                    Refusal::Contended => AcquireError::Contended { report },
                    Refusal::NoQuorum => AcquireError::NoQuorum { report },
                    Refusal::Expired => AcquireError::Expired { report },
                    Refusal::Timeout => AcquireError::Timeout { report: Some(report) },
                }
            }
            Defeat::Refused(_, None) => AcquireError::Timeout { report: None },
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
            .field("resource", &String::from_utf8_lossy(&self.resource))
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}
