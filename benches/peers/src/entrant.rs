//! The contenders of a scenario.

use crate::bare_loop::BareLoop;
use crate::contender::{Contender, EagerRslock, Library, Quorlock, Rslock};
use crate::floor::Floor;
use crate::nodes::Nodes;
use crate::scenario::{Base, Scenario, Third, Work};

/// A contender: library, work, clients and nodes.
pub(crate) struct Entrant<'a> {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    pub(crate) scenario: &'static Scenario,
    pub(crate) work: Work,
    /// Number of clients that its tasks share.
    pub(crate) clients: usize,
    pub(crate) nodes: &'a Nodes,
}

/// The contenders of a scenario, the base first.
pub(crate) fn entrants<'a>(
    scenario: &'static Scenario,
    nodes: &'a Nodes,
    healthy: Option<&'a Nodes>,
) -> Vec<Entrant<'a>> {
    let (work, clients) = (scenario.work, scenario.clients);
    let entrant = |name, library| Entrant { name, library, scenario, work, clients, nodes };
    let quorlock = || entrant(Quorlock::NAME, Library::Quorlock);
    let base = match (scenario.base, healthy) {
        (Base::Healthy, Some(healthy)) => {
            Entrant { name: "quorlock, no fault", nodes: healthy, ..quorlock() }
        }
        (Base::OneClient, _) => Entrant { name: "quorlock, one client", clients: 1, ..quorlock() },
        (Base::Plain, _) => Entrant { name: "quorlock, plain", work: Work::OwnKey, ..quorlock() },
        _ => entrant(Rslock::NAME, Library::Rslock),
    };
    let floor = || entrant(Floor::NAME, Library::Floor);
    let third = match scenario.third {
        Third::None => vec![],
        Third::FanOut => vec![floor()],
        Third::Floors => vec![floor(), entrant(BareLoop::NAME, Library::BareLoop)],
        Third::EagerRslock => vec![entrant(EagerRslock::NAME, Library::EagerRslock)],
    };
    [base, quorlock()].into_iter().chain(third).collect()
}
