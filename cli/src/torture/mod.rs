//! The workload and the checker of [`harness`] on the user's nodes, with the user's faults.

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
use harness::{Circumstances, Crew, Ended, GONE, Nodes, Outcome, Report, Session, Who, boot};
use plan::Plan;
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How long clients may take to hear of all nodes.
const SIGHT: Duration = Duration::from_secs(20);
/// How long all is quiet before the first fault, and after the last one.
const CALM: Duration = Duration::from_secs(1);
/// More than that is as good as for ever: a hundred years.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);
/// How often progress is shown.
const SHOW: Duration = Duration::from_secs(4);
/// How long nodes may take after the last fault until each of them grants a lock.
const USABLE: Duration = Duration::from_secs(30);
/// How long one looks at who has granted a lock: the last ones may do so when it is won already.
const LOOK: Duration = Duration::from_millis(50);
/// The number of the client that looks whether all nodes are usable. No client process has it.
const LOOKER: u16 = u16::MAX - 1;

/// A run, as its user wants it.
#[derive(Clone, Debug)]
pub(crate) struct Torture {
    pub(crate) nodes: Nodes,
    pub(crate) crew: Crew,
    pub(crate) who: Who,
    pub(crate) faults: Vec<Fault>,
    pub(crate) is_inside: bool,
    pub(crate) lasts: Duration,
    pub(crate) out: PathBuf,
    /// The command that makes it again.
    pub(crate) command: String,
    /// What the nodes say that they are.
    pub(crate) server: String,
    /// What is wrong with the nodes before anything is done to them.
    pub(crate) dangers: Vec<String>,
}

/// Why it ended before its time.
#[derive(Debug)]
enum Stop {
    Asked(Signal),
    Failed(String),
}

/// The faults of a run, as they are made and mended.
struct Storm<'a> {
    torture: &'a Torture,
    session: &'a Session,
    stop: &'a Receiver<Signal>,
    /// What was done so far.
    done: Vec<record::Fault>,
    /// The faults that could not be applied so far.
    skipped: Vec<SkippedFault>,
    shown: Instant,
}

impl Torture {
    /// How many nodes there are.
    fn size(&self) -> u16 {
        u16::try_from(self.nodes.urls.len()).unwrap_or(u16::MAX)
    }

    /// How many of them may be faulted at a time.
    pub(crate) fn most(nodes: u16, is_inside: bool) -> u16 {
        if is_inside { nodes.saturating_sub(1) / 2 } else { nodes }
    }

    /// Makes the run; blocks. Whatever happens, what is at work is mended, the clients end, and the keys are taken away.
    pub(crate) fn run(&self, stop: &Receiver<Signal>) -> Result<Code, Failure> {
        if let Some(signal) = trial::trial(&self.faults, plan::REST.0, stop)? {
            return Ok(guard::code(signal));
        }
        let since = || Duration::from_nanos(boot::now() - self.who.origin);
        let (size, clients) = (self.size(), self.crew.clients);
        let mut report = Report::new(&self.command, self.who.seed, self.is_inside, clients);
        let session = Session::begin(self.crew, self.who, &self.nodes);
        session.await_sight(SIGHT);
        let from = since();
        let mut storm = Storm {
            torture: self,
            session: &session,
            stop,
            done: Vec::new(),
            skipped: Vec::new(),
            shown: Instant::now(),
        };
        let stopped = storm.rage();
        let Storm { done: faults, skipped, .. } = storm;
        let span = (boot::nanos(from), boot::nanos(since()));
        let unusable = self.unusable();
        session.show(&faults);
        let mut outcome = self.judged(session.end(), (faults, skipped), span);
        outcome.findings.others.extend(self.dangers.iter().cloned().chain(unusable));
        self.clean_up(&mut outcome);
        report.add(size, Duration::ZERO, outcome);
        let left = report.finish(since(), &self.out);
        left.map_err(|error| {
            let out = self.out.display();
            Failure::new(Code::FAILED, format!("the record cannot be left in {out}: {error}"))
        })?;
        if let Some(Stop::Failed(why)) = &stopped {
            output::complain(why);
        }
        Ok(verdict(stopped.as_ref(), report.is_empty(), report.is_bad()))
    }

    fn judged(
        &self,
        ended: Ended,
        (faults, skipped): (Vec<record::Fault>, Vec<SkippedFault>),
        span: (u64, u64),
    ) -> Outcome {
        // Any of them may have restarted a node, also one that was applied only in part.
        let partial = skipped.iter().map(|fault| (fault.from, fault.until));
        let amnesias =
            faults.iter().map(|fault| (fault.from, fault.until)).chain(partial).collect();
        ended.judge(Circumstances {
            nodes: self.size(),
            is_inside: self.is_inside,
            span,
            faults,
            skipped,
            steps: Steps::default(),
            // At most a minority is faulted at a time, and has time to come back.
            ailments: Vec::new(),
            amnesias,
            server: self.server.clone(),
        })
    }

    /// Whether a client that was not there before gets a lock from all nodes; what is wrong if not.
    fn unusable(&self) -> Option<String> {
        Handle::current().block_on(async {
            let redlock = match self.nodes.client(LOOKER) {
                Ok(redlock) => redlock,
                Err(error) => return Some(error.to_string()),
            };
            let begun = Instant::now();
            let mut granted = 0;
            while granted < self.nodes.urls.len() && begun.elapsed() < USABLE {
                match redlock.acquire("after all").await {
                    Ok(lease) => {
                        sleep(LOOK).await;
                        granted = lease.report().granted();
                        let _ = lease.release().await;
                    }
                    Err(_) => sleep(LOOK).await,
                }
            }
            let _ = redlock.close().await;
            let all = self.nodes.urls.len();
            let is_short = granted < all;
            is_short.then(|| format!("{granted} of {all} nodes grant a lock after all was mended"))
        })
    }

    /// Takes the keys of the run from the nodes, once no lock can be left.
    fn clean_up(&self, outcome: &mut Outcome) {
        thread::sleep(GONE);
        let findings = &mut outcome.findings;
        for (number, url) in (1..).zip(&self.nodes.urls) {
            let cleaned = Keys::on(url, &self.nodes.prefix).and_then(|keys| {
                findings.leaked_keys += keys.leaked();
                keys.remove(url)?;
                Keys::on(url, &self.nodes.prefix)
            });
            match cleaned {
                Ok(left) if left.is_empty() => {}
                Ok(_) => findings
                    .others
                    .push(format!("node {number} has keys that cannot be taken away")),
                Err(error) => {
                    findings.others.push(format!("node {number} does not tell its keys: {error}"));
                }
            }
        }
    }
}

impl Storm<'_> {
    /// Makes faults until the time is over; says why if it ends before that. All are mended then.
    fn rage(&mut self) -> Option<Stop> {
        let Torture { faults, who, lasts, is_inside, .. } = self.torture;
        // Times have an end, too.
        let until = Instant::now() + (*lasts).min(FOREVER);
        let most = Torture::most(self.torture.size(), *is_inside);
        let mut plan = Plan::new(faults, most, who.seed);
        let mut stopped = self.wait_until(until.min(Instant::now() + CALM));
        while stopped.is_none() && Instant::now() < until {
            stopped = match plan.next() {
                None => self.wait_until(until),
                Some(wave) => self.wave(&wave, until),
            };
        }
        stopped.or_else(|| self.wait_until(Instant::now() + CALM))
    }

    /// Applies some faults, and mends them whatever happens. A fault that cannot be applied is recorded and skipped.
    fn wave(&mut self, wave: &plan::Wave, until: Instant) -> Option<Stop> {
        let faults: Vec<_> =
            wave.faults.iter().map(|one| (*one, &self.torture.faults[*one])).collect();
        let begun = self.done.len();
        for (number, fault) in &faults {
            self.note(*number, fault);
        }
        let applied = all(&faults, Fault::inflict);
        let mut stopped = None;
        if applied.iter().any(Result::is_ok) {
            stopped = self.wait_until(Instant::now() + wave.lasts);
        }
        let mended = all(&faults, Fault::mend);
        let now = self.now();
        let records: Vec<_> = self.done.drain(begun..).collect();
        for ((record, applied), mended) in records.into_iter().zip(applied).zip(mended) {
            match applied {
                Ok(()) => self.done.push(record::Fault { until: now, ..record }),
                // An error of its mending command is ignored: the node may be well.
                Err(why) => {
                    output::complain(format_args!("skipped a fault: {why}"));
                    let record::Fault { nemesis, target, from, .. } = record;
                    self.skipped.push(SkippedFault { nemesis, target, from, until: now, why });
                    continue;
                }
            }
            if let Err(why) = mended {
                output::complain(format_args!("NOT MENDED, do it by hand: {why}"));
                stopped = Some(Stop::Failed(why));
            }
        }
        if stopped.is_some() || Instant::now() >= until {
            return stopped;
        }
        // Nodes that were restarted count again before others are faulted.
        self.wait_until(Instant::now() + wave.rest)
    }

    /// Records that a fault begins. Its end is recorded later.
    fn note(&mut self, number: usize, fault: &Fault) {
        self.done.push(record::Fault {
            nemesis: fault.inflict.clone(),
            target: match fault.node {
                Some(node) => format!("node {node}"),
                None => format!("fault {}", number + 1),
            },
            from: self.now(),
            until: u64::MAX,
            is_promised: self.torture.is_inside,
        });
    }

    /// Waits, shows how it goes, and hears what it is told.
    fn wait_until(&mut self, until: Instant) -> Option<Stop> {
        loop {
            let next = until.min(self.shown + SHOW);
            match self.stop.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(signal) => return Some(Stop::Asked(signal)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return None,
                // Nobody can tell us any more: the time alone counts.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.shown = Instant::now();
                    self.session.show(&self.done);
                }
            }
        }
    }

    /// On the clock of the run.
    fn now(&self) -> u64 {
        boot::now() - self.torture.who.origin
    }
}

/// The exit code of a run, in which nobody ever had a lock if it is empty, and something was found if it is bad.
fn verdict(stopped: Option<&Stop>, is_empty: bool, is_bad: bool) -> Code {
    match stopped {
        // That says more than what was found of it.
        None if is_empty => Code::NO_QUORUM,
        _ if is_bad => Code::NO,
        Some(Stop::Failed(_)) => Code::FAILED,
        Some(Stop::Asked(signal)) => guard::code(*signal),
        None => Code::OK,
    }
}

/// Calls `what` for all faults at once.
fn all(
    faults: &[(usize, &Fault)],
    what: fn(&Fault) -> Result<(), String>,
) -> Vec<Result<(), String>> {
    thread::scope(|scope| {
        let each: Vec<_> = faults.iter().map(|(_, one)| scope.spawn(|| what(one))).collect();
        each.into_iter().map(|one| one.join().unwrap_or(Err("a panic".to_owned()))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_the_promise_a_majority_is_left_alone() {
        let most = |is_inside| [1, 2, 3, 4, 5, 7].map(|nodes| Torture::most(nodes, is_inside));
        assert_eq!(most(true), [0, 0, 1, 1, 2, 3]);
        assert_eq!(most(false), [1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn what_was_found_counts_before_why_it_ended_and_no_lock_at_all_before_that() {
        let (asked, failed) = (Stop::Asked(Signal::INT), Stop::Failed(String::new()));
        for (stopped, is_empty, is_bad, code) in [
            (None, false, false, Code::OK),
            (None, false, true, Code::NO),
            (None, true, false, Code::NO_QUORUM),
            (None, true, true, Code::NO_QUORUM),
            (Some(&asked), true, false, Code::of_signal(2)),
            (Some(&asked), false, true, Code::NO),
            (Some(&failed), true, false, Code::FAILED),
            (Some(&failed), false, true, Code::NO),
        ] {
            assert_eq!(verdict(stopped, is_empty, is_bad), code, "{stopped:?} {is_empty} {is_bad}");
        }
    }
}
