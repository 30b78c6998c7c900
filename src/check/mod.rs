//! Checks whether locks are safe on the nodes: [`Redlock::check`](crate::Redlock::check) and its findings.
//!
//! A check also compares the nodes with each other. The result of a check does not affect how the client uses the
//! nodes.

mod finding;
mod offset;
mod probe;
mod session;

pub use finding::{Finding, Severity};
pub use offset::ClockOffset;

use crate::node::{NoRuntime, Pool};
use crate::random::Random;
use crate::wire::{
    Facts, Fsync, Inspection, Key, Keys, NodeFailure, Persistence, Role, ServerInfo, short,
};
use offset::{ClockDisagreement, find_disagreement, offsets};
use probe::Probe;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The largest clock offset that a check does not report. Time daemons may correct a larger offset by stepping the
/// clock (`STEPT` of RFC 5905).
const STEP: Duration = Duration::from_millis(125);

/// The result of [`Redlock::check`](crate::Redlock::check) for one node.
///
/// A method returns `None` if the check could not determine the fact. If the server does not permit the necessary
/// command, the findings contain a [`Finding::Unknown`].
///
/// The `Display` text has one line for the node, and one more line for each finding:
///
/// ```text
/// a:6379: Redis 7.0.15, master, up 3d 4h, no persistence, noeviction, clock 0.1ms ±0.2ms ahead
///   warning: no persistence: a restart loses all locks; …
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeCheck {
    name: Arc<str>,
    version: Option<String>,
    role: Option<Role>,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "uptime_seconds", serialize_with = "crate::wire::seconds")
    )]
    uptime: Option<Duration>,
    persistence: Option<Persistence>,
    #[cfg_attr(feature = "serde", serde(rename = "maxmemory_bytes"))]
    maxmemory: Option<u64>,
    eviction_policy: Option<String>,
    clock_offset: Option<ClockOffset>,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "latency_seconds", serialize_with = "crate::wire::seconds")
    )]
    latency: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "described"))]
    findings: Vec<Finding>,
}

/// Serializes each finding together with its severity, and with its text as `message`.
#[cfg(feature = "serde")]
fn described<S: serde::Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Described<'a> {
        severity: Severity,
        message: String,
        #[serde(flatten)]
        finding: &'a Finding,
    }

    serializer.collect_seq(findings.iter().map(|finding| Described {
        severity: finding.severity(),
        message: finding.to_string(),
        finding,
    }))
}

impl NodeCheck {
    /// Adds findings, and sorts all findings by severity.
    pub(crate) fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    }

    /// Returns the node's address, without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name and version of the server, such as `Redis 7.0.15` or `Valkey 9.1.2`.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the replication role of the server. Locks require a master.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// Returns the uptime of the server process, in whole seconds.
    pub fn uptime(&self) -> Option<Duration> {
        self.uptime
    }

    /// Returns the persistence settings of the server.
    pub fn persistence(&self) -> Option<Persistence> {
        self.persistence
    }

    /// Returns the memory limit of the server in bytes. Zero means that there is no limit.
    pub fn maxmemory(&self) -> Option<u64> {
        self.maxmemory
    }

    /// Returns the policy by which the server evicts keys at its memory limit, such as `noeviction`.
    pub fn eviction_policy(&self) -> Option<&str> {
        self.eviction_policy.as_deref()
    }

    /// Returns how far the server's wall clock is from the other nodes' clocks. The server uses its wall clock to
    /// expire locks. Returns `None` if the server's clock was not read, or if no other node's clock is known.
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.clock_offset
    }

    /// Returns the network latency: the shortest round-trip time of several commands.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Returns the findings, most severe first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the highest severity of the findings, or `None` if there are no findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Finding::severity).max()
    }

    fn new(name: Arc<str>, probe: Result<&Probe, &NodeFailure>) -> Self {
        let facts = probe.ok().map(|probe| &probe.inspection.facts);
        let findings = match probe {
            Ok(probe) => findings(probe),
            Err(failure) => vec![Finding::Unreachable { failure: failure.clone() }],
        };
        Self {
            name,
            version: facts.and_then(Facts::version),
            role: facts.and_then(Facts::role),
            uptime: facts.and_then(Facts::uptime),
            persistence: facts.and_then(Facts::persistence),
            maxmemory: facts.and_then(Facts::maxmemory),
            eviction_policy: facts.and_then(Facts::eviction_policy).map(str::to_owned),
            clock_offset: None,
            latency: probe.ok().and_then(|probe| probe.latency),
            findings,
        }
    }
}

/// Returns a random resource name for a check, which tries the lock commands on this resource. The name contains a
/// UUID, so that no existing key has it.
pub(crate) fn probe_resource(random: &Random) -> Vec<u8> {
    format!("quorlock-check:{}", random.uuid().simple()).into()
}

/// Checks all nodes concurrently, and tries the lock commands on `key`. `preview` predicts how the restart guard
/// would treat the nodes; see [`Backing::preview_guard`](crate::lease::Backing::preview_guard).
pub(crate) async fn check(
    pool: &Pool,
    preview: impl Fn(&[Option<ServerInfo>]) -> Vec<Option<NodeFailure>>,
    key: Key,
) -> Result<Vec<NodeCheck>, NoRuntime> {
    let runtime = pool.runtime()?;
    let (keys, nodes) = (Keys::one(key), pool.nodes());
    let (mut tasks, mut receivers) = (JoinSet::new(), Vec::new());
    for node in nodes {
        let (node, keys) = (node.clone(), keys.clone());
        let (sender, receiver) = oneshot::channel();
        let look = async move {
            let _ = sender.send(Probe::run(&node, &keys).await);
        };
        tasks.spawn_on(pool.environment().task(look), &runtime);
        receivers.push(receiver);
    }
    let mut probes = Vec::new();
    for receiver in receivers {
        probes.push(receiver.await.unwrap_or(Err(NodeFailure::ShutDown)));
    }
    let names: Vec<Arc<str>> = nodes.iter().map(|node| node.name.clone()).collect();
    let clock = pool.clock();
    let wall = i128::from(clock.wall_us()) * 1_000;
    let client = i64::try_from(wall - i128::from(clock.now().as_nanos())).unwrap_or_default();
    let mut checks = compared(&names, &probes, client);
    let servers: Vec<_> = probes
        .iter()
        .map(|probe| probe.as_ref().ok().map(|probe| ServerInfo::of(&probe.inspection.facts)))
        .collect();
    let quarantined = preview(&servers);
    for ((check, server), failure) in checks.iter_mut().zip(&servers).zip(quarantined) {
        // An unreachable node already has a finding.
        let failure = failure.filter(|_| server.is_some());
        check.add(failure.map(|failure| Finding::Quarantined {
            counts_in: failure.counts_in().unwrap_or_default(),
            failure,
        }));
    }
    Ok(checks)
}

/// Creates the result for each node from its probe, including findings from the comparison of the nodes. `client` is
/// the offset of this client's wall clock from its monotonic clock, in nanoseconds.
fn compared(
    names: &[Arc<str>],
    probes: &[Result<Probe, NodeFailure>],
    client: i64,
) -> Vec<NodeCheck> {
    let readings: Vec<_> = probes.iter().map(|probe| probe.as_ref().ok()?.clock).collect();
    let offsets = offsets(&readings);
    let shown = |places: &[usize]| places.iter().map(|place| names[*place].to_string()).collect();
    let disagreement = find_disagreement(&readings, &offsets, client, STEP).map(|found| {
        let ClockDisagreement { by, near, far } = found;
        Finding::ClocksDisagree { by, near_client: shown(&near), others: shown(&far) }
    });
    let run_ids: Vec<_> =
        probes.iter().map(|probe| probe.as_ref().ok()?.inspection.facts.run_id()).collect();
    let check = |(place, offset): (usize, Option<ClockOffset>)| {
        let mut node = NodeCheck::new(names[place].clone(), probes[place].as_ref());
        node.clock_offset = offset;
        let off = offset.filter(|offset| offset.certain() > STEP);
        let off = off.map(|offset| Finding::ClockOff { offset });
        node.findings.extend(disagreement.clone().filter(|_| offset.is_some()).or(off));
        let twins = (0..run_ids.len()).filter(|other| *other != place);
        let twins =
            twins.filter(|other| run_ids[place].is_some() && run_ids[*other] == run_ids[place]);
        node.findings
            .extend(twins.map(|twin| Finding::SameServer { other: names[twin].to_string() }));
        node
    };
    offsets.into_iter().enumerate().map(check).collect()
}

fn findings(probe: &Probe) -> Vec<Finding> {
    let Probe {
        inspection: Inspection { facts, refusals, no_pushes }, clock, refuses_time, ..
    } = probe;
    let mut found = Vec::new();
    if facts.is_replica() {
        found.push(Finding::Replica);
    }
    let refused = refusals.iter().cloned();
    found.extend(refused.map(|(command, failure)| Finding::Refused { command, failure }));
    let evicted = facts.evicted();
    found.extend(
        facts.evicting().map(|policy| Finding::Evicting { policy: policy.to_owned(), evicted }),
    );
    found.extend(refuses_time.then_some(Finding::ClockUnreadable));
    match facts.persistence() {
        Some(Persistence::AppendOnly(Some(Fsync::Always))) if facts.skips_fsync_on_rewrite() => {
            found.push(Finding::NoFsyncOnRewrite);
        }
        None | Some(Persistence::AppendOnly(Some(Fsync::Always))) => {}
        Some(persistence) => found.push(Finding::NotDurable { persistence }),
    }
    found.extend(no_pushes.clone().map(|failure| Finding::NoPushes { failure }));
    if facts.replicas() > 0 {
        found.push(Finding::HasReplicas { count: facts.replicas() });
    }
    let watching = facts.sentinels().filter(|sentinels| *sentinels > 0);
    found.extend(watching.map(|sentinels| Finding::Watched { sentinels }));
    let has_eviction = facts.maxmemory().is_some() && facts.eviction_policy().is_some();
    for (is_known, what, needs) in [
        (facts.version().is_some(), "version", "+info"),
        (facts.role().is_some(), "role", "+info"),
        (facts.run_id().is_some(), "server identity", "+info"),
        (has_eviction, "eviction policy", "+info"),
        (facts.persistence().is_some(), "persistence", "+info +config|get"),
        (clock.is_some() || *refuses_time, "clock", "+time"),
        (facts.sentinels().is_some(), "Sentinels", "+pubsub|numsub"),
    ] {
        if !is_known {
            found.push(Finding::Unknown { what, needs });
        }
    }
    found
}

fn age(uptime: Duration) -> String {
    let seconds = uptime.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {}m", minutes % 60),
        (..) => format!("{days}d {}h", hours % 24),
    }
}

impl fmt::Display for NodeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            self.version.clone(),
            self.role.map(|role| role.to_string()),
            self.uptime.map(|uptime| format!("up {}", age(uptime))),
            self.persistence.map(|persistence| persistence.to_string()),
            self.eviction_policy.clone(),
            self.clock_offset.map(|offset| format!("clock {offset}")),
            self.latency.map(|latency| format!("latency {}", short(latency))),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        write!(f, "{}: ", self.name)?;
        f.write_str(if known.is_empty() { "no information" } else { "" })?;
        f.write_str(&known.join(", "))?;
        for finding in &self.findings {
            write!(f, "\n  {}: {finding}", finding.severity())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_format() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (61, "1m 1s"), (7_260, "2h 1m"), (273_600, "3d 4h")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
