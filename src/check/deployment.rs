//! Compares this client's settings with the settings of other clients that are connected to the nodes.

use super::disagreement::Disagreement;
use super::finding::Finding;
use crate::wire::{Fingerprint, NamedClient};
use std::collections::{BTreeMap, BTreeSet};

/// Findings by node. `lists` has the clients of each node; `None` if unknown.
pub(super) fn disagreements(
    ours: &Fingerprint,
    lists: &[Option<&[NamedClient]>],
) -> Vec<Vec<Finding>> {
    // A client may also be connected to the nodes whose clients are unknown.
    let shared = |theirs: &Fingerprint| {
        let has = |list: &[NamedClient]| list.iter().any(|client| client.fingerprint == *theirs);
        lists.iter().filter(|list| list.is_none_or(has)).count()
    };
    let found = |list: Option<&[NamedClient]>| {
        let mut others: BTreeMap<Fingerprint, BTreeSet<&str>> = BTreeMap::new();
        for client in list.unwrap_or_default() {
            others.entry(client.fingerprint).or_default().insert(&client.address);
        }
        let others = others.into_iter().flat_map(|(theirs, addresses)| {
            let clients: Vec<_> = addresses.into_iter().map(str::to_owned).collect();
            let finding = move |about| Finding::Disagrees { clients: clients.clone(), about };
            compared(ours, &theirs, shared(&theirs)).into_iter().map(finding)
        });
        others.collect()
    };
    lists.iter().copied().map(found).collect()
}

/// The differences, given the number of shared nodes.
fn compared(ours: &Fingerprint, theirs: &Fingerprint, shared: usize) -> Vec<Disagreement> {
    if !theirs.has_same_prefix(ours) {
        return vec![Disagreement::KeyPrefix];
    }
    let mut about = Vec::new();
    if !theirs.has_same_nodes(ours) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Severity;
    use std::time::Duration;

    fn of(nodes: &[&str], seconds: u64, prefix: &str) -> Fingerprint {
        let places = nodes.iter().map(|node| (*node).to_owned()).collect();
        let ttl = Duration::from_secs(seconds);
        Fingerprint::new(places, nodes.len() / 2 + 1, ttl, prefix.as_bytes())
    }

    fn client(address: &str, fingerprint: Fingerprint) -> NamedClient {
        NamedClient { address: address.to_owned(), fingerprint }
    }

    /// Findings on each of the nodes `a` to `e`, if another client is connected to the nodes in `connected`.
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
            assert_eq!(
                !findings.is_empty(),
                connected.contains(node),
                "findings only where connected"
            );
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
    fn same_fingerprints_have_no_findings() {
        let same = of(&["e", "d", "c", "b", "a"], 60, "");
        assert_eq!(found(same, "abcde"), vec![Vec::new(); 5]);
    }

    #[test]
    fn other_nodes_are_a_danger_if_quorums_may_be_disjoint() {
        let nodes = |theirs, shared, splits| Disagreement::Nodes { theirs, shared, splits };
        for (theirs, connected, severity, about) in [
            // Quorums of 2 of 3 and 3 of 5 nodes may be disjoint.
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
    fn max_ttl_is_compared_unless_prefixes_differ() {
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
    fn at_most_three_clients_are_shown() {
        let told = |count: usize| {
            let clients = (1..=count).map(|place| format!("h:{place}")).collect();
            Finding::Disagrees { clients, about: Disagreement::KeyPrefix }.to_string()
        };
        let about = "use a different key_prefix: their locks are independent of this client's";
        assert_eq!(told(1), format!("the clients h:1 {about}"));
        assert_eq!(told(3), format!("the clients h:1, h:2, h:3 {about}"));
        assert_eq!(told(5), format!("the clients h:1, h:2, h:3 and 2 more {about}"));
    }

    #[test]
    fn unknown_client_lists_count_as_shared() {
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
