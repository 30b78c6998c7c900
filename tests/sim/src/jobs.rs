//! Jobs that run once per period.

use crate::call::{End, Lock};
use crate::clock::{Instant, MS, S};
use crate::counts::Situation;
use crate::dice::Dice;
use crate::fencing::counter;
use crate::holder::Reliance;
use crate::process::millis;
use crate::rule::Rule;
use crate::worker::Worker;
use futures::future::{Either, select};
use quorlock::{JobOutcome, Lease, ScheduledJob};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

/// The number of the first job's lock. Ordinary locks and permits have lower numbers.
const FIRST: usize = 2_000;

/// Jobs with an odd number are taken over after a failure. The last two have longer periods.
const JOBS: usize = 4;

/// One call of a job.
#[derive(Clone, Debug)]
pub(crate) struct JobCall {
    job: usize,
    /// The steps of the job, and the maximum wait for the lock.
    lock: Box<Lock>,
    fails: bool,
    /// When the future of the call is dropped, if it has not ended before.
    dropped_after: Option<Instant>,
}

/// The runs of all jobs, by job and period.
#[derive(Default)]
pub(crate) struct JobRuns(BTreeMap<(usize, u64), Vec<JobRun>>);

struct JobRun {
    /// When the call started.
    begun: Instant,
    /// Whether the job has ended without an error.
    has_ended: bool,
    /// The state of the counters after the period's number was committed. `None` before the commit.
    committed: Option<CommittedNumber>,
}

/// The nodes that have the number of a period, or a higher one.
struct CommittedNumber {
    at: Instant,
    nodes: Vec<usize>,
}

/// The nodes that may have lost their counters.
struct LostCounters {
    /// The nodes that clients use.
    nodes: Vec<usize>,
    /// For each node, when it last lost its data.
    wiped: Vec<Option<Instant>>,
    /// For how long the grants of a restarted node do not count.
    quarantine: Instant,
    now: Instant,
}

impl LostCounters {
    /// Returns true if a quorum of nodes without the number cannot exist.
    fn prevents(&self, committed: &CommittedNumber) -> bool {
        let has_kept = |node: &&usize| {
            self.wiped[**node].is_none_or(|at| at < committed.at || at + self.quarantine > self.now)
        };
        let used = committed.nodes.iter().filter(|node| self.nodes.contains(node));
        let (kept, all) = (used.filter(has_kept).count(), self.nodes.len());
        all - kept <= all / 2
    }
}

impl JobCall {
    /// `cool_downs` is the probability that the job has a minimum hold time, per thousand.
    pub(crate) fn draw(mut lock: Lock, ttl_ms: u64, cool_downs: u64, dice: &mut Dice) -> Self {
        let job = dice.index(JOBS);
        lock.resources = vec![FIRST + job];
        (lock.any, lock.end) = (false, End::Release);
        // `at_least` must exceed neither the period nor the longest ttl.
        let longest = (period(job) * 1_000).min(2 * ttl_ms);
        lock.at_least = dice.chance(cool_downs).then(|| 1 + dice.below(longest));
        let dropped_after = dice.chance(200).then(|| dice.log_uniform(MS / 20, ttl_ms * MS));
        Self { job, lock: Box::new(lock), fails: dice.chance(200), dropped_after }
    }

    fn takes_over(&self) -> bool {
        self.job % 2 == 1
    }

    fn period(&self) -> Duration {
        Duration::from_secs(period(self.job))
    }
}

/// Returns the period of a job in seconds.
fn period(job: usize) -> u64 {
    if job < JOBS / 2 { 1 } else { 5 }
}

/// Returns the name of the lock `resource` if it is the lock of a job.
pub(crate) fn name(resource: usize) -> Option<String> {
    Some(format!("job{}", resource.checked_sub(FIRST)?))
}

/// Returns the number of the lock with the key `key` if it is the lock of a job.
pub(crate) fn lock_of(key: &str) -> Option<usize> {
    Some(FIRST + key.strip_prefix("job")?.parse::<usize>().ok()?)
}

impl Worker {
    pub(crate) async fn run_job(self, call: JobCall) {
        let job = self.scheduled_job(&call);
        // A call that acquires the lock and then skips the job keeps the lock, too.
        if let Some(ms) = call.lock.at_least {
            self.record_cool_down_end(ms + call.lock.wait.unwrap_or_default());
        }
        let (begun, number) = {
            let core = self.shared.lock();
            let wall = core.processes[self.process].wall.read(core.now);
            (core.now, wall / S / call.period().as_secs())
        };
        self.count_job(call.job, number);
        let this = &self;
        let lock = &*call.lock;
        let work = async |lease: &Lease| {
            this.start_job(&call, number, begun);
            let id = this.begin(lease, lock, Some(begun));
            let end = Reliance { worker: this, id };
            this.take_steps(id, lease, lock).await;
            drop(end);
            if call.fails {
                return Err(());
            }
            this.checker.state().jobs.end(call.job, number, begun);
            Ok(())
        };
        let running = pin!(job.try_run(work));
        let cools = || call.lock.at_least.iter().for_each(|ms| self.record_cool_down_end(*ms));
        let ended = match call.dropped_after {
            None => running.await,
            Some(after) => match select(running, pin!(self.sleep(after))).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => return cools(),
            },
        };
        cools();
        if matches!(ended, Ok(JobOutcome::Ran(Ok(())))) {
            let committed = self.committed(call.job, number);
            self.checker.state().jobs.commit(call.job, number, begun, committed);
        }
        if call.takes_over() && matches!(ended, Ok(JobOutcome::Skipped { since: Some(_), .. })) {
            self.check_skipped(call.job, number);
        }
        self.log(format_args!("job {} of period {number}: {ended:?}", call.job));
        self.inspect(&ended);
    }

    fn scheduled_job(&self, call: &JobCall) -> ScheduledJob {
        let name = name(FIRST + call.job).expect("the name of a job");
        let mut job = self.redlock.once(name).every(call.period());
        job = job.wait(millis(call.lock.wait.unwrap_or_default()));
        if call.takes_over() {
            job = job.take_over();
        }
        if let Some(ttl) = call.lock.ttl {
            job = job.ttl(millis(ttl));
        }
        if let Some(time) = call.lock.at_least {
            job = job.at_least(millis(time));
        }
        if call.lock.fenced {
            job = job.fenced();
        }
        job
    }

    /// Returns the nodes whose counter has the number of the period, or a higher one.
    fn committed(&self, job: usize, number: u64) -> CommittedNumber {
        let core = self.shared.lock();
        let counter = counter(&name(FIRST + job).expect("the name of a job"), "period");
        let has_number = |node: &usize| core.counter(*node, &counter) >= number;
        let nodes = (0..core.nodes.len()).filter(has_number).collect();
        CommittedNumber { at: core.now, nodes }
    }

    fn lost_counters(&self) -> LostCounters {
        let core = self.shared.lock();
        let wiped = core.nodes.iter().map(|node| node.wiped).collect();
        let nodes = core.addresses.clone();
        LostCounters { nodes, wiped, quarantine: core.shortest_quarantine, now: core.now }
    }

    /// Checks that no earlier run of the same period prevents a run that begins now.
    fn start_job(&self, call: &JobCall, number: u64, begun: Instant) {
        let committed = (!call.takes_over()).then(|| self.committed(call.job, number));
        let lost = self.lost_counters();
        let mut state = self.checker.state();
        if state.jobs.is_prevented(call.job, number, &lost) {
            let how = format!("job {} runs again in period {number}", call.job);
            state.violated(Rule::Periods, how);
        }
        state.jobs.runs(call.job, number).push(JobRun { begun, has_ended: false, committed });
    }

    /// Checks that the job has ended in this period, or in a later one, because a call that can take over was skipped
    /// since its period was taken.
    fn check_skipped(&self, job: usize, number: u64) {
        let mut state = self.checker.state();
        let has_ended = state.jobs.has_ended_since(job, number);
        state.check(Rule::TakeOvers, has_ended, || {
            format!("a call of job {job} is skipped in period {number}, but no run has ended")
        });
    }

    /// Counts a call in a period in which the job must not run again.
    fn count_job(&self, job: usize, number: u64) {
        let lost = self.lost_counters();
        let mut state = self.checker.state();
        if state.jobs.is_prevented(job, number, &lost) {
            state.met(Rule::Periods);
        }
        let committed =
            state.jobs.runs(job, number).iter().filter_map(|run| run.committed.as_ref());
        let first = committed.map(|committed| committed.at).min();
        if lost.wiped.iter().flatten().any(|at| first.is_some_and(|first| *at > first)) {
            state.met(Situation::ForgottenCounter);
        }
    }
}

impl JobRuns {
    fn runs(&mut self, job: usize, number: u64) -> &mut Vec<JobRun> {
        self.0.entry((job, number)).or_default()
    }

    /// Returns true if the job must not run again in the period. A committed run prevents all later
    /// ones, because a job checks its period under the lock, which the earlier run released after
    /// its commit.
    fn is_prevented(&mut self, job: usize, number: u64, lost: &LostCounters) -> bool {
        let committed = self.runs(job, number).iter().filter_map(|run| run.committed.as_ref());
        committed.into_iter().any(|committed| lost.prevents(committed))
    }

    fn end(&mut self, job: usize, number: u64, begun: Instant) {
        if let Some(run) = self.runs(job, number).iter_mut().find(|run| run.begun == begun) {
            run.has_ended = true;
        }
    }

    fn has_ended_since(&self, job: usize, number: u64) -> bool {
        let mut runs = self.0.range((job, number)..=(job, u64::MAX)).flat_map(|(_, runs)| runs);
        runs.any(|run| run.has_ended)
    }

    fn commit(&mut self, job: usize, number: u64, begun: Instant, committed: CommittedNumber) {
        if let Some(run) = self.runs(job, number).iter_mut().find(|run| run.begun == begun) {
            run.committed.get_or_insert(committed);
        }
    }
}
