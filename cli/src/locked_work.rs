//! Acquires a lock, runs work under the lock, releases the lock, and closes the client.

use crate::exit::{Code, Failure};
use crate::guard::{self, End, Guard, Signals, orphans};
use crate::nodes::Client;
use crate::options::{LockOptions, WaitOptions};
use crate::settings::AvailableOptions;
use crate::target::Target;
use crate::{outage, output, progress, quarantine};
use quorlock::{Acquire, AcquireError, Election, Leadership, Lease};
use quorlock::{ReleaseError, ReleaseOutcome};
use std::time::Duration;
use tokio::select;

pub(crate) struct LockRequest<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) lock: &'a LockOptions,
    pub(crate) wait: &'a WaitOptions,
    pub(crate) fenced: bool,
    /// The election in which to campaign for the lock. `None` for a lock without an election.
    pub(crate) election: Option<&'a Election>,
}

/// Runs `work` and then closes the client, even if the work failed: closing delivers pending releases. If quorlock is
/// process 1, also reaps orphans.
pub(crate) async fn with_client<T>(
    client: Client,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    orphans::reap()?;
    let done = work(&client).await;
    client.close().await;
    done
}

pub(crate) async fn run_command_under_lock(
    client: &Client,
    wanted: &LockRequest<'_>,
    guard: &Guard<'_>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    with_lock(client, wanted, signals, async |lease, signals| guard.run(lease, signals).await).await
}

/// Acquires the lock, runs `work`, and releases the lock, even if the work failed.
pub(crate) async fn with_lock<T>(
    client: &Client,
    wanted: &LockRequest<'_>,
    signals: &mut Signals,
    work: impl AsyncFnOnce(&Lease, &mut Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let lease = acquire_or_signal(client, wanted, signals).await?;
    let done = work(&lease, signals).await;
    // If the lease was lost, `work` has already printed a message.
    let is_lost = lease.loss().is_some();
    let released = lease.release().await;
    if !is_lost {
        print_release_problem(wanted.target, released);
    }
    done
}

/// Builds the acquire. The lease is renewed until the release or `--max-hold`. With `--no-wait`, the client makes one
/// attempt. Otherwise, `--wait` or the `wait` setting limits the wait, which has no limit by default.
fn acquire(client: &Client, wanted: &LockRequest<'_>) -> Acquire {
    let LockRequest { target, lock, wait, fenced, .. } = wanted;
    let acquire = target.acquire(client, wait.no_wait);
    let acquire = if wait.no_wait {
        acquire
    } else {
        acquire.wait(wait.wait.or(client.wait).unwrap_or(Duration::MAX))
    };
    let acquire = acquire.at_least(lock.at_least.unwrap_or_default());
    let acquire = acquire.auto_extend(lock.max_hold.unwrap_or(Duration::MAX));
    if *fenced { acquire.fenced() } else { acquire }
}

/// Acquires the lock, and shows progress unless `--no-wait` or `--quiet` is set. If another client holds the lock,
/// fails with `--conflict-exit-code`. If a signal ends the wait, fails with the exit code of that signal. If only other
/// settings can end an outage, fails as soon as this is known.
async fn acquire_or_signal(
    client: &Client,
    wanted: &LockRequest<'_>,
    signals: &mut Signals,
) -> Result<Lease, Failure> {
    let shows_progress = !wanted.wait.no_wait && !wanted.lock.quiet;
    let acquired = async {
        let acquired = match wanted.election {
            // The metadata of the client.
            Some(election) => election.campaign("").await.map(Leadership::into_lease),
            None => acquire(client, wanted).await,
        };
        match acquired {
            Ok(lease) => Ok(lease),
            Err(error) => Err(acquire_failure(client, wanted, error).await),
        }
    };
    select! {
        biased;
        acquired = acquired => acquired,
        signal = signals.end() => Err(Failure::new(guard::code(signal), "")),
        failure = outage::watch(client, wanted) => Err(failure),
        never = quarantine::warn(client), if shows_progress => match never {},
        never = progress::show(client, wanted.target), if shows_progress => match never {},
    }
}

pub(crate) async fn acquire_failure(
    client: &Client,
    wanted: &LockRequest<'_>,
    error: AcquireError,
) -> Failure {
    let AcquireError::Contended { report, .. } = &error else {
        let is_unavailable = error.is_unavailable();
        let mut failure = Failure::acquire(&error, AvailableOptions::Lock).about(wanted.target);
        if is_unavailable && let Some(reason) = quarantine::reason(client) {
            failure.message = format!("{}; {reason}", failure.message);
        }
        return failure;
    };
    let code = Code(wanted.wait.conflict_exit_code);
    if wanted.lock.quiet {
        return Failure::new(code, "");
    }
    let target = wanted.target;
    let message = match (target.conflict(client).await, target) {
        (Some(conflict), _) => format!("{conflict}: {report}"),
        (None, Target::Resources(_)) => format!(
            "{target}: not acquired: the key exists on too many nodes, but no holder has a majority: {report}"
        ),
        (None, Target::Shared(_)) => format!(
            "{target}: not acquired: a writer waits for the lock, or holds it on too many nodes: {report}"
        ),
        (None, Target::Permit(_)) => {
            format!(
                "{target}: not acquired: no permit was free on a majority of the nodes: {report}"
            )
        }
    };
    Failure::new(code, message)
}

/// Prints a message if the lock had expired or was taken over, or if too few nodes confirmed the release.
pub(crate) fn print_release_problem(
    names: Target<'_>,
    released: Result<ReleaseOutcome, ReleaseError>,
) {
    match released {
        Ok(ReleaseOutcome::Expired) => output::print_message(format_args!(
            "{names}: the lock expired or was deleted before it was released; another client may have held it since"
        )),
        Ok(ReleaseOutcome::TakenOver) => output::print_message(format_args!(
            "{names}: another client took over the lock before it was released"
        )),
        Ok(_) => {}
        Err(ReleaseError::NoQuorum { report, .. }) => output::print_message(format_args!(
            "{names}: too few nodes confirmed the release; the lock may remain until its ttl ends: {report}"
        )),
        Err(error) => output::print_message(format_args!("{names}: {error}")),
    }
}
