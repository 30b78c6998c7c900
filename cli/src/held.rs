//! Locks by options: acquired, held while something is done, and released; and the client, which is closed at the end.

use crate::exit::{Code, Failure};
use crate::guard::{self, End, Guard, Signals, orphans};
use crate::nodes::Client;
use crate::options::{LockOptions, WaitOptions};
use crate::{output, progress, quarantine, resource};
use quorlock::{Acquire, AcquireError, Holder, Lease, ReleaseError, ReleaseOutcome};
use std::time::Duration;
use tokio::select;

/// A lock that is wanted, and how.
pub(crate) struct Wanted<'a> {
    pub(crate) resources: &'a [&'a [u8]],
    pub(crate) lock: &'a LockOptions,
    pub(crate) wait: &'a WaitOptions,
    /// True if it comes with a fencing token.
    pub(crate) fenced: bool,
}

/// Does `work` with a client and then closes the client, which delivers pending releases, also if the work failed. As
/// process 1, reaps orphans as well.
pub(crate) async fn closing<T>(
    client: Client,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    orphans::reap()?;
    let done = work(&client).await;
    client.close().await;
    done
}

/// Acquires the lock, runs the command under it to its end or to that of the lease, and releases the lock.
pub(crate) async fn guarded(
    client: &Client,
    wanted: &Wanted<'_>,
    guard: &Guard<'_>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    under(client, wanted, signals, async |lease, signals| guard.run(lease, signals).await).await
}

/// Acquires the lock, does `work` while it is held, and releases it, whatever came of that.
pub(crate) async fn under<T>(
    client: &Client,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
    work: impl AsyncFnOnce(&Lease, &mut Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let lease = wait(client, wanted, signals).await?;
    let done = work(&lease, signals).await;
    tell_release(lease.release().await);
    done
}

/// An acquire as the options say, kept up until it is released: one attempt with `--no-wait`, else for as long as
/// `--wait` or the settings say, and for ever if neither does.
fn acquire(client: &Client, wanted: &Wanted<'_>) -> Acquire {
    let Wanted { resources, lock, wait, fenced } = wanted;
    let redlock = &client.redlock;
    let acquire = match (*resources, wait.no_wait) {
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
    let acquire = acquire.auto_extend(lock.max_hold.unwrap_or(Duration::MAX));
    if *fenced { acquire.fenced() } else { acquire }
}

/// The lease, or why there is none: held by another ends with the code that the options name for it, and a signal with its
/// own. On a terminal it is told what is waited for.
async fn wait(
    client: &Client,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
) -> Result<Lease, Failure> {
    let acquire = acquire(client, wanted);
    let shows_progress = !wanted.wait.no_wait && !wanted.lock.quiet;
    let acquired = async {
        match acquire.await {
            Ok(lease) => Ok(lease),
            Err(error) => Err(refused(client, wanted, error).await),
        }
    };
    select! {
        biased;
        acquired = acquired => acquired,
        signal = signals.end() => Err(Failure::new(guard::code(signal), "")),
        never = quarantine::warn(client), if shows_progress => match never {},
        never = progress::show(client, wanted.resources), if shows_progress => match never {},
    }
}

async fn refused(client: &Client, wanted: &Wanted<'_>, error: AcquireError) -> Failure {
    let AcquireError::Contended { report, .. } = &error else {
        let is_unavailable = error.is_unavailable();
        let mut failure = Failure::from(error);
        if is_unavailable && let Some(reason) = quarantine::reason(client) {
            failure.message = format!("{}; {reason}", failure.message);
        }
        return failure;
    };
    let code = Code(wanted.wait.conflict_exit_code);
    if wanted.lock.quiet {
        return Failure::new(code, "");
    }
    let message = match holder(client, wanted.resources).await {
        Some((name, holder)) => format!("{} is held by {holder}: {report}", resource::shown(name)),
        None => error.to_string(),
    };
    Failure::new(code, message)
}

/// The first of the resources that the nodes report as held, and its holder.
pub(crate) async fn holder<'a>(
    client: &Client,
    resources: &[&'a [u8]],
) -> Option<(&'a [u8], Holder)> {
    for resource in resources {
        let Ok(status) = client.redlock.status(resource).await else { continue };
        if let Some(holder) = status.holder() {
            return Some((resource, holder));
        }
    }
    None
}

/// Complains of a lock that was not held any more, or is not known to be released.
fn tell_release(released: Result<ReleaseOutcome, ReleaseError>) {
    match released {
        Ok(ReleaseOutcome::Expired | ReleaseOutcome::TakenOver) | Err(_) => {
            let what =
                released.map_or_else(|error| error.to_string(), |outcome| outcome.to_string());
            output::complain(format_args!("the lock: {what}"));
        }
        Ok(_) => {}
    }
}
