//! Executes a plan of faults.

use crate::admission::{Admission, Target};
use crate::apply::ProxiedNode;
use crate::log::{Log, lock};
use crate::nemesis::{CLOCK_REREAD_LIMIT, Nemesis, TargetClass};
use crate::outage;
use crate::plan::Planned;
use crate::rolling::Rolling;
use harness::boot;
use harness::fleet::Fleet;
use harness::record::Fault;
use std::io;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// The maximum time that a fault waits for admission. After that, it is skipped.
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum time until a new client has received replies from all nodes. Clocks do not step
/// during this time.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Executor<'a> {
    pub(crate) nodes: &'a [ProxiedNode],
    pub(crate) fleet: &'a Fleet,
    pub(crate) admission: &'a Admission,
    pub(crate) is_inside: bool,
    /// The start of the run, as a reading of the boot clock.
    pub(crate) origin: u64,
    pub(crate) log: &'a Log,
}

impl Executor<'_> {
    /// Applies all planned faults at their times after `begin`. Returns when all faults have ended.
    pub(crate) fn run(&self, plan: &[Planned], begin: u64) {
        thread::scope(|scope| {
            for planned in plan {
                boot::sleep_until(begin + boot::nanos(planned.at));
                scope.spawn(|| self.apply(planned));
            }
        });
    }

    fn apply(&self, planned: &Planned) {
        let Planned { nemesis, target, .. } = *planned;
        let Some(_permit) = self.admission.acquire_permit(&planned.claims(), PATIENCE) else {
            return;
        };
        let done = match target {
            Target::Network if let Some(rolling) = &planned.rolling => self.roll(planned, rolling),
            Target::NewClient(number) => {
                self.run_new_client(planned, self.fleet.temporary(number));
                Ok(())
            }
            Target::Node(node) => self.fault_node(planned, node),
            Target::Client(slot) => {
                self.fault_client(planned, slot);
                Ok(())
            }
            Target::Network if nemesis == Nemesis::WipeAll => self.wipe(planned),
            Target::Network => {
                self.slow_down(planned);
                Ok(())
            }
        };
        if let Err(error) = done {
            let failure = format!("{} at {target}: {error}", nemesis.name());
            lock(&self.log.failures).push(failure);
        }
    }

    fn fault_node(&self, planned: &Planned, number: u16) -> io::Result<()> {
        let (Planned { nemesis, magnitude, lasts, .. }, node) =
            (planned, &self.nodes[usize::from(number)]);
        let index = self.log_start(planned, Target::Node(number));
        if *nemesis == Nemesis::StepForward {
            // The step must be recorded before it can have an effect.
            let at = boot::now() - self.origin;
            lock(&self.log.steps).record(number, at, boot::nanos(*magnitude));
        }
        let done = node.apply(*nemesis, *magnitude).and_then(|undo| {
            // For rolling restarts, `roll` waits instead.
            thread::sleep(if planned.rolling.is_some() { Duration::ZERO } else { *lasts });
            node.heal(*nemesis, undo)
        });
        let Fault { from, until, .. } = self.log_end(index);
        lock(&self.log.outages).extend(outage::of(*nemesis, number, from, until));
        if !nemesis.recovery_time().is_zero() {
            self.admission.claim_for(
                (Target::Node(number), TargetClass::RecentlyFaulty),
                nemesis.recovery_time(),
            );
        }
        if nemesis.delays() {
            self.admission
                .claim_for((Target::Node(number), TargetClass::Delayed), CLOCK_REREAD_LIMIT);
        }
        done
    }

    fn roll(&self, planned: &Planned, rolling: &Rolling) -> io::Result<()> {
        let mut next = boot::now();
        for node in &rolling.nodes {
            boot::sleep_until(next);
            next = boot::now() + boot::nanos(rolling.gap);
            self.fault_node(planned, *node)?;
        }
        thread::sleep(rolling.settles());
        Ok(())
    }

    fn slow_down(&self, planned: &Planned) {
        let index = self.log_start(planned, planned.target);
        self.nodes.iter().for_each(|node| node.delay(planned.magnitude));
        thread::sleep(planned.lasts);
        self.nodes.iter().for_each(|node| node.delay(Duration::ZERO));
        self.admission.claim_for((planned.target, TargetClass::Delayed), CLOCK_REREAD_LIMIT);
        self.log_end(index);
    }

    fn wipe(&self, planned: &Planned) -> io::Result<()> {
        let index = self.log_start(planned, planned.target);
        let wiped: Vec<_> = thread::scope(|scope| {
            let each: Vec<_> = self.nodes.iter().map(|node| scope.spawn(|| node.wipe())).collect();
            let ended = each.into_iter().map(ScopedJoinHandle::join);
            ended.map(|end| end.unwrap_or_else(|_| Err(io::Error::other("a panic")))).collect()
        });
        self.log_end(index);
        wiped.into_iter().collect()
    }

    fn fault_client(&self, planned: &Planned, slot: u16) {
        let index = self.log_start(planned, planned.target);
        let begin = boot::now() - self.origin;
        if planned.nemesis == Nemesis::HangClient {
            self.fleet.stop(slot);
            thread::sleep(planned.lasts);
            self.fleet.cont(slot, begin);
            self.log_end(index);
        } else {
            self.fleet.kill(slot);
            thread::sleep(planned.lasts);
            self.fleet.start(slot);
            self.log_end(index);
            self.fleet.await_ready(slot, READY_LIMIT);
        }
    }

    /// Starts a temporary client. Later, either asks it to end or kills it, with equal probability.
    fn run_new_client(&self, planned: &Planned, slot: u16) {
        let index = self.log_start(planned, planned.target);
        self.fleet.start(slot);
        thread::sleep(planned.lasts);
        if planned.magnitude.subsec_nanos().is_multiple_of(2) {
            self.fleet.dismiss(slot);
        } else {
            self.fleet.kill(slot);
        }
        self.log_end(index);
    }

    /// Records the start of a fault, and returns its index in the log. Until the fault ends, its
    /// recorded end is `u64::MAX`.
    fn log_start(&self, planned: &Planned, target: Target) -> usize {
        let mut faults = lock(&self.log.faults);
        faults.push(Fault {
            nemesis: planned.nemesis.name().to_owned(),
            target: target.to_string(),
            from: boot::now() - self.origin,
            until: u64::MAX,
            is_guaranteed: planned.nemesis.is_guaranteed(self.is_inside),
        });
        faults.len() - 1
    }

    fn log_end(&self, index: usize) -> Fault {
        let mut faults = lock(&self.log.faults);
        faults[index].until = boot::now() - self.origin;
        faults[index].clone()
    }
}
