//! Jobs that run once per period.

use crate::call::{End, Lock};
use crate::checker::CheckerState;
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
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
    /// Whether the call has returned that the job has run and that its period is done.
    is_committed: bool,
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
        let this = &self;
        let lock = &*call.lock;
        let work = async |lease: &Lease| {
            this.start_job(&call, number, begun);
            let id = this.begin(lease, lock, Some(begun));
            let end = Reliance { worker: this, id };
            this.take_steps(id, lease, lock).await;
            drop(end);
            if call.fails { Err(()) } else { Ok(()) }
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
            self.checker.state().jobs.commit(&call, number, begun);
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

    fn start_job(&self, call: &JobCall, number: u64, begun: Instant) {
        let wiped: Vec<_> = self.shared.lock().nodes.iter().map(|node| node.wiped).collect();
        self.checker.state().start_job(call, number, begun, &wiped);
    }
}

impl CheckerState {
    /// Records that a job starts. Checks that no earlier run of the same period prevents it. `wiped` contains the times
    /// at which the nodes last lost their data. A committed run prevents all later ones, because the job checks its
    /// period under the lock, which the earlier run released after its commit.
    fn start_job(
        &mut self,
        call: &JobCall,
        number: u64,
        begun: Instant,
        wiped: &[Option<Instant>],
    ) {
        let runs = self.jobs.0.entry((call.job, number)).or_default();
        let prevents = |run: &JobRun| {
            let has_lost = wiped.iter().flatten().any(|at| *at >= run.begun);
            !has_lost && (!call.takes_over() || run.is_committed)
        };
        let is_prevented = runs.iter().any(prevents);
        runs.push(JobRun { begun, is_committed: false });
        if is_prevented {
            let how = format!("job {} runs again in period {number}", call.job);
            self.violated(Rule::Periods, how);
        }
    }
}

impl JobRuns {
    fn commit(&mut self, call: &JobCall, number: u64, begun: Instant) {
        let runs = self.0.entry((call.job, number)).or_default();
        if let Some(run) = runs.iter_mut().find(|run| run.begun == begun) {
            run.is_committed = true;
        }
    }
}
