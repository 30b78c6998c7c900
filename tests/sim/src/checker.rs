//! Checks of leases in true time.

use crate::clock::{Instant, MS};
use crate::fairness::Queues;
use crate::ledger::{Commit, Ledger};
use crate::mode::Mode;
use crate::rule::Rule;
use quorlock::{Lease, LeaseRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Identifies a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldId(pub(crate) usize);

/// A lease on which a task relies.
struct Held {
    id: HeldId,
    process: usize,
    lease: LeaseRef,
    was_lost: bool,
}

/// A lease whose holder has handed its lock over, and keeps the lease.
struct Given {
    process: usize,
    client: u64,
    lease: LeaseRef,
    /// The client that adopted the lock.
    adopted_by: Option<u64>,
}

/// A number that tasks increment under a lock, by a read and a later write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) writes: u64,
    token: u64,
}

/// Has its own mutex, because `is_valid` of a lease reads the simulated clock, which locks the
/// world.
pub(crate) struct Checker(Mutex<CheckerState>);

pub(crate) struct CheckerState {
    mode: Mode,
    /// The first violated rule, and the description.
    pub(crate) violation: Option<(Rule, String)>,
    held: BTreeMap<usize, Vec<Held>>,
    pub(crate) ledger: Ledger,
    stored: BTreeMap<usize, Stored>,
    /// Handed-over values, by resource.
    pub(crate) handed_over: BTreeMap<usize, Vec<String>>,
    given: BTreeMap<usize, Vec<Given>>,
    /// Leases that will be dropped outside of any runtime.
    pub(crate) dropped_outside: Vec<Lease>,
    pub(crate) waiting: Queues,
    /// Values that must not appear in public output.
    secrets: Vec<String>,
    pub(crate) grants: u64,
    pub(crate) calls: u64,
    /// Pairs of leases that were valid at the same time.
    overlaps: BTreeSet<(HeldId, HeldId)>,
}

impl Checker {
    pub(crate) fn new(mode: Mode) -> Self {
        Self(Mutex::new(CheckerState {
            dropped_outside: Vec::new(),
            waiting: Queues::default(),
            mode,
            violation: None,
            held: BTreeMap::new(),
            ledger: Ledger::new(mode),
            stored: BTreeMap::new(),
            handed_over: BTreeMap::new(),
            given: BTreeMap::new(),
            secrets: Vec::new(),
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
    /// Records a violation, which ends the run, unless the mode does not check the rule.
    pub(crate) fn violated(&mut self, rule: Rule, how: String) {
        if self.mode.checks(rule) {
            self.violation.get_or_insert((rule, how));
        }
    }

    /// Number of pairs of leases of a resource that were valid at the same time.
    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.len() as u64
    }

    /// `process` relies on a lease from now on. `commits` has its tokens by resource.
    pub(crate) fn begin(
        &mut self,
        process: usize,
        resources: &[usize],
        lease: &LeaseRef,
        commits: Vec<(usize, Commit)>,
    ) -> HeldId {
        self.grants += 1;
        let id = HeldId(usize::try_from(self.grants).expect("few"));
        self.secrets.push(lease.value().chars().take(32).collect());
        for (resource, commit) in commits {
            if let Some(how) = self.ledger.commit(resource, commit) {
                self.violated(Rule::Tokens, how);
            }
        }
        for resource in resources {
            self.look(*resource, Some((process, id)));
            let held = Held { id, process, lease: lease.clone(), was_lost: false };
            self.held.entry(*resource).or_default().push(held);
        }
        id
    }

    /// Checks that at most one lease of `resource` is valid, including a new one, and that lost
    /// leases stay lost.
    pub(crate) fn look(&mut self, resource: usize, newcomer: Option<(usize, HeldId)>) {
        let Some(all) = self.held.get_mut(&resource) else { return };
        let mut valid = Vec::new();
        let mut revived = None;
        for held in all.iter_mut() {
            let is_valid = held.lease.is_valid();
            if is_valid {
                valid.push((held.process, held.id));
            }
            if held.was_lost && is_valid {
                revived = Some((held.process, held.id));
            }
            held.was_lost |= !is_valid;
        }
        if let Some((process, HeldId(id))) = revived {
            let how = format!("r{resource}: lease {id} of p{process} was lost and is valid again");
            self.violated(Rule::StaysLost, how);
        }
        self.check_given(resource);
        valid.extend(newcomer);
        if let [(first, HeldId(one)), (second, HeldId(other)), ..] = valid[..] {
            self.overlaps.insert((HeldId(one.min(other)), HeldId(one.max(other))));
            let how = format!(
                "r{resource}: lease {other} of p{second} begins, and lease {one} of p{first} is valid"
            );
            self.violated(Rule::Exclusion, how);
        }
    }

    /// The holder no longer relies on the lease. Returns the lease.
    pub(crate) fn end(&mut self, id: HeldId) -> Option<LeaseRef> {
        let of_it = |all: &mut Vec<Held>| all.extract_if(.., |held| held.id == id).last();
        self.held.values_mut().filter_map(of_it).last().map(|held| held.lease)
    }

    /// The holder of `lease`, a `client` of `process`, hands the lock over.
    pub(crate) fn hand_over(
        &mut self,
        (process, client): (usize, u64),
        resource: usize,
        lease: &LeaseRef,
    ) {
        self.handed_over.entry(resource).or_default().push(lease.value().to_owned());
        let given = Given { process, client, lease: lease.clone(), adopted_by: None };
        self.given.entry(resource).or_default().push(given);
    }

    /// A client has adopted the lock of the lease with this value.
    pub(crate) fn adopted(&mut self, client: u64, resource: usize, value: &str) {
        let given = self.given.get_mut(&resource).into_iter().flatten();
        for given in given.filter(|given| given.lease.value() == value) {
            given.adopted_by = Some(client);
        }
        self.check_given(resource);
    }

    /// Returns true if the lock of the lease with this value was adopted.
    pub(crate) fn is_adopted(&self, resource: usize, value: &str) -> bool {
        let mut given = self.given.get(&resource).into_iter().flatten();
        given.any(|given| given.lease.value() == value && given.adopted_by.is_some())
    }

    /// Checks that a lease is not valid after its own client has adopted the lock.
    fn check_given(&mut self, resource: usize) {
        let given = self.given.get(&resource).into_iter().flatten();
        let is_by_own = |given: &&Given| given.adopted_by == Some(given.client);
        let valid = given.filter(is_by_own).find(|given| given.lease.is_valid());
        if let Some(Given { process, lease, .. }) = valid {
            let how = format!(
                "r{resource}: p{process} has adopted its own lock, and the old lease is valid for {:?}",
                lease.validity()
            );
            self.violated(Rule::Adopted, how);
        }
    }

    /// The previous holder drops its lease.
    pub(crate) fn forget_given(&mut self, resource: usize, value: &str) {
        if let Some(given) = self.given.get_mut(&resource) {
            given.retain(|given| given.lease.value() != value);
        }
    }

    pub(crate) fn take_over(&mut self, resource: usize) -> Option<String> {
        self.handed_over.get_mut(&resource)?.pop()
    }

    /// Removes the leases of a process that has ended.
    pub(crate) fn bury(&mut self, process: usize) {
        for all in self.held.values_mut() {
            all.retain(|held| held.process != process);
        }
        self.given.values_mut().for_each(|all| all.retain(|given| given.process != process));
    }

    /// Reads the stored number. From then on, tasks with a lower token cannot write it.
    pub(crate) fn read(&mut self, resource: usize, token: Option<u64>) -> Stored {
        let stored = self.stored.entry(resource).or_default();
        stored.token = token.unwrap_or_default().max(stored.token);
        *stored
    }

    /// Writes the number that was read, incremented by one, with a token or under a valid lease.
    pub(crate) fn write(&mut self, resource: usize, read: Stored, token: Option<u64>) {
        let stored = self.stored.entry(resource).or_default();
        if token.is_some_and(|token| token < stored.token) {
            return;
        }
        if stored.writes != read.writes {
            let how = format!(
                "r{resource}: a task read {} writes, but there are {}",
                read.writes, stored.writes
            );
            // Leases that overlap are ordered by their tokens, which may be equal once counters are
            // lost.
            if self.mode.is_exclusive() || !self.ledger.has_forgotten() {
                self.violated(Rule::Updates, how);
            }
        }
        let stored = self.stored.entry(resource).or_default();
        stored.writes += 1;
        stored.token = token.unwrap_or_default().max(stored.token);
    }

    /// Checks that a public text contains no secret.
    pub(crate) fn inspect(&mut self, text: &str) {
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
        if took > bound {
            let how = format!("{what} took {} ms, the limit is {} ms", took / MS, bound / MS);
            self.violated(Rule::Bounds, how);
        }
    }
}
