//! Locks by options.

use crate::exit::{Code, Failure};
use crate::guard::{self, Signals};
use crate::nodes::Client;
use crate::options::{LockOptions, WaitOptions};
use crate::{output, progress};
use quorlock::{Acquire, AcquireError, Lease, ReleaseError, ReleaseOutcome};
use std::time::Duration;
use tokio::select;

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

/// The lease, or why there is none: held by another ends with the code that the options name for it, and a signal with its
/// own. On a terminal it is told what is waited for.
pub(crate) async fn wait(
    client: &Client,
    resources: &[&[u8]],
    acquire: Acquire,
    wait: &WaitOptions,
    signals: &mut Signals,
) -> Result<Lease, Failure> {
    let acquired = async { acquire.await.map_err(|error| refused(error, wait)) };
    select! {
        biased;
        acquired = acquired => acquired,
        signal = signals.end() => Err(Failure::new(guard::code(signal), "")),
        never = progress::show(client, resources), if !wait.no_wait => match never {},
    }
}

fn refused(error: AcquireError, wait: &WaitOptions) -> Failure {
    let is_contended = error.is_contended();
    let failure = Failure::from(error);
    let code = if is_contended { Code(wait.conflict_exit_code) } else { failure.code };
    Failure { code, ..failure }
}

/// Releases it, and waits until all nodes have heard of it.
pub(crate) async fn release(client: &Client, lease: Lease) {
    tell_release(lease.release().await);
    client.close().await;
}

/// Complains of a lock that was not held any more, or is not known to be released.
pub(crate) fn tell_release(released: Result<ReleaseOutcome, ReleaseError>) {
    match released {
        Ok(ReleaseOutcome::Expired | ReleaseOutcome::TakenOver) | Err(_) => {
            let what =
                released.map_or_else(|error| error.to_string(), |outcome| outcome.to_string());
            output::complain(format_args!("the lock: {what}"));
        }
        Ok(_) => {}
    }
}
