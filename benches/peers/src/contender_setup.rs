//! The contenders of a scenario.

use crate::bare_loop::BareLoop;
use crate::contender::{Contender, EagerRslock, Library, Quorlock, Rslock};
use crate::nodes::Nodes;
use crate::raw_fan_out::RawFanOut;
use crate::scenario::{Base, ExtraContenders, Scenario, Work};

pub(crate) struct ContenderSetup<'a> {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    pub(crate) scenario: &'static Scenario,
    pub(crate) work: Work,
    pub(crate) clients: usize,
    pub(crate) nodes: &'a Nodes,
}

/// Returns the contenders of a scenario. The first contender is the base of the ratios.
pub(crate) fn contender_setups<'a>(
    scenario: &'static Scenario,
    nodes: &'a Nodes,
    healthy: Option<&'a Nodes>,
) -> Vec<ContenderSetup<'a>> {
    let (work, clients) = (scenario.work, scenario.clients);
    let setup = |name, library| ContenderSetup { name, library, scenario, work, clients, nodes };
    let quorlock = || setup(Quorlock::NAME, Library::Quorlock);
    let base = match (scenario.base, healthy) {
        (Base::Healthy, Some(healthy)) => {
            ContenderSetup { name: "quorlock, no fault", nodes: healthy, ..quorlock() }
        }
        (Base::OneClient, _) => {
            ContenderSetup { name: "quorlock, one client", clients: 1, ..quorlock() }
        }
        (Base::Plain, _) => {
            ContenderSetup { name: "quorlock, plain", work: Work::OwnKey, ..quorlock() }
        }
        _ => setup(Rslock::NAME, Library::Rslock),
    };
    let raw_fan_out = || setup(RawFanOut::NAME, Library::RawFanOut);
    let extra = match scenario.extra {
        ExtraContenders::None => vec![],
        ExtraContenders::FanOut => vec![raw_fan_out()],
        ExtraContenders::FanOutAndBareLoop => {
            vec![raw_fan_out(), setup(BareLoop::NAME, Library::BareLoop)]
        }
        ExtraContenders::EagerRslock => vec![setup(EagerRslock::NAME, Library::EagerRslock)],
    };
    [base, quorlock()].into_iter().chain(extra).collect()
}
