//! An observer that records events as lines and calls its client at each event.

use quorlock::event::{Event, LockInfo, NodeHealth};
use quorlock::{Observer, Redlock, Report};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// A list of events, one per line. Lines about locks begin with `acquire` or `lease`, and lines about nodes begin with
/// the node's name.
#[derive(Default)]
pub(super) struct Diary {
    lines: Mutex<Vec<String>>,
    left: Mutex<Vec<Duration>>,
    client: OnceLock<Redlock>,
}

fn quorum_of(report: Option<&Report>) -> &'static str {
    match report {
        None => "",
        Some(report) if report.granted() >= report.needed() => " by a quorum",
        Some(_) => " without a quorum",
    }
}

impl Diary {
    /// Makes this observer call `redlock` at each event. The call deadlocks if the client holds its own mutex while it
    /// emits the event.
    pub(super) fn call_at_each_event(&self, redlock: &Redlock) {
        assert!(self.client.set(redlock.clone()).is_ok(), "set once");
    }

    fn write(&self, line: String) {
        if let Some(redlock) = self.client.get() {
            assert!(!redlock.nodes().is_empty());
        }
        self.lines.lock().expect("no panic").push(line);
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.lines.lock().expect("no panic").clone()
    }

    pub(super) fn of_locks(&self) -> Vec<String> {
        let mut lines = self.all();
        lines.retain(|line| line.starts_with("acquire") || line.starts_with("lease"));
        lines
    }

    pub(super) fn count(&self, part: &str) -> usize {
        self.all().iter().filter(|line| line.contains(part)).count()
    }

    pub(super) fn left(&self) -> Vec<Duration> {
        self.left.lock().expect("no panic").clone()
    }
}

fn of(lock: &LockInfo) -> String {
    format!("{} {}", lock.resources, lock.class.unwrap_or("-"))
}

impl Diary {
    fn line_of_lock(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::AcquireStarted { lock, wait, is_adoption, .. } => {
                let what = match (is_adoption, wait) {
                    (true, _) => "adopts".to_owned(),
                    (false, wait) => format!("waits {:?}", wait.unwrap_or_default()),
                };
                format!("acquire {} {} started, {what}", lock.id, of(lock))
            }
            Event::AttemptFinished { lock, number, outcome, elapsed, report, .. } => {
                assert!(*elapsed < Duration::from_mins(1));
                let by = quorum_of(Some(report));
                format!("acquire {} attempt {number} {outcome:?}{by}", lock.id)
            }
            Event::AcquireFinished { lock, outcome, validity, token, report, .. } => {
                assert_eq!(validity.is_zero(), outcome.as_str() != "won");
                let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
                let by = report.as_ref().map(|report| format!(",{}", quorum_of(Some(report))));
                let by = by.unwrap_or_default();
                format!("acquire {} {} {outcome}{token}{by}", lock.id, of(lock))
            }
            Event::ExtendStarted { lock, id, ttl, .. } => {
                format!("lease {} {} extend {id} started to {ttl:?}", lock.id, of(lock))
            }
            Event::ExtendFinished { lock, id, outcome, report, .. } => {
                format!("lease {} extend {id} {outcome}{}", lock.id, quorum_of(report.as_ref()))
            }
            Event::LeaseRenewed { lock, slack, validity, failures, .. } => {
                assert!(slack <= validity);
                format!("lease {} renewed after {failures} failures", lock.id)
            }
            Event::RenewalFailed { lock, failures, remaining, held, report, .. } => {
                self.left.lock().expect("no panic").push(*remaining);
                let what =
                    format!("failing {failures} times, {held} held,{}", quorum_of(Some(report)));
                format!("lease {} {} {what}", lock.id, lock.resources)
            }
            Event::LeaseLost { lock, reason, .. } => {
                format!("lease {} {} lost: {reason:?}", lock.id, of(lock))
            }
            Event::ReleaseStarted { lock, loss, .. } => {
                format!("lease {} {} release started, loss {loss:?}", lock.id, of(lock))
            }
            Event::ReleaseFinished { lock, result, .. } => {
                format!("lease {} {} release {result}", lock.id, lock.resources)
            }
            _ => return None,
        })
    }

    fn line_of_node(event: &Event) -> Option<String> {
        Some(match event {
            Event::NodeHealthChanged { node, from, to, reason, counted, nodes, needed, .. } => {
                let has_reason = !matches!(to, NodeHealth::Counted | NodeHealth::Stalled);
                assert_eq!(reason.is_some(), has_reason);
                format!("{node} {from:?} -> {to:?}, {counted} of {nodes} need {needed}")
            }
            Event::PendingReleasesChanged { node, pending, .. } => {
                format!("{node} has {pending} pending")
            }
            _ => return None,
        })
    }
}

impl Observer for Diary {
    fn on_event(&self, event: &Event) {
        let line = self.line_of_lock(event).or_else(|| Self::line_of_node(event));
        if let Some(line) = line {
            self.write(line);
        }
    }
}
