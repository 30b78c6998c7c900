//! Who takes part in a scenario.

use crate::bare_loop::BareLoop;
use crate::contender::{Contender, EagerRslock, Library, Quorlock, Rslock};
use crate::floor::Floor;
use crate::nodes::Nodes;
use crate::scenario::{Base, Scenario, Third, Work};

/// One who takes part: what is measured, doing what, on which nodes.
pub(crate) struct Seat<'a> {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    pub(crate) scenario: &'static Scenario,
    pub(crate) work: Work,
    /// How many clients its tasks share.
    pub(crate) clients: usize,
    pub(crate) nodes: &'a Nodes,
}

/// Those who take part, the base first.
pub(crate) fn seats<'a>(
    scenario: &'static Scenario,
    nodes: &'a Nodes,
    healthy: Option<&'a Nodes>,
) -> Vec<Seat<'a>> {
    let (work, clients) = (scenario.work, scenario.clients);
    let seat = |name, library| Seat { name, library, scenario, work, clients, nodes };
    let quorlock = || seat(Quorlock::NAME, Library::Quorlock);
    let base = match (scenario.base, healthy) {
        (Base::Healthy, Some(healthy)) => {
            Seat { name: "quorlock, all well", nodes: healthy, ..quorlock() }
        }
        (Base::OneClient, _) => Seat { name: "quorlock, one client", clients: 1, ..quorlock() },
        (Base::Plain, _) => Seat { name: "quorlock, plain", work: Work::OwnKey, ..quorlock() },
        _ => seat(Rslock::NAME, Library::Rslock),
    };
    let floor = || seat(Floor::NAME, Library::Floor);
    let third = match scenario.third {
        Third::Nobody => vec![],
        Third::FanOut => vec![floor()],
        Third::Floors => vec![floor(), seat(BareLoop::NAME, Library::BareLoop)],
        Third::EagerRslock => vec![seat(EagerRslock::NAME, Library::EagerRslock)],
    };
    [base, quorlock()].into_iter().chain(third).collect()
}
