//! Checks that involve the leases of several processes, such as mutual exclusion.

use crate::clock::{Instant, MS};
use crate::cool_downs::CoolDowns;
use crate::counts::{Condition, Counts, Situation};
use crate::fairness::Queues;
use crate::jobs::JobRuns;
use crate::ledger::{Commit, Ledger};
use crate::mode::Mode;
use crate::readers::LOCK;
use crate::rule::Rule;
use quorlock::{Lease, LeaseRef, Loss};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldId(pub(crate) usize);

pub(crate) struct Held {
    pub(crate) id: HeldId,
    process: usize,
    pub(crate) lease: LeaseRef,
    is_reader: bool,
    /// For a permit of a semaphore, the number of permits that the holder uses.
    pub(crate) permits: Option<usize>,
    begun: Instant,
    was_lost: bool,
}

/// How a task that acquired a lease uses the locks.
pub(crate) struct Usage<'a> {
    pub(crate) process: usize,
    pub(crate) resources: &'a [usize],
    pub(crate) is_reader: bool,
    /// For a permit of a semaphore, the number of permits that the holder uses.
    pub(crate) permits: Option<usize>,
    pub(crate) now: Instant,
}

/// The last lease of a lock that has begun.
struct LastLease {
    id: HeldId,
    process: usize,
    is_reader: bool,
    /// Whether the holder relied on the lease until the lease expired.
    has_expired: bool,
}

/// A lease whose holder has handed the lock over to another task, but keeps the lease.
struct HandedOverLease {
    process: usize,
    client: u64,
    lease: LeaseRef,
    adopted_by: Option<u64>,
}

/// A shared number that tasks increment while they hold a lock. An increment is a read and a later
/// write, so an overlap of two holders loses an update.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) writes: u64,
    token: u64,
}

/// The state of all checks. It has its own mutex, because `is_valid()` of a lease reads the
/// simulated clock and thereby locks [`Shared`](crate::shared::Shared).
pub(crate) struct Checker(Mutex<CheckerState>);

pub(crate) struct CheckerState {
    mode: Mode,
    pub(crate) violation: Option<(Rule, String)>,
    pub(crate) held: BTreeMap<usize, Vec<Held>>,
    pub(crate) ledger: Ledger,
    stored: BTreeMap<usize, Stored>,
    /// The values of handed-over locks that no task has tried to adopt yet, by resource.
    pub(crate) handed_over: BTreeMap<usize, Vec<String>>,
    handed_over_leases: BTreeMap<usize, Vec<HandedOverLease>>,
    pub(crate) dropped_outside: Vec<Lease>,
    pub(crate) waiting: Queues,
    pub(crate) jobs: JobRuns,
    pub(crate) cool_downs: CoolDowns,
    /// The values of locks. They must not appear in public output.
    secrets: Vec<String>,
    last_leases: BTreeMap<usize, LastLease>,
    pub(crate) counts: Counts,
    pub(crate) grants: u64,
    pub(crate) calls: u64,
    overlaps: BTreeSet<(HeldId, HeldId)>,
}

impl Checker {
    pub(crate) fn new(mode: Mode) -> Self {
        Self(Mutex::new(CheckerState {
            dropped_outside: Vec::new(),
            waiting: Queues::default(),
            jobs: JobRuns::default(),
            cool_downs: CoolDowns::default(),
            mode,
            violation: None,
            held: BTreeMap::new(),
            ledger: Ledger::new(mode),
            stored: BTreeMap::new(),
            handed_over: BTreeMap::new(),
            handed_over_leases: BTreeMap::new(),
            secrets: Vec::new(),
            last_leases: BTreeMap::new(),
            counts: Counts::default(),
            grants: 0,
            calls: 0,
            overlaps: BTreeSet::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, CheckerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckerState {
    /// Records a violation of `rule`, which ends the run. Has no effect if the mode does not check
    /// the rule.
    pub(crate) fn violated(&mut self, rule: Rule, how: String) {
        if self.mode.checks(rule) {
            self.violation.get_or_insert((rule, how));
        }
    }

    /// Records that the condition of a rule was met, or that a situation has occurred.
    pub(crate) fn met(&mut self, condition: impl Into<Condition>) {
        self.counts.add(condition, 1);
    }

    /// Checks `rule`, whose condition is met.
    pub(crate) fn check(&mut self, rule: Rule, is_kept: bool, how: impl FnOnce() -> String) {
        self.met(rule);
        if !is_kept {
            self.violated(rule, how());
        }
    }

    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.len() as u64
    }

    /// Records that a task starts to rely on a lease. `commits` contains the lease's token for each
    /// resource, and is empty if the lease has no token. Returns the lease's ID.
    pub(crate) fn begin(
        &mut self,
        usage: &Usage<'_>,
        lease: &LeaseRef,
        commits: Vec<(usize, Commit)>,
    ) -> HeldId {
        let Usage { process, resources, is_reader, permits, now } = *usage;
        self.grants += 1;
        let id = HeldId(usize::try_from(self.grants).expect("few"));
        self.secrets.push(lease.value().chars().take(32).collect());
        for (resource, commit) in commits {
            if self.ledger.commits(resource).next().is_some() {
                self.met(Rule::Tokens);
            }
            if let Some(how) = self.ledger.commit(resource, commit) {
                self.violated(Rule::Tokens, how);
            }
        }
        for resource in resources {
            self.count_holders(*resource, LastLease { id, process, is_reader, has_expired: false });
            self.check_exclusion(*resource, Some((process, id, is_reader)));
            let lease = lease.clone();
            let held = Held { id, process, lease, is_reader, permits, begun: now, was_lost: false };
            self.held.entry(*resource).or_default().push(held);
        }
        if permits.is_some() {
            self.check_permits(id);
        }
        id
    }

    /// Counts a lease that follows another client's lease of the lock.
    fn count_holders(&mut self, resource: usize, lease: LastLease) {
        let (process, is_reader) = (lease.process, lease.is_reader);
        let Some(last) = self.last_leases.insert(resource, lease) else { return };
        if last.process == process || is_reader && last.is_reader {
            return;
        }
        self.met(if resource == LOCK { Rule::Readers } else { Rule::Exclusion });
        // A holder that has not noticed the end of its lease still relies on it.
        let relies = self.held.get(&resource).into_iter().flatten().any(|it| it.id == last.id);
        if last.has_expired || relies {
            self.met(Situation::ExpiryTakeOver);
        }
    }

    /// Counts an attempt to acquire a lock of which a node may have forgotten a valid lease.
    /// `wiped` is the time at which a node last lost its data.
    pub(crate) fn count_attempt(&mut self, resource: usize, is_reader: bool, wiped: Instant) {
        let held = self.held.get(&resource).into_iter().flatten();
        let forgotten: Vec<_> = held.filter(|it| it.begun < wiped && it.lease.is_valid()).collect();
        let Some(first) = forgotten.first() else { return };
        let situation = match first {
            Held { is_reader: true, .. } if is_reader => return,
            Held { is_reader: true, .. } => Situation::ForgottenReader,
            Held { permits: Some(_), .. } => Situation::ForgottenPermit,
            _ if resource == LOCK => Situation::ForgottenWriter,
            _ => Situation::ForgottenLock,
        };
        self.met(situation);
    }

    /// Returns true if a lease of `resource` that began before `at` is valid.
    pub(crate) fn is_held_since(&self, resource: usize, at: Instant) -> bool {
        let mut held = self.held.get(&resource).into_iter().flatten();
        held.any(|it| it.begun < at && it.lease.is_valid())
    }

    /// Records that the writer has become a reader.
    pub(crate) fn handle_downgrade(&mut self, id: HeldId) {
        let held = self.held.values_mut().flatten().filter(|held| held.id == id);
        held.for_each(|held| held.is_reader = true);
        self.cool_downs.handle_downgrade(id);
    }

    /// Checks that at most one lease of `resource` is valid, or only leases of readers, counting
    /// `newcomer` as valid. Also checks that lost leases stay lost.
    pub(crate) fn check_exclusion(
        &mut self,
        resource: usize,
        newcomer: Option<(usize, HeldId, bool)>,
    ) {
        let Some(all) = self.held.get_mut(&resource) else { return };
        let mut valid = Vec::new();
        let (mut revived, mut lost) = (None, 0);
        for held in all.iter_mut() {
            let is_valid = held.lease.is_valid();
            if is_valid {
                valid.push((held.process, held.id, held.is_reader));
            }
            if held.was_lost && is_valid {
                revived = Some((held.process, held.id));
            }
            lost += u64::from(held.was_lost);
            held.was_lost |= !is_valid;
        }
        self.counts.add(Rule::StaysLost, lost);
        if let Some((process, HeldId(id))) = revived {
            let how = format!("r{resource}: lease {id} of p{process} was lost and is valid again");
            self.violated(Rule::StaysLost, how);
        }
        self.check_handed_over_leases(resource);
        valid.extend(newcomer);
        // A lease that excludes the others comes first.
        valid.sort_by_key(|(_, _, is_reader)| *is_reader);
        if let [(first, HeldId(one), false), (second, HeldId(other), _), ..] = valid[..] {
            self.overlaps.insert((HeldId(one.min(other)), HeldId(one.max(other))));
            let how = format!(
                "r{resource}: lease {other} of p{second} begins, and lease {one} of p{first} is valid"
            );
            let rule = if resource == LOCK { Rule::Readers } else { Rule::Exclusion };
            self.violated(rule, how);
        }
    }

    /// Records that the holder of lease `id` no longer relies on it. Returns the lease, or `None`
    /// if the holder's process has ended or the holder is a reader.
    pub(crate) fn end(&mut self, id: HeldId) -> Option<LeaseRef> {
        let of_it = |all: &mut Vec<Held>| all.extract_if(.., |held| held.id == id).last();
        let ended = self.held.values_mut().filter_map(of_it).last();
        let loss = ended.as_ref().and_then(|held| held.lease.loss());
        let has_expired = matches!(loss, Some(Loss::Expired | Loss::MaxHold));
        for last in self.last_leases.values_mut().filter(|last| last.id == id) {
            last.has_expired = has_expired;
        }
        ended.filter(|held| !held.is_reader).map(|held| held.lease)
    }

    pub(crate) fn hand_over(
        &mut self,
        (process, client): (usize, u64),
        resource: usize,
        lease: &LeaseRef,
    ) {
        self.handed_over.entry(resource).or_default().push(lease.value().to_owned());
        let handed_over =
            HandedOverLease { process, client, lease: lease.clone(), adopted_by: None };
        self.handed_over_leases.entry(resource).or_default().push(handed_over);
    }

    pub(crate) fn adopted(&mut self, client: u64, resource: usize, value: &str) {
        let handed_over = self.handed_over_leases.get_mut(&resource).into_iter().flatten();
        let mut count = 0;
        for handed_over in handed_over.filter(|handed_over| handed_over.lease.value() == value) {
            handed_over.adopted_by = Some(client);
            count += 1;
        }
        self.counts.add(Rule::Adopted, count);
        self.check_handed_over_leases(resource);
    }

    pub(crate) fn is_adopted(&self, resource: usize, value: &str) -> bool {
        let mut handed_over = self.handed_over_leases.get(&resource).into_iter().flatten();
        handed_over.any(|handed_over| {
            handed_over.lease.value() == value && handed_over.adopted_by.is_some()
        })
    }

    /// Checks that no lease is valid after its own client has adopted the lease's lock.
    fn check_handed_over_leases(&mut self, resource: usize) {
        let handed_over = self.handed_over_leases.get(&resource).into_iter().flatten();
        let is_by_own =
            |handed_over: &&HandedOverLease| handed_over.adopted_by == Some(handed_over.client);
        let valid = handed_over.filter(is_by_own).find(|handed_over| handed_over.lease.is_valid());
        if let Some(HandedOverLease { process, lease, .. }) = valid {
            let how = format!(
                "r{resource}: p{process} has adopted its own lock, and the old lease is valid for {:?}",
                lease.validity()
            );
            self.violated(Rule::Adopted, how);
        }
    }

    /// Removes a handed-over lease from the checks, because its holder drops the lease.
    pub(crate) fn forget_handed_over_lease(&mut self, resource: usize, value: &str) {
        if let Some(handed_over) = self.handed_over_leases.get_mut(&resource) {
            handed_over.retain(|handed_over| handed_over.lease.value() != value);
        }
    }

    pub(crate) fn take_handed_over_value(&mut self, resource: usize) -> Option<String> {
        self.handed_over.get_mut(&resource)?.pop()
    }

    /// Removes all leases of a process that has ended.
    pub(crate) fn remove_leases_of(&mut self, process: usize) {
        let held = self.held.values().flatten().filter(|held| held.process == process);
        let ids: BTreeSet<_> = held.map(|held| held.id).collect();
        for last in self.last_leases.values_mut().filter(|last| ids.contains(&last.id)) {
            last.has_expired = true;
        }
        for all in self.held.values_mut() {
            all.retain(|held| held.process != process);
        }
        self.handed_over_leases
            .values_mut()
            .for_each(|all| all.retain(|handed_over| handed_over.process != process));
    }

    /// Reads the stored number for a task with `token`. From then on, writes with a lower token are
    /// ignored.
    pub(crate) fn read(&mut self, resource: usize, token: Option<u64>) -> Stored {
        let stored = self.stored.entry(resource).or_default();
        stored.token = token.unwrap_or_default().max(stored.token);
        *stored
    }

    /// Increments the stored number. Checks that no other task has written since `read` was read.
    /// The caller must have a token or a valid lease. A write with a token lower than the stored
    /// token is ignored.
    pub(crate) fn write(&mut self, resource: usize, read: Stored, token: Option<u64>) {
        let stored = self.stored.entry(resource).or_default();
        if token.is_some_and(|token| token < stored.token) {
            return;
        }
        if stored.writes > 0 {
            self.counts.add(Rule::Updates, 1);
        }
        if stored.writes != read.writes {
            let how = format!(
                "r{resource}: a task read {} writes, but there are {}",
                read.writes, stored.writes
            );
            // If leases may overlap, only their tokens order the writes. Tokens can be equal once
            // counters are lost.
            if self.mode.is_exclusive() || !self.ledger.has_forgotten() {
                self.violated(Rule::Updates, how);
            }
        }
        let stored = self.stored.entry(resource).or_default();
        stored.writes += 1;
        stored.token = token.unwrap_or_default().max(stored.token);
    }

    /// Checks that `text`, which is public output, contains no value of a lock.
    pub(crate) fn inspect(&mut self, text: &str) {
        self.met(Rule::NoSecrets);
        let hex = |piece: &&[u8]| piece.iter().all(u8::is_ascii_hexdigit);
        if !text.as_bytes().windows(32).any(|piece| hex(&piece)) {
            return;
        }
        if let Some(secret) = self.secrets.iter().find(|secret| text.contains(secret.as_str())) {
            let how = format!("the secret {secret} is in: {text}");
            self.violated(Rule::NoSecrets, how);
        }
    }

    pub(crate) fn check_bound(&mut self, what: &str, took: Instant, bound: Instant) {
        self.check(Rule::Bounds, took <= bound, || {
            format!("{what} took {} ms, the limit is {} ms", took / MS, bound / MS)
        });
    }
}
