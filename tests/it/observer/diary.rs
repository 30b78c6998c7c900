//! An observer that writes everything down, and asks its client at each event.

use quorlock::{
    AcquireBegun, AcquireEnded, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver, LeaseLost,
    NodeChanged, Observer, Redlock, ReleaseBegun, ReleaseEnded, ReleasesOwed, RenewalFailing,
    Renewed, Report,
};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Events, one on a line. Those of locks begin with `acquire` or `lease`, those of nodes with its name.
#[derive(Default)]
pub(super) struct Diary {
    lines: Mutex<Vec<String>>,
    left: Mutex<Vec<Duration>>,
    client: OnceLock<Redlock>,
}

fn by(report: Option<&Report>) -> &'static str {
    match report {
        None => "",
        Some(report) if report.granted() >= report.needed() => " by a quorum",
        Some(_) => " without a quorum",
    }
}

impl Diary {
    /// Asks this client at each event: a lock that is held meanwhile would never be let go.
    pub(super) fn asks(&self, redlock: &Redlock) {
        assert!(self.client.set(redlock.clone()).is_ok(), "once");
    }

    fn write(&self, line: String) {
        if let Some(redlock) = self.client.get() {
            assert!(!redlock.nodes().is_empty());
            let _ = redlock.leases().len();
        }
        self.lines.lock().expect("nothing panics").push(line);
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.lines.lock().expect("nothing panics").clone()
    }

    /// What concerns locks.
    pub(super) fn of_locks(&self) -> Vec<String> {
        let mut lines = self.all();
        lines.retain(|line| line.starts_with("acquire") || line.starts_with("lease"));
        lines
    }

    /// How many lines have `part` in them.
    pub(super) fn count(&self, part: &str) -> usize {
        self.all().iter().filter(|line| line.contains(part)).count()
    }

    /// What was left, each time that a renewal failed.
    pub(super) fn left(&self) -> Vec<Duration> {
        self.left.lock().expect("nothing panics").clone()
    }
}

impl Observer for Diary {
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {
        let lock = event.lock;
        let what = match (event.is_adoption, event.wait) {
            (true, _) => "adopts".to_owned(),
            (false, wait) => format!("waits {:?}", wait.unwrap_or_default()),
        };
        let class = lock.class.unwrap_or("-");
        self.write(format!("acquire {} {} {class} begun, {what}", lock.id, lock.resources));
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        let AttemptEnded { lock, number, outcome, report, .. } = event;
        assert!(event.took < Duration::from_mins(1));
        let by = by(Some(report));
        self.write(format!("acquire {} attempt {number} {outcome:?}{by}", lock.id));
    }

    fn acquire_ended(&self, event: &AcquireEnded<'_>) {
        let AcquireEnded { lock, outcome, token, report, .. } = event;
        let is_won = outcome.as_str() == "won";
        assert_eq!(event.validity.is_zero(), !is_won);
        let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
        let by = report.map(|report| format!(",{}", by(Some(report)))).unwrap_or_default();
        let class = lock.class.unwrap_or("-");
        self.write(format!("acquire {} {} {class} {outcome}{token}{by}", lock.id, lock.resources));
    }

    fn handed_over(&self, event: &HandedOver<'_>) {
        self.write(format!("acquire {} {} handed over", event.lock.id, event.lock.resources));
    }

    fn extend_begun(&self, event: &ExtendBegun<'_>) {
        let ExtendBegun { lock, id, ttl, .. } = event;
        let class = lock.class.unwrap_or("-");
        let what = format!("{} {class} extend {id} begun to {ttl:?}", lock.resources);
        self.write(format!("lease {} {what}", lock.id));
    }

    fn extend_ended(&self, event: &ExtendEnded<'_>) {
        let ExtendEnded { lock, id, outcome, report, .. } = event;
        let outcome = outcome.as_str();
        self.write(format!("lease {} extend {id} {outcome}{}", lock.id, by(*report)));
    }

    fn renewed(&self, event: &Renewed<'_>) {
        assert!(event.slack <= event.validity);
        let Renewed { lock, failures, .. } = event;
        self.write(format!("lease {} renewed after {failures} failures", lock.id));
    }

    fn renewal_failing(&self, event: &RenewalFailing<'_>) {
        let RenewalFailing { lock, failures, held, report, left, .. } = event;
        self.left.lock().expect("nothing panics").push(*left);
        let what = format!("failing {failures} times, {held} held,{}", by(Some(report)));
        self.write(format!("lease {} {} {what}", lock.id, lock.resources));
    }

    fn lease_lost(&self, event: &LeaseLost<'_>) {
        let LeaseLost { lock, reason, .. } = event;
        let class = lock.class.unwrap_or("-");
        self.write(format!("lease {} {} {class} lost: {reason:?}", lock.id, lock.resources));
    }

    fn release_begun(&self, event: &ReleaseBegun<'_>) {
        let ReleaseBegun { lock, loss, .. } = event;
        let class = lock.class.unwrap_or("-");
        let what = format!("{class} release begun, loss {loss:?}");
        self.write(format!("lease {} {} {what}", lock.id, lock.resources));
    }

    fn release_ended(&self, event: &ReleaseEnded<'_>) {
        let (lock, result) = (event.lock, event.result.as_str());
        self.write(format!("lease {} {} release {result}", lock.id, lock.resources));
    }

    fn node_changed(&self, event: &NodeChanged<'_>) {
        let NodeChanged { node, from, to, counted, nodes, needed, .. } = event;
        assert_eq!(event.reason.is_some(), !matches!(to.as_str(), "counted" | "stalled"));
        self.write(format!("{node} {from:?} -> {to:?}, {counted} of {nodes} need {needed}"));
    }

    fn releases_owed(&self, event: &ReleasesOwed<'_>) {
        self.write(format!("{} is owed {}", event.node, event.owed));
    }
}
