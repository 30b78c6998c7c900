//! The resources for which the clients compete: locks, the permits of semaphores, jobs, and
//! elections. Each resource has a number, a counter and a fenced cell.

use std::ops::Range;

/// The number of locks. Their resources have the first numbers.
pub(crate) const LOCKS: u16 = 20;
/// The locks that clients also acquire for reading and for writing.
pub(crate) const SHARED_LOCKS: [u16; 2] = [0, LOCKS - 1];
/// The jobs that run once per period.
pub(crate) const JOBS: Range<u16> = UNEQUAL.end()..UNEQUAL.end() + 4;
pub(crate) const ELECTIONS: Range<u16> = JOBS.end..JOBS.end + 2;
/// The number of resources for which the clients compete.
pub const RESOURCES: u16 = ELECTIONS.end;

/// The kinds of resources whose names consist of the kind and a number.
const KINDS: [(&str, Range<u16>); 3] =
    [("resource:", 0..LOCKS), ("job:", JOBS), ("election:", ELECTIONS)];

pub(crate) static SEMAPHORES: [Semaphore; 2] = [EQUAL, UNEQUAL];
const EQUAL: Semaphore = Semaphore { first: LOCKS, permits: &[2], is_fenced: true };
const UNEQUAL: Semaphore = Semaphore { first: EQUAL.end(), permits: &[2, 3], is_fenced: false };

/// A semaphore whose permits are resources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Semaphore {
    /// The resource of the first permit.
    first: u16,
    /// The numbers of permits that clients use, in ascending order.
    permits: &'static [u16],
    /// Whether its permits are always or never acquired with a token.
    pub(crate) is_fenced: bool,
}

impl Semaphore {
    /// Returns the semaphore to which the permit `resource` belongs. Returns `None` for a lock.
    pub(crate) fn of(resource: u16) -> Option<&'static Self> {
        SEMAPHORES.iter().find(|semaphore| semaphore.resources().contains(&resource))
    }

    pub(crate) fn name(&self) -> String {
        format!("semaphore:{}", self.first)
    }

    /// Returns the maximum number of holders: the largest number of permits that a client uses.
    pub(crate) const fn limit(&self) -> u16 {
        self.permits[self.permits.len() - 1]
    }

    /// Returns the number of permits that the client `client` uses.
    pub(crate) fn permits(&self, client: u16) -> u16 {
        self.permits[usize::from(client) % self.permits.len()]
    }

    /// Returns the resources of all permits. The last permit is above the limit, so that the checks
    /// detect a client that acquires it.
    pub(crate) fn resources(&self) -> Range<u16> {
        self.first..self.end()
    }

    const fn end(&self) -> u16 {
        self.first + self.limit() + 1
    }
}

/// Returns the name of a lock, a job or an election.
pub(crate) fn name(resource: u16) -> String {
    let kind = KINDS.iter().find(|(_, of)| of.contains(&resource));
    let (kind, _) = kind.expect("a permit has no name of its own");
    format!("{kind}{resource}")
}

/// Returns true if the job commits its period after the run, so that another run can follow a
/// failed one.
pub(crate) fn takes_over(job: u16) -> bool {
    !(job - JOBS.start).is_multiple_of(2)
}

/// Returns the resource whose name a lease reported. Returns `None` if no resource has this name.
pub(crate) fn resource_of(name: &[u8]) -> Option<u16> {
    let name = std::str::from_utf8(name).ok()?;
    for (kind, of) in KINDS {
        if let Some(number) = name.strip_prefix(kind) {
            return number.parse().ok().filter(|number| of.contains(number));
        }
    }
    SEMAPHORES.iter().find_map(|semaphore| {
        let permit = name.strip_prefix(&semaphore.name())?.strip_prefix("#quorlock:permit")?;
        let (index, _) = permit.split_once(':')?;
        let mut all = semaphore.resources();
        all.nth(index.parse().ok()?)
    })
}

/// Returns the keys of all resources. `prefix` must not contain braces.
pub(crate) fn keys(prefix: &str) -> impl Iterator<Item = String> {
    let named = |of: Range<u16>| of.map(move |resource| format!("{prefix}{}", name(resource)));
    let permits = SEMAPHORES.iter().flat_map(move |semaphore| {
        let key = format!("{prefix}{}", semaphore.name());
        // The library's name for a permit of a semaphore without a hash tag.
        (0..semaphore.resources().len()).map(move |n| format!("{key}#quorlock:permit{n}:{{{key}}}"))
    });
    named(0..LOCKS).chain(permits).chain(named(JOBS.start..ELECTIONS.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_key_is_the_name_of_its_resource() {
        let names: Vec<_> = keys("").collect();
        let resources: Vec<_> = names.iter().map(|name| resource_of(name.as_bytes())).collect();
        assert_eq!(resources, (0..RESOURCES).map(Some).collect::<Vec<_>>());
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), usize::from(RESOURCES));
        assert!(keys("p:").all(|key| key.starts_with("p:")));
        for other in [
            "resource:20",
            "resource:x",
            "semaphore:20",
            "semaphore:20#quorlock:permit3:",
            "job:0",
            "election:27",
        ] {
            assert_eq!(resource_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn semaphore_has_one_resource_above_its_limit() {
        for semaphore in &SEMAPHORES {
            assert_eq!(semaphore.resources().len(), usize::from(semaphore.limit()) + 1);
            let used: BTreeSet<_> = (0..9).map(|client| semaphore.permits(client)).collect();
            assert_eq!(used.last(), Some(&semaphore.limit()));
        }
        assert_eq!(SEMAPHORES[1].permits(4), 2, "clients use different numbers");
    }
}
