//! Locks by options.

use crate::exit::{Code, Failure};
use crate::nodes::Client;
use crate::options::{LockOptions, WaitOptions};
use quorlock::{Acquire, AcquireError, Lease};
use std::time::Duration;

/// An acquire as the options say, kept up until it is released: one attempt with `--no-wait`, else for as long as
/// `--wait` or the settings say, and for ever if neither does.
pub(crate) fn acquire(
    client: &Client,
    resources: &[&[u8]],
    lock: &LockOptions,
    wait: &WaitOptions,
) -> Acquire {
    let redlock = &client.redlock;
    let acquire = match (resources, wait.no_wait) {
        ([one], true) => redlock.try_acquire(one),
        ([one], false) => redlock.acquire(one),
        (several, true) => redlock.try_acquire_all(several),
        (several, false) => redlock.acquire_all(several),
    };
    let acquire = if wait.no_wait {
        acquire
    } else {
        acquire.wait(wait.wait.or(client.wait).unwrap_or(Duration::MAX))
    };
    let acquire = acquire.at_least(lock.at_least.unwrap_or_default());
    acquire.auto_extend(lock.max_hold.unwrap_or(Duration::MAX))
}

/// The lease, or why there is none: held by another ends with the code that the options name for it.
pub(crate) async fn lease(acquire: Acquire, wait: &WaitOptions) -> Result<Lease, Failure> {
    acquire.await.map_err(|error: AcquireError| {
        let is_contended = error.is_contended();
        let failure = Failure::from(error);
        let code = if is_contended { Code(wait.conflict_exit_code) } else { failure.code };
        Failure { code, ..failure }
    })
}
