//! A session: starts client processes that compete for locks, ends them, and checks their records.

use crate::boot;
use crate::check::{self, SLACK};
use crate::choice::LONGEST_TTL;
use crate::early_losses;
use crate::fence::Fence;
use crate::fleet::{self, Fleet, Program};
use crate::ledger::{self, Ledger};
use crate::line::{ClientConfig, Nodes, Sabotage};
use crate::record::{Fault, Fencing, Findings, SkippedFault};
use crate::resources::RESOURCES;
use crate::say;
use crate::service::{Availability, Gap, Outage};
use crate::steps::Steps;
use crate::store::{Audit, Store};
use std::sync::Arc;
use std::time::Duration;

/// The time after the end of a session by which all its locks have expired: the longest TTL, plus
/// half a second as a margin.
pub const KEYS_EXPIRE_AFTER: Duration = LONGEST_TTL.saturating_add(Duration::from_millis(500));

/// How many client processes and tasks a session starts.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    /// Number of permanent clients, which run from the start of the session.
    pub clients: u16,
    /// Number of slots for temporary clients, which the torture program starts and ends during the
    /// session.
    pub temporary: u16,
    /// Number of tasks in each permanent client.
    pub tasks: u16,
    /// Creates the command for a client process.
    pub program: Program,
}

/// Identifies a session within its run.
#[derive(Clone, Copy, Debug)]
pub struct RunPart {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of this part within the run.
    pub part: u16,
    /// Start of the run on the [boot clock](boot::now), in nanoseconds.
    pub origin: u64,
    /// Bug to build into the first client, if any.
    pub sabotage: Option<Sabotage>,
}

/// A running session, whose client processes compete for locks.
pub struct Session {
    fleet: Fleet,
    sinks: fleet::Sinks,
    clients: u16,
    nodes: usize,
    origin: u64,
}

/// The conditions of a session that its checks depend on.
#[derive(Debug)]
pub struct RunContext {
    /// Number of nodes.
    pub nodes: u16,
    /// Whether Redlock guarantees mutual exclusion under all faults of the session.
    pub is_inside: bool,
    /// Start and end of the interval with faults, in nanoseconds since the start of the run.
    pub span: (u64, u64),
    /// Faults that were applied.
    pub faults: Vec<Fault>,
    /// Faults that could not be applied.
    pub skipped: Vec<SkippedFault>,
    /// Forward steps of the nodes' clocks.
    pub steps: Steps,
    /// Intervals during which a node was unavailable.
    pub outages: Vec<Outage>,
    /// Intervals in which nodes may have restarted without data, in nanoseconds since the start of
    /// the run.
    pub data_losses: Vec<(u64, u64)>,
    /// Intervals in which nodes may have lost fencing counters, in nanoseconds since the start of
    /// the run.
    pub counter_losses: Vec<(u64, u64)>,
    /// Product and version of the server, as reported by a node.
    pub server: String,
}

/// The results of a session.
pub struct Outcome {
    pub(crate) records: ledger::Records,
    pub(crate) faults: Vec<Fault>,
    pub(crate) skipped: Vec<SkippedFault>,
    /// The findings of the checks. The torture program can add its own findings.
    pub findings: Findings,
    pub(crate) fencing: Fencing,
    pub(crate) updates: u64,
    /// Periods in which no client acquired a lock although a majority of the nodes was available.
    pub(crate) gaps: Vec<Gap>,
    pub(crate) server: String,
}

impl Session {
    /// Starts the client processes.
    pub fn begin(plan: ClientPlan, part: RunPart, nodes: &Nodes) -> Self {
        let RunPart { seed, part, origin, sabotage } = part;
        let ClientPlan { clients, temporary, tasks, program } = plan;
        let nodes = nodes.clone();
        let count = nodes.urls.len();
        let config = ClientConfig { seed, part, client: 0, tasks, nodes, origin, sabotage };
        let (ledger, store) = (Arc::default(), Arc::new(Store::new(RESOURCES)));
        let sinks = fleet::Sinks { ledger, store };
        let fleet = Fleet::launch((clients, temporary), program, config, sinks.clone());
        Self { fleet, sinks, clients, nodes: count, origin }
    }

    /// Returns the client processes, to which the torture program applies faults.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Waits until every node has replied to each permanent client. If this takes a client longer
    /// than `limit`, adds a finding.
    pub fn await_ready(&self, limit: Duration) {
        for slot in (0..self.clients).filter(|slot| !self.fleet.await_ready(*slot, limit)) {
            let finding = format!("client {slot} has not received a reply from every node");
            self.ledger().lock().others.push(finding);
        }
    }

    /// Prints the progress of the session.
    pub fn show(&self, faults: &[Fault]) {
        let (holds, calls) = {
            let records = self.ledger().lock();
            (records.ended(), records.calls.len())
        };
        let active = faults.iter().filter(|fault| fault.until == u64::MAX).count();
        say!(
            "{:6.1} s  {} nodes  {:6} calls  {:6} tenures  {:4} faults, {active} active  {} \
             overlaps",
            Duration::from_nanos(boot::now() - self.origin).as_secs_f64(),
            self.nodes,
            calls,
            holds.len(),
            faults.len(),
            check::overlaps(&holds, &[]).len(),
        );
    }

    /// Ends all clients, and waits until their processes have exited.
    pub fn end(self) -> Ended {
        self.fleet.end();
        let fleet::Sinks { ledger, store } = self.sinks;
        let records = ledger.lock().clone();
        Ended { records, store }
    }

    fn ledger(&self) -> &Ledger {
        &self.sinks.ledger
    }
}

/// A session that has ended and whose records can be checked.
pub struct Ended {
    records: ledger::Records,
    store: Arc<Store>,
}

impl Ended {
    /// Checks the records of the session.
    pub fn judge(self, context: RunContext) -> Outcome {
        let Self { records, store } = self;
        let mut findings = found(&records, &context.faults, &context.steps);
        let gaps = gaps(&records, &context, &mut findings);
        if context.is_inside {
            let losses = early_losses::unexplained(
                &records.lost_early,
                &context.steps,
                &context.data_losses,
            );
            findings.others.extend(losses);
            findings.others.extend(check::repeated_runs(&records.holds, &context.counter_losses));
        }
        let (mut updates, mut writes) = (0, Vec::new());
        for audit in store.audit() {
            let Audit { updates: more, lost, writes: of_one } = audit;
            updates += more;
            findings.lost_updates += lost;
            writes.push(of_one);
        }
        let losses = &context.counter_losses;
        let fence = Fence::new(&records.holds, writes, &context.faults, losses);
        let fenced = fence.examine(context.is_inside, &records.pauses);
        findings.breaches = fenced.breaches;
        findings.others.extend(fenced.unmatched);
        let RunContext { faults, skipped, server, .. } = context;
        let fencing = fenced.fencing;
        Outcome { records, faults, skipped, findings, fencing, updates, gaps, server }
    }
}

/// Returns all periods without a new lock, and adds the long ones to the findings. Outside the
/// guarantee, returns no periods, because nodes may be unavailable at any time.
fn gaps(records: &ledger::Records, context: &RunContext, findings: &mut Findings) -> Vec<Gap> {
    if !context.is_inside {
        return Vec::new();
    }
    let availability =
        Availability { nodes: context.nodes, span: context.span, outages: &context.outages };
    let gaps = availability.gaps(&records.holds);
    findings.others.extend(gaps.iter().filter_map(|gap| gap.finding()));
    gaps
}

/// Checks the clients' records. Also prints overdue calls and losses that were reported late.
fn found(records: &ledger::Records, faults: &[Fault], steps: &Steps) -> Findings {
    let overdue = check::overdue(&records.calls, &records.pauses, steps);
    for call in &overdue {
        let bound = Duration::from_nanos(call.bound);
        say!("overdue call, longer than {bound:?} and {SLACK} ns: {call:?}");
    }
    let late = check::late(&records.losses, &records.pauses);
    for loss in &late {
        say!("late loss notification: {loss:?}");
    }
    Findings {
        overlaps: check::overlaps(&records.holds, faults),
        late_losses: late.len() as u64,
        overdue_calls: overdue.len() as u64,
        panics: records.panics,
        leaked_tasks: records.leaked_tasks,
        others: records.others.clone(),
        ..Findings::default()
    }
}
