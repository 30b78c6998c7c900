//! Runs the workload and the checks of [`harness`] on the user's nodes, with the user's faults.

pub(crate) mod fault;
mod plan;
mod trial;

use crate::exit::{Code, Failure};
use crate::guard;
use crate::output;
use fault::Fault;
use harness::keys::Keys;
use harness::record::{self, SkippedFault};
use harness::steps::Steps;
use harness::{
    ClientPlan, Ended, KEYS_EXPIRE_AFTER, Nodes, Outcome, Report, RunContext, RunPart, Session,
    boot,
};
use plan::Plan;
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// The time limit for the clients to connect to all nodes.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// The time without faults at the start and at the end of the run.
const FAULT_FREE_TIME: Duration = Duration::from_secs(1);
/// The maximum duration of a run: a hundred years. The limit prevents an overflow of `Instant`.
const LONGEST_RUN: Duration = Duration::from_secs(100 * 366 * 86_400);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(4);
/// The time limit for all nodes to grant a lock after the last fault.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for votes that arrive after the quorum, and between two attempts.
const VOTE_DELAY: Duration = Duration::from_millis(50);
/// The client number for `check_recovery`. No client process has this number.
const PROBE_CLIENT: u16 = u16::MAX - 1;

#[derive(Clone, Debug)]
pub(crate) struct Torture {
    pub(crate) nodes: Nodes,
    pub(crate) client_plan: ClientPlan,
    pub(crate) run_part: RunPart,
    pub(crate) faults: Vec<Fault>,
    pub(crate) is_inside: bool,
    pub(crate) lasts: Duration,
    pub(crate) out: PathBuf,
    pub(crate) command: String,
    pub(crate) server: String,
    /// The dangerous settings that the check of the nodes found before the run.
    pub(crate) dangers: Vec<String>,
}

#[derive(Debug)]
enum Stop {
    Signal(Signal),
    Failed(String),
}

struct FaultInjector<'a> {
    torture: &'a Torture,
    session: &'a Session,
    stop: &'a Receiver<Signal>,
    applied: Vec<record::Fault>,
    skipped: Vec<SkippedFault>,
    failed_mends: usize,
    last_progress: Instant,
}

impl Torture {
    fn size(&self) -> u16 {
        u16::try_from(self.nodes.urls.len()).unwrap_or(u16::MAX)
    }

    /// Returns how many nodes may have a fault at the same time. Within Redlock's guarantee, this is a minority.
    pub(crate) fn max_faulted(nodes: u16, is_inside: bool) -> u16 {
        if is_inside { nodes.saturating_sub(1) / 2 } else { nodes }
    }

    /// Blocks the calling thread until the run has ended. If the run ends early, faults are still mended, clients ended
    /// and keys deleted.
    pub(crate) fn run(&self, stop: &Receiver<Signal>) -> Result<Code, Failure> {
        if let Some(signal) = trial::trial(&self.faults, plan::REST.0, stop)? {
            return Ok(guard::code(signal));
        }
        let since = || Duration::from_nanos(boot::now() - self.run_part.origin);
        let (size, clients) = (self.size(), self.client_plan.clients);
        let mut report = Report::new(&self.command, self.run_part.seed, self.is_inside, clients);
        let session = Session::begin(self.client_plan, self.run_part, &self.nodes);
        session.await_ready(CONNECT_LIMIT);
        let from = since();
        let mut injector = FaultInjector {
            torture: self,
            session: &session,
            stop,
            applied: Vec::new(),
            skipped: Vec::new(),
            failed_mends: 0,
            last_progress: Instant::now(),
        };
        let stopped = injector.run();
        let FaultInjector { applied: faults, skipped, failed_mends, .. } = injector;
        let span = (boot::nanos(from), boot::nanos(since()));
        let unrecovered = self.check_recovery(failed_mends);
        session.show(&faults);
        let mut outcome = self.judged(session.end(), (faults, skipped), span);
        outcome.findings.others.extend(self.dangers.iter().cloned().chain(unrecovered));
        self.clean_up(&mut outcome);
        report.add(size, Duration::ZERO, outcome);
        let written = report.finish(since(), &self.out);
        written.map_err(|error| {
            let out = self.out.display();
            Failure::new(Code::FAILED, format!("cannot write the record to {out}: {error}"))
        })?;
        if let Some(Stop::Failed(why)) = &stopped {
            output::print_message(why);
        }
        Ok(exit_code(stopped.as_ref(), report.is_empty(), report.is_bad()))
    }

    fn judged(
        &self,
        ended: Ended,
        (faults, skipped): (Vec<record::Fault>, Vec<SkippedFault>),
        span: (u64, u64),
    ) -> Outcome {
        // Every fault may have restarted a node, even a fault that was applied only in part.
        let partial = skipped.iter().map(|fault| (fault.from, fault.until));
        let data_losses: Vec<_> =
            faults.iter().map(|fault| (fault.from, fault.until)).chain(partial).collect();
        ended.judge(RunContext {
            nodes: self.size(),
            is_inside: self.is_inside,
            span,
            faults,
            skipped,
            steps: Steps::default(),
            // At most a minority of the nodes has a fault at the same time, and nodes recover during the pause after
            // each wave.
            outages: Vec::new(),
            counter_losses: data_losses.clone(),
            data_losses,
            server: self.server.clone(),
        })
    }

    /// Checks that a new client can acquire a lock from all nodes, and describes the failure if it cannot.
    fn check_recovery(&self, failed_mends: usize) -> Option<String> {
        Handle::current().block_on(async {
            let redlock = match self.nodes.client(PROBE_CLIENT) {
                Ok(redlock) => redlock,
                Err(error) => return Some(error.to_string()),
            };
            let begun = Instant::now();
            let mut granted = 0;
            while granted < self.nodes.urls.len() && begun.elapsed() < RECOVERY_LIMIT {
                match redlock.acquire("after all").await {
                    Ok(lease) => {
                        sleep(VOTE_DELAY).await;
                        granted = lease.report().granted();
                        let _ = lease.release().await;
                    }
                    Err(_) => sleep(VOTE_DELAY).await,
                }
            }
            let _ = redlock.close().await;
            let all = self.nodes.urls.len();
            let when = match (self.faults.len(), failed_mends) {
                (0, _) => "after the run".to_owned(),
                (_, 0) => "after all faults were mended".to_owned(),
                (_, failed) => format!("after the run (mending commands that failed: {failed})"),
            };
            let is_short = granted < all;
            is_short.then(|| format!("only {granted} of {all} nodes grant a lock {when}"))
        })
    }

    /// Waits until all locks of the run have expired. Then counts the leaked keys and deletes all keys of the run.
    fn clean_up(&self, outcome: &mut Outcome) {
        thread::sleep(KEYS_EXPIRE_AFTER);
        let findings = &mut outcome.findings;
        for (number, url) in (1..).zip(&self.nodes.urls) {
            let cleaned = Keys::on(url, &self.nodes.prefix).and_then(|keys| {
                findings.leaked_keys += keys.leaked();
                keys.remove(url)?;
                Keys::on(url, &self.nodes.prefix)
            });
            match cleaned {
                Ok(left) if left.is_empty() => {}
                Ok(_) => {
                    findings.others.push(format!("the keys on node {number} could not be deleted"));
                }
                Err(error) => {
                    findings
                        .others
                        .push(format!("the keys on node {number} could not be read: {error}"));
                }
            }
        }
    }
}

impl FaultInjector<'_> {
    /// Applies and mends faults for the duration of the run. If the run must end early, returns the reason.
    fn run(&mut self) -> Option<Stop> {
        let Torture { faults, run_part, lasts, is_inside, .. } = self.torture;
        let until = Instant::now() + (*lasts).min(LONGEST_RUN);
        let most = Torture::max_faulted(self.torture.size(), *is_inside);
        let mut plan = Plan::new(faults, most, run_part.seed);
        let mut stopped = self.wait_until(until.min(Instant::now() + FAULT_FREE_TIME));
        while stopped.is_none() && Instant::now() < until {
            stopped = match plan.next() {
                None => self.wait_until(until),
                Some(wave) => self.run_wave(&wave, until),
            };
        }
        stopped.or_else(|| self.wait_until(Instant::now() + FAULT_FREE_TIME))
    }

    /// Applies the faults of a wave, and mends them after the planned duration or when a signal arrives. Faults that
    /// cannot be applied are recorded as skipped. `until` is the end of the run.
    fn run_wave(&mut self, wave: &plan::Wave, until: Instant) -> Option<Stop> {
        let faults: Vec<_> =
            wave.faults.iter().map(|one| (*one, &self.torture.faults[*one])).collect();
        let begun = self.applied.len();
        for (number, fault) in &faults {
            self.record_start(*number, fault);
        }
        let applied = run_all(&faults, Fault::apply);
        let mut stopped = None;
        let mut unmended = Vec::new();
        if applied.iter().any(Result::is_ok) {
            stopped = self.wait_until(Instant::now() + wave.lasts);
        }
        let mended = run_all(&faults, Fault::mend);
        let now = self.now();
        let records: Vec<_> = self.applied.drain(begun..).collect();
        for ((record, applied), mended) in records.into_iter().zip(applied).zip(mended) {
            self.failed_mends += usize::from(mended.is_err());
            match (applied, mended) {
                (Ok(()), mended) => {
                    self.applied.push(record::Fault { until: now, ..record });
                    unmended.extend(mended.err());
                }
                // A failed mending command does not end the run here. The fault was not applied, so the node may be
                // intact.
                (Err(why), mended) => {
                    let why = with_failed_mend(why, mended);
                    output::print_message(format_args!(
                        "skipped a fault that could not be applied: {why}"
                    ));
                    let record::Fault { nemesis, target, from, .. } = record;
                    self.skipped.push(SkippedFault { nemesis, target, from, until: now, why });
                }
            }
        }
        for why in &unmended {
            output::print_message(format_args!(
                "a fault is NOT MENDED, repair the node manually: {why}"
            ));
        }
        if !unmended.is_empty() {
            let whys = unmended.join("; ");
            let why = format!("the run ended early, because a fault is not mended: {whys}");
            stopped = Some(Stop::Failed(why));
        }
        if stopped.is_some() || Instant::now() >= until {
            return stopped;
        }
        // Restarted nodes must have a vote again before other nodes get faults.
        self.wait_until(Instant::now() + wave.rest)
    }

    /// Records the start of a fault. `run_wave` adds the end.
    fn record_start(&mut self, number: usize, fault: &Fault) {
        self.applied.push(record::Fault {
            nemesis: fault.command.clone(),
            target: match fault.node {
                Some(node) => format!("node {node}"),
                None => format!("fault {}", number + 1),
            },
            from: self.now(),
            until: u64::MAX,
            is_guaranteed: self.torture.is_inside,
        });
    }

    /// Prints progress until `until`. If a signal arrives, returns early with the signal.
    fn wait_until(&mut self, until: Instant) -> Option<Stop> {
        loop {
            let next = until.min(self.last_progress + PROGRESS_INTERVAL);
            match self.stop.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(signal) => return Some(Stop::Signal(signal)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return None,
                // Without a sender, no signal can arrive.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.last_progress = Instant::now();
                    self.session.show(&self.applied);
                }
            }
        }
    }

    fn now(&self) -> u64 {
        boot::now() - self.torture.run_part.origin
    }
}

/// Returns the exit code of a run. `is_empty` is true if no client acquired a lock, and `is_bad` if the checks have
/// findings.
fn exit_code(stopped: Option<&Stop>, is_empty: bool, is_bad: bool) -> Code {
    match stopped {
        // If no lock was acquired, other findings mean little.
        None if is_empty => Code::NO_QUORUM,
        _ if is_bad => Code::NEGATIVE_RESULT,
        Some(Stop::Failed(_)) => Code::FAILED,
        Some(Stop::Signal(signal)) => guard::code(*signal),
        None => Code::OK,
    }
}

/// Appends the error of the mending command, if it failed, to the reason why the fault was not applied.
fn with_failed_mend(why: String, mended: Result<(), String>) -> String {
    match mended {
        Ok(()) => why,
        Err(error) => format!("{why}; check the node, because mending failed, too: {error}"),
    }
}

fn run_all(
    faults: &[(usize, &Fault)],
    action: fn(&Fault) -> Result<(), String>,
) -> Vec<Result<(), String>> {
    thread::scope(|scope| {
        let each: Vec<_> = faults.iter().map(|(_, one)| scope.spawn(|| action(one))).collect();
        each.into_iter().map(|one| one.join().unwrap_or(Err("panicked".to_owned()))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_mode_faults_only_a_minority() {
        let max_faulted =
            |is_inside| [1, 2, 3, 4, 5, 7].map(|nodes| Torture::max_faulted(nodes, is_inside));
        assert_eq!(max_faulted(true), [0, 0, 1, 1, 2, 3]);
        assert_eq!(max_faulted(false), [1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn exit_code_prefers_findings_to_the_reason_for_the_end() {
        let (signal, failed) = (Stop::Signal(Signal::INT), Stop::Failed(String::new()));
        for (stopped, is_empty, is_bad, code) in [
            (None, false, false, Code::OK),
            (None, false, true, Code::NEGATIVE_RESULT),
            (None, true, false, Code::NO_QUORUM),
            (None, true, true, Code::NO_QUORUM),
            (Some(&signal), true, false, Code::of_signal(2)),
            (Some(&signal), false, true, Code::NEGATIVE_RESULT),
            (Some(&failed), true, false, Code::FAILED),
            (Some(&failed), false, true, Code::NEGATIVE_RESULT),
        ] {
            assert_eq!(
                exit_code(stopped, is_empty, is_bad),
                code,
                "{stopped:?} {is_empty} {is_bad}"
            );
        }
    }
}
