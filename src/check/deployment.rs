//! Whether all clients that are connected to the nodes mean the same locks.

use super::finding::{Finding, Severity};
use crate::wire::{Fingerprint, NamedClient, short};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// So many clients are shown.
const MOST_SHOWN: usize = 3;

/// What other clients of a node do not have in common with the one that looked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// They lock on other nodes. Harmless is at most one more or one less, while a change of the nodes is rolled out.
    Nodes {
        /// How many nodes they have.
        theirs: usize,
        /// On how many of ours they were seen, or could not be looked for.
        shared: usize,
        /// True if one of their majorities need share no node with one of ours: both may hold a lock.
        splits: bool,
    },
    /// They have the same nodes by other addresses.
    Names,
    /// The longest ttl of their locks is another one.
    MaxTtl {
        /// Theirs.
        theirs: Duration,
        /// That of the client that looked.
        ours: Duration,
    },
    /// Their keys begin with something else: what they lock is none of ours.
    KeyPrefix,
}

/// What other clients are found to disagree in, by node. `lists` are the clients of each node; `None` where they
/// could not be listed.
pub(super) fn disagreements(
    ours: &Fingerprint,
    lists: &[Option<&[NamedClient]>],
) -> Vec<Vec<Finding>> {
    let shared = shared(ours, lists);
    let found = |list: Option<&[NamedClient]>| {
        let mut others: BTreeMap<String, (Fingerprint, BTreeSet<&str>)> = BTreeMap::new();
        for client in list.unwrap_or_default() {
            let of = client.fingerprint;
            let (_, addresses) = others.entry(of.to_string()).or_insert((of, BTreeSet::new()));
            addresses.insert(&client.address);
        }
        let others = others.into_values().flat_map(|(theirs, addresses)| {
            let shared = shared.get(&theirs.to_string()).copied().unwrap_or_default();
            let clients: Vec<_> = addresses.into_iter().map(str::to_owned).collect();
            let finding = move |about| Finding::Disagrees { clients: clients.clone(), about };
            compared(ours, &theirs, shared).into_iter().map(finding)
        });
        others.collect()
    };
    lists.iter().copied().map(found).collect()
}

/// On how many nodes clients of each kind were seen, or could not be looked for.
fn shared(ours: &Fingerprint, lists: &[Option<&[NamedClient]>]) -> BTreeMap<String, usize> {
    let unknown = lists.iter().filter(|list| list.is_none()).count();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for list in lists.iter().flatten() {
        let kinds: BTreeSet<_> = list.iter().map(|client| client.fingerprint.to_string()).collect();
        for kind in kinds {
            *seen.entry(kind).or_default() += 1;
        }
    }
    seen.into_iter().map(|(kind, count)| (kind, (count + unknown).min(ours.nodes()))).collect()
}

/// What `theirs` has otherwise than `ours`, where so many nodes are shared.
fn compared(ours: &Fingerprint, theirs: &Fingerprint, shared: usize) -> Vec<Disagreement> {
    if !theirs.has_prefix_of(ours) {
        return vec![Disagreement::KeyPrefix];
    }
    let mut about = Vec::new();
    if !theirs.lists_the_same(ours) {
        let is_same = shared == ours.nodes() && theirs.nodes() == ours.nodes();
        about.push(if is_same {
            Disagreement::Names
        } else {
            let together = (ours.nodes() + theirs.nodes()).saturating_sub(shared);
            let splits = ours.quorum() + theirs.quorum() <= together;
            Disagreement::Nodes { theirs: theirs.nodes(), shared, splits }
        });
    }
    let (theirs, ours) = (theirs.max_ttl(), ours.max_ttl());
    if theirs != ours {
        about.push(Disagreement::MaxTtl { theirs, ours });
    }
    about
}

impl Disagreement {
    /// How bad it is.
    pub(super) fn severity(&self) -> Severity {
        match self {
            Self::Nodes { splits: true, .. } => Severity::Danger,
            Self::Nodes { splits: false, .. } | Self::MaxTtl { .. } => Severity::Warning,
            Self::Names | Self::KeyPrefix => Severity::Note,
        }
    }

    /// Writes it as a sentence about `clients`.
    pub(super) fn write(&self, clients: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, more) = clients.split_at(clients.len().min(MOST_SHOWN));
        write!(f, "the clients {}", shown.join(", "))?;
        if !more.is_empty() {
            write!(f, " and {} more", more.len())?;
        }
        write!(f, " {self}")
    }
}

/// How it goes on after `the clients …`.
impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { theirs, shared, splits } => {
                write!(f, "lock on {theirs} nodes, of which {shared} are among ours: ")?;
                f.write_str(if *splits {
                    "they and we can hold the same lock; give all clients the same nodes"
                } else {
                    "give all clients the same nodes, and change them one by one"
                })
            }
            Self::Names => f.write_str(
                "have the same nodes by other addresses: use the same ones, so that a difference shows",
            ),
            Self::MaxTtl { theirs, ours } => {
                let (theirs, ours) = (short(*theirs), short(*ours));
                write!(f, "have a max_ttl of {theirs} where ours is {ours}: the restart guard of ")?;
                write!(f, "those with the shorter one counts a node again before the locks that it ")?;
                write!(f, "forgot have ended; set the same for all")
            }
            Self::KeyPrefix => f.write_str("have another key_prefix: their locks are none of ours"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: &[&str], seconds: u64, prefix: &str) -> Fingerprint {
        let places = nodes.iter().map(|node| (*node).to_owned()).collect();
        let ttl = Duration::from_secs(seconds);
        Fingerprint::new(places, nodes.len() / 2 + 1, ttl, prefix.as_bytes())
    }

    fn client(address: &str, fingerprint: Fingerprint) -> NamedClient {
        NamedClient { address: address.to_owned(), fingerprint }
    }

    /// What is found on each of the nodes `a` to `e` if a client of this kind is connected to those.
    fn found(theirs: Fingerprint, connected: &str) -> Vec<Vec<Finding>> {
        let ours = of(&["a", "b", "c", "d", "e"], 60, "");
        let list = |node| {
            let own = client("10.0.0.1:9", ours);
            let other = connected.contains(node).then(|| client("10.0.0.7:5", theirs));
            [own].into_iter().chain(other).collect::<Vec<_>>()
        };
        let lists: Vec<_> = ('a'..='e').map(list).collect();
        let lists: Vec<_> = lists.iter().map(|list| Some(&list[..])).collect();
        disagreements(&ours, &lists)
    }

    fn told(theirs: Fingerprint, connected: &str) -> Vec<(Severity, Disagreement)> {
        let mut all = found(theirs, connected);
        for (node, findings) in ('a'..='e').zip(&all) {
            assert_eq!(!findings.is_empty(), connected.contains(node), "where they are seen");
        }
        all.retain(|findings| !findings.is_empty());
        all.dedup();
        let told = all.into_iter().flatten().map(|finding| match finding {
            Finding::Disagrees { ref clients, ref about } => {
                assert_eq!(clients, &["10.0.0.7:5"]);
                (finding.severity(), about.clone())
            }
            other => panic!("{other}"),
        });
        told.collect()
    }

    #[test]
    fn clients_that_agree_are_not_told() {
        let same = of(&["e", "d", "c", "b", "a"], 60, "");
        assert_eq!(found(same, "abcde"), vec![Vec::new(); 5]);
    }

    #[test]
    fn other_nodes_are_a_danger_where_majorities_need_not_meet() {
        let nodes = |theirs, shared, splits| Disagreement::Nodes { theirs, shared, splits };
        for (theirs, connected, severity, about) in [
            // 3 + 2 of 5: one of each may be disjoint.
            (of(&["a", "b", "c"], 60, ""), "abc", Severity::Danger, nodes(3, 3, true)),
            (of(&["a", "b", "c", "d"], 60, ""), "abcd", Severity::Warning, nodes(4, 4, false)),
            (
                of(&["a", "b", "c", "d", "e", "f"], 60, ""),
                "abcde",
                Severity::Warning,
                nodes(6, 5, false),
            ),
            (of(&["a", "b", "c", "d", "f"], 60, ""), "abcd", Severity::Danger, nodes(5, 4, true)),
        ] {
            assert_eq!(told(theirs, connected), [(severity, about)], "{theirs}");
        }
        let renamed = of(&["A", "B", "C", "D", "E"], 60, "");
        assert_eq!(told(renamed, "abcde"), [(Severity::Note, Disagreement::Names)]);
    }

    #[test]
    fn another_max_ttl_is_told_beside_other_nodes_and_nothing_where_the_keys_are_others() {
        let max_ttl =
            Disagreement::MaxTtl { theirs: Duration::from_secs(30), ours: Duration::from_secs(60) };
        let same = of(&["a", "b", "c", "d", "e"], 30, "");
        assert_eq!(told(same, "abcde"), [(Severity::Warning, max_ttl.clone())]);
        let fewer = told(of(&["a", "b", "c"], 30, ""), "abc");
        assert_eq!((fewer.len(), &fewer[1]), (2, &(Severity::Warning, max_ttl)));
        let others = of(&["a", "b", "c"], 30, "app:");
        assert_eq!(told(others, "abc"), [(Severity::Note, Disagreement::KeyPrefix)]);
    }

    #[test]
    fn a_few_of_many_clients_are_shown() {
        let told = |count: usize| {
            let clients = (1..=count).map(|place| format!("h:{place}")).collect();
            Finding::Disagrees { clients, about: Disagreement::KeyPrefix }.to_string()
        };
        let about = "have another key_prefix: their locks are none of ours";
        assert_eq!(told(1), format!("the clients h:1 {about}"));
        assert_eq!(told(3), format!("the clients h:1, h:2, h:3 {about}"));
        assert_eq!(told(5), format!("the clients h:1, h:2, h:3 and 2 more {about}"));
    }

    #[test]
    fn a_node_that_does_not_list_its_clients_is_not_held_against_them() {
        let ours = of(&["a", "b", "c"], 60, "");
        let list = [client("10.0.0.7:5", of(&["A", "B", "C"], 60, ""))];
        let lists = [Some(&list[..]), Some(&list[..]), None];
        let found = disagreements(&ours, &lists);
        let names = Finding::Disagrees {
            clients: vec!["10.0.0.7:5".to_owned()],
            about: Disagreement::Names,
        };
        assert_eq!(found, [vec![names.clone()], vec![names], vec![]]);
    }
}
