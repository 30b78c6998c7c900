//! Checks of waiters whose lock is free or becomes free. The waiters are notified by pushes, polled
//! rarely, or queued behind a waiter that is not polled.

use crate::clock::{Instant, MS, S};
use crate::process::millis;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::{Acquire, RetryPolicy};
use std::pin::Pin;
use std::time::Duration;

impl Worker {
    pub(super) async fn acquire_rarely_polled(self, every: Instant, waits: bool) {
        let own = self.own_name(0);
        let begun = self.now();
        let acquire = if waits {
            self.redlock.acquire(&own).wait(millis(4 * self.times.ttl_ms))
        } else {
            self.redlock.try_acquire(&own)
        };
        let won = self.rarely_polled(every, acquire).await;
        self.inspect(&won);
        // A single attempt fails if this process reads the replies only after the node timeout.
        let may_fail = self.stalled_since(begun) > 0 || !waits && !self.is_prompt;
        if !may_fail {
            self.checker.state().check(Rule::Patient, won.is_ok(), || {
                let (process, error) = (self.process, won.as_ref().err());
                format!("p{process} is polled every {} ms: {error:?}", every / MS)
            });
        }
        match won {
            Ok(lease) => drop(lease.release().await),
            Err(error) => self.log(format_args!("refused: {error}")),
        }
    }

    /// Checks that the nodes notify a waiter with a long retry pause, so that it acquires the
    /// released lock immediately.
    pub(super) async fn expect_push(self, after: Instant) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        let (_, client) = self.another_client();
        let mut waiter = Box::pin(self.with_patience(client.acquire(&own)));
        if self.within(after, waiter.as_mut()).await.is_some() {
            return;
        }
        let begun = self.now();
        drop(lease.release().await);
        self.expect_acquired(&own, begun, waiter).await;
        drop(client.close().await);
    }

    /// Checks that an acquire of several locks is notified of each release, regardless of which
    /// node reported which conflict.
    pub(super) async fn expect_push_of_each(self, after: Instant, gap: Instant) {
        let names = [0, 1].map(|which| self.own_name(which));
        let Some(first) = self.own_lease(&names[0]).await else { return };
        let Some(second) = self.own_lease(&names[1]).await else { return };
        let (_, client) = self.another_client();
        let mut waiter = Box::pin(self.with_patience(client.acquire_all(&names)));
        if self.within(after, waiter.as_mut()).await.is_some() {
            return;
        }
        drop(first.release().await);
        if self.within(gap, waiter.as_mut()).await.is_some() {
            return;
        }
        let begun = self.now();
        drop(second.release().await);
        self.expect_acquired(&names.join(" and "), begun, waiter).await;
        drop(client.close().await);
    }

    /// Checks that a waiter acquires the lock even though an earlier waiter was notified, not
    /// polled, and dropped.
    pub(super) async fn expect_push_of_next(
        self,
        after: Instant,
        leaves: Instant,
        is_skipped: bool,
    ) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        let (_, client) = self.another_client();
        // Short retry pauses keep the first waiter active.
        let restless = RetryPolicy::jittered(millis(20)..millis(40));
        let wait = millis(self.times.ttl_ms);
        let mut first = Box::pin(client.acquire(&own).wait(wait).retry(restless));
        if self.within(after, first.as_mut()).await.is_some() {
            return;
        }
        let mut waiter = Box::pin(self.with_patience(client.acquire(&own)));
        let unpolled = if is_skipped { 300 * MS } else { MS };
        let early = self.within(unpolled, waiter.as_mut()).await.is_some();
        if early || is_skipped && self.within(MS / 2, first.as_mut()).await.is_some() {
            return;
        }
        let begun = self.now();
        drop(lease.release().await);
        let early = self.within(leaves, waiter.as_mut()).await.is_some();
        drop(first);
        if !early {
            self.expect_acquired(&own, begun, waiter).await;
        }
        drop(client.close().await);
    }

    /// Configures an acquire with retry pauses of several seconds. Only a notification can make it
    /// retry sooner.
    fn with_patience(&self, acquire: Acquire) -> Acquire {
        let pause = RetryPolicy::jittered(millis(3_000)..millis(4_000));
        acquire.wait(millis(self.times.ttl_ms)).retry(pause)
    }

    async fn expect_acquired(&self, own: &str, begun: Instant, waiter: Pin<Box<Acquire>>) {
        // A waiter that is not polled is skipped after 100 ms.
        let bound = S + self.slack;
        let acquired = self.within(bound, waiter).await;
        let pushes = self.shared.lock().pushes;
        if pushes && self.was_prompt_since(begun) {
            self.checker.state().check(Rule::Patient, acquired.is_some(), || {
                format!("p{}: {own} has been free for {} ms", self.process, bound / MS)
            });
        }
    }

    /// Checks that an acquire returns at the first poll after its timeout, or at the poll after
    /// that if it makes a final attempt.
    pub(super) async fn wait_until_timeout(self, every: Instant, wait: Instant) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        let acquire = self.redlock.acquire(&own).wait(Duration::from_nanos(wait));
        let rarely_polled = self.rarely_polled(every, acquire);
        drop(self.timed("an acquire that times out", wait + 2 * every, rarely_polled).await);
        drop(lease);
    }

    /// Checks that an unpolled waiter does not block the waiters behind it. It delays them by at
    /// most 2 s, and the check allows 5 s plus the slack.
    pub(super) async fn leave_unpolled(self, polls: u32, others: u32) {
        let own = self.own_name(0);
        let begun = self.now();
        let wait = millis(self.times.ttl_ms);
        let mut first = Box::pin(self.redlock.acquire(&own).wait(wait));
        for _ in 0..polls {
            if futures::poll!(first.as_mut()).is_ready() {
                return;
            }
            self.sleep(MS / 2).await;
        }
        let next = async || {
            let acquire = self.redlock.acquire(&own).wait(wait);
            let acquired = self.within(5 * S + self.slack, acquire).await;
            if self.stalled_since(begun) == 0 {
                let is_acquired = matches!(acquired, Some(Ok(_)));
                self.checker.state().check(Rule::Patient, is_acquired, || {
                    let process = self.process;
                    format!("p{process}: {own}: queued behind an unpolled waiter: {acquired:?}")
                });
            }
            if let Some(Ok(lease)) = acquired {
                drop(lease.release().await);
            }
        };
        let all = (0..others).map(|_| next());
        futures::future::join_all(all).await;
        drop(first);
    }
}
