//! The settings of one acquire, and the future that runs it.

use super::inner::Inner;
use super::lock_options::{LockOptions, lock_option_setters};
use super::observed::AcquireWatch;
use super::settings::check_value;
use crate::coordinator::AcquireRequest;
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::observe::Tag;
use crate::protocol::{RetryPolicy, Time};
use crate::wire::{Key, Keys, Value};
use futures::future::BoxFuture;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Future that acquires a lock. Its methods set the options of this acquire.
///
/// Await it, spawn it, or use it in `select!`. The acquire starts when the future is first polled, and its [wait
/// time](Self::wait) is measured from that moment. The output is the [`Lease`], or an [`AcquireError`].
///
/// # Cancel safety
/// The future can be dropped at any time. Every node that may have set the key then receives a release. This includes a
/// node that is unresponsive at that time and resumes later.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    client: Arc<Inner>,
    target: Target,
    options: LockOptions,
    /// `None` before the first poll.
    running: Option<BoxFuture<'static, Result<Lease, AcquireError>>>,
}

#[derive(Clone)]
enum Target {
    One(Key),
    All(Vec<Key>),
    /// Adoption of the lock with this value.
    HandedOver(Key, Arc<Value>),
}

impl Acquire {
    fn new(client: Arc<Inner>, target: Target) -> Self {
        let options = client.settings.lock.clone();
        Self { client, target, options, running: None }
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

    /// Makes a single attempt, without a limit of its time.
    pub(crate) fn once(mut self) -> Self {
        (self.options.wait, self.options.retry) = (None, RetryPolicy::none());
        self
    }

    lock_option_setters!();

    #[cfg(test)]
    pub(super) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Renews the lease while it is held, within a limit that was set before.
    pub(crate) fn renewed(mut self) -> Self {
        self.options.auto_extend.get_or_insert(Duration::MAX);
        self
    }

    fn start(&self) -> BoxFuture<'static, Result<Lease, AcquireError>> {
        let client = self.client.clone();
        let is_adoption = matches!(self.target, Target::HandedOver(..));
        // An adoption cannot succeed later: waiting does not help.
        let LockOptions { wait, ref retry, .. } = self.options;
        // Retries need a limit: a single attempt that was given a retry policy uses the client's.
        let wait = wait.or_else(|| self.client.settings.lock.wait.filter(|_| retry.retries()));
        let wait = wait.filter(|_| !is_adoption);
        let deadline = wait.map(|wait| client.backing.clock().now().after(wait));
        let submitted = self.request(deadline).map(|mut request| {
            let watch = AcquireWatch::start(client, &mut request, wait);
            let ttl = request.ttl;
            let acquiring = watch.client.driver.acquire(request);
            (watch, acquiring, ttl)
        });
        let margin = self.options.stop_before;
        // The request is not part of the future: that would make it several times as large.
        Box::pin(async move {
            let (watch, acquiring, ttl) = submitted?;
            let ended = watch.client.obtain(acquiring, &watch.keys, ttl, watch.tag).await;
            let ended = match ended {
                Ok(lease) => Ok(lease.stopping_at(margin)),
                Err(error) if is_adoption => Err(error.of_adoption()),
                Err(error) => Err(error),
            };
            watch.finish(&ended);
            ended
        })
    }

    fn request(&self, deadline: Option<Time>) -> Result<AcquireRequest, ConfigError> {
        let settings = &self.client.settings;
        let (keys, adopts) = match &self.target {
            Target::One(resource) => (Keys::one(settings.key(resource.clone())?), None),
            Target::HandedOver(resource, value) => {
                check_value(value)?;
                let (key, value) = (settings.key(resource.clone())?, value.clone());
                (Keys::one(key), Some(value))
            }
            Target::All(resources) => (settings.keys(resources)?, None),
        };
        let options = &self.options;
        let ttl = options.check(&settings.limits)?;
        let counters = options.is_fenced.then(|| settings.counters(&keys)).transpose()?;
        Ok(AcquireRequest {
            keys,
            ttl,
            metadata: options.metadata.clone(),
            schedule: if adopts.is_some() { RetryPolicy::none() } else { options.retry.clone() }
                .schedule(),
            adopts,
            counters,
            has_one_attempt: !options.retry.retries(),
            max_hold: options.auto_extend,
            at_least: options.at_least,
            deadline,
            gives_up_early: options.gives_up_early,
            tag: Tag { id: 0, class: options.class },
        })
    }
}

impl Future for Acquire {
    type Output = Result<Lease, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let running = self.running.take().unwrap_or_else(|| self.start());
        self.running.insert(running).as_mut().poll(cx)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Shows the resources, but no value.
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

impl AcquireError {
    /// For an adoption, contention means that the key no longer has the value to adopt.
    fn of_adoption(self) -> Self {
        match self {
            Self::Contended { report, .. } => Self::NotHeld { report },
            other => other,
        }
    }
}
