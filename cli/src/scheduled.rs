//! Runs a command once per period.

use crate::exit::{Code, Failure};
use crate::guard::{self, End, Guard, Signals};
use crate::locked_work::{LockRequest, acquire_failure, print_release_problem};
use crate::nodes::Client;
use crate::options::ScheduleOptions;
use crate::target::described;
use crate::{outage, output, progress, quarantine};
use quorlock::{Holder, JobError, JobOutcome, ScheduledJob, StartedJob};
use std::time::Duration;
use tokio::select;

/// Builds the job from the options.
pub(crate) fn job(
    client: &Client,
    name: &[u8],
    period: Duration,
    schedule: &ScheduleOptions,
    wanted: &LockRequest<'_>,
) -> ScheduledJob {
    let LockRequest { lock, wait, fenced, .. } = wanted;
    let job = client.redlock.once(name).every(period);
    let job = job.offset(schedule.offset.unwrap_or_default());
    let job = job.at_least(lock.at_least.unwrap_or_default());
    let limit = wait.wait.or(client.wait).unwrap_or(Duration::MAX);
    let job = job.wait(if wait.no_wait { Duration::ZERO } else { limit });
    let job = if schedule.take_over { job.take_over() } else { job };
    let job = if *fenced { job.fenced() } else { job };
    match lock.max_hold {
        Some(most) => job.at_most(most),
        None => job,
    }
}

/// Runs the command if it has not run in the current period. A command that failed does not count as run if the job can
/// be taken over.
pub(crate) async fn run(
    client: &Client,
    wanted: &LockRequest<'_>,
    job: &ScheduledJob,
    guard: &Guard<'_>,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    let started = match start_or_signal(client, wanted, job, signals).await? {
        JobOutcome::Ran(started) => started,
        JobOutcome::Skipped { holder, since } => return Err(skipped(wanted, holder, since)),
    };
    let done = guard.run(started.lease(), signals).await;
    if matches!(done, Ok(End::Exited(Code::OK))) {
        print_end(wanted, started.finish().await);
    } else {
        let lease = started.into_lease();
        let is_lost = lease.loss().is_some();
        let released = lease.release().await;
        // If the lease was lost, the guard has already printed a message.
        if !is_lost {
            print_release_problem(wanted.target, released);
        }
    }
    match done? {
        End::Exited(code) => Ok(code),
        End::Lost => Ok(Code::LOST),
    }
}

/// Starts the job, and shows progress unless `--no-wait` or `--quiet` is set.
async fn start_or_signal(
    client: &Client,
    wanted: &LockRequest<'_>,
    job: &ScheduledJob,
    signals: &mut Signals,
) -> Result<JobOutcome<StartedJob>, Failure> {
    let shows_progress = !wanted.wait.no_wait && !wanted.lock.quiet;
    let started = async {
        match job.start().await {
            Ok(outcome) => Ok(outcome),
            Err(JobError::NotAcquired(error)) => Err(acquire_failure(client, wanted, error).await),
            Err(error) => {
                let mut message = format!("{}: {error}", wanted.target);
                if let Some(reason) = quarantine::reason(client) {
                    message = format!("{message}; {reason}");
                }
                Err(Failure::new(Code::NO_QUORUM, message))
            }
        }
    };
    select! {
        biased;
        started = started => started,
        signal = signals.end() => Err(Failure::new(guard::code(signal), "")),
        failure = outage::watch(client, wanted) => Err(failure),
        never = quarantine::warn(client), if shows_progress => match never {},
        never = progress::show(client, wanted.target), if shows_progress => match never {},
    }
}

/// Returns the end of a skipped call. It is no failure, unless another client has held the lock for the whole wait.
fn skipped(wanted: &LockRequest<'_>, holder: Option<Holder>, since: Option<Duration>) -> Failure {
    let conflict = Code(wanted.wait.conflict_exit_code);
    let (code, reason) = match (since, holder) {
        // The number does not show whether the command has ended, or was successful.
        (Some(since), holder) => {
            let by = holder.map_or_else(String::new, |holder| format!(" by {holder}"));
            let ago = quarantine::seconds(since);
            (Code::OK, format!("skipped: this period was taken{by} {ago} ago"))
        }
        (None, Some(holder)) if holder.is_cooling_down() => {
            (Code::OK, format!("skipped: {}", described(&holder)))
        }
        (None, Some(holder)) => (conflict, described(&holder)),
        (None, None) => (conflict, "held by other clients".to_owned()),
    };
    let message =
        if wanted.lock.quiet { String::new() } else { format!("{}: {reason}", wanted.target) };
    Failure::new(code, message)
}

/// Prints a message if the lease had ended before the command, or if the period's number was not committed.
fn print_end(wanted: &LockRequest<'_>, finished: Result<(), JobError<()>>) {
    match finished {
        Ok(()) => {}
        Err(JobError::Overrun { found, .. }) => print_release_problem(wanted.target, found),
        Err(error) => output::print_message(format_args!("{}: {error}", wanted.target)),
    }
}
