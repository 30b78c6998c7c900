//! A client's record of its nodes' restarts. The library's own `Quarantine` decides which nodes'
//! grants count towards a quorum. The model rebuilds the `Quarantine` from its state.

use crate::NODES;
use crate::protocol::{Exclusion, NodeId, Policy, Quarantine, Quorum, Server, Time};
use crate::setting::{CountingRule, GuardPromises};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// The client is connected to the current run of the node.
    Up,
    /// The client is disconnected, because the node restarted.
    Lost,
    None,
    /// The client has never connected to the node, and assumes that the node is unreachable.
    Unreachable,
}

/// A client's record of one node, packed into one word. The default is a node that the client has
/// known for longer than any key exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeView(u16);

const BITS: u16 = 4;
const FIELD: u16 = (1 << BITS) - 1;
/// The bit positions of the fields. After a restart, the node's grants do not count for the number
/// of ticks in `QUARANTINE`. After the client's first connection, the node is treated as recently
/// started (young) for the number of ticks in `YOUNG`. `EXEMPT` is 1 if a young node's grants count
/// nevertheless.
const CONTACT: u16 = 0;
const QUARANTINE: u16 = BITS;
const YOUNG: u16 = 2 * BITS;
const EXEMPT: u16 = 3 * BITS;

impl NodeView {
    /// The record of a node that the client has never connected to.
    pub(crate) const NEW: Self = Self(Contact::None as u16);

    pub(crate) fn of_age(guard: GuardPromises, age: u8) -> Self {
        let mut view = Self::default();
        if guard.rule != CountingRule::Off {
            view.set(QUARANTINE, u16::from(guard.quarantine_period - age));
        }
        view
    }

    fn field(self, place: u16) -> u16 {
        (self.0 >> place) & FIELD
    }

    fn set(&mut self, place: u16, value: u16) {
        assert!(value <= FIELD, "the bounds of the setting are too wide");
        self.0 = (self.0 & !(FIELD << place)) | (value << place);
    }

    pub(crate) fn contact(self) -> Contact {
        match self.field(CONTACT) {
            0 => Contact::Up,
            1 => Contact::Lost,
            2 => Contact::None,
            _ => Contact::Unreachable,
        }
    }

    fn set_contact(&mut self, contact: Contact) {
        self.set(CONTACT, contact as u16);
    }

    pub(crate) fn handle_restart(&mut self) {
        if self.contact() == Contact::Up {
            self.set(CONTACT, Contact::Lost as u16);
        }
    }

    fn is_known(self) -> bool {
        matches!(self.contact(), Contact::Up | Contact::Lost)
    }

    fn is_exempt(self) -> bool {
        self.field(EXEMPT) != 0
    }

    pub(crate) fn tick(&mut self) {
        for place in [QUARANTINE, YOUNG] {
            self.set(place, self.field(place).saturating_sub(1));
        }
        if self.field(YOUNG) == 0 {
            self.set(EXEMPT, 0);
        }
    }
}

/// The duration of a tick in this module. It is a second, because servers report their uptime in
/// seconds.
pub(crate) const TICK: Duration = Duration::from_secs(1);

fn ticks(count: u16) -> Duration {
    TICK * u32::from(count)
}

/// Returns the model's current time, which is later than all recorded times.
fn now() -> Time {
    Time::default().after(100 * TICK)
}

fn before(count: u16) -> Time {
    Time::default().after(ticks(100 - count))
}

fn whole(duration: Duration) -> u16 {
    u16::try_from(duration.as_secs()).expect("a term of at most 65535 s")
}

pub(crate) fn new_quarantine(guard: GuardPromises) -> Quarantine<u16> {
    let rule = match guard.rule {
        CountingRule::Off => Policy::Off,
        CountingRule::Observed => Policy::Observed,
        CountingRule::Strict => Policy::Strict,
    };
    Quarantine::new(Quorum::majority(NODES), rule, ticks(u16::from(guard.quarantine_period)))
}

pub(crate) fn record_set_up(
    of: &mut Quarantine<u16>,
    node: usize,
    run: u16,
    uptime: u16,
    at: Time,
) {
    let (run, uptime) = (Some(run), Some(ticks(uptime)));
    let server =
        Server { run, no_run_id_reason: "", replid: None, uptime, asked: at, is_trusted: false };
    of.handle_set_up(NodeId::new(node), server, at);
}

pub(crate) fn exclusion_of(of: &Quarantine<u16>, node: usize, now: Time) -> Option<Exclusion> {
    let node = NodeId::new(node);
    of.exclusion(node, now).or_else(|| of.recent_start(node, now))
}

/// A client's records of the nodes, and the quarantine rebuilt from these records.
pub(crate) struct Memory {
    guard: GuardPromises,
    views: [NodeView; NODES],
    quarantine: Quarantine<u16>,
}

impl Memory {
    pub(crate) fn new(guard: GuardPromises, views: [NodeView; NODES]) -> Self {
        let mut it = Self { guard, views, quarantine: new_quarantine(guard) };
        it.feed_quarantine();
        it
    }

    /// Feeds the quarantine a sequence of events that leads to the client's records.
    fn feed_quarantine(&mut self) {
        let quarantine_period = u16::from(self.guard.quarantine_period);
        let young_ticks = |view: NodeView| view.field(YOUNG);
        let views: Vec<_> = (0..NODES).zip(self.views).collect();
        let has_exempt = views.iter().any(|(_, view)| view.is_exempt());
        if has_exempt {
            // The client tried all nodes while the deployment was new. If a node is old now, at
            // least one tick has passed since.
            let is_old = |(_, view): &(usize, NodeView)| view.is_known() && young_ticks(*view) == 0;
            let ago = u16::from(views.iter().any(is_old));
            for (node, view) in &views {
                if view.is_exempt() || is_old(&(*node, *view)) {
                    self.record_first(
                        *node,
                        quarantine_period - young_ticks(*view) - ago,
                        before(ago),
                    );
                } else {
                    self.quarantine.handle_unreachable(NodeId::new(*node), before(ago));
                }
            }
        }
        for (node, view) in views {
            match view.contact() {
                Contact::Up | Contact::Lost if has_exempt => {
                    if young_ticks(view) > 0 && !view.is_exempt() {
                        self.record_first(node, quarantine_period - young_ticks(view), now());
                    }
                }
                Contact::Up | Contact::Lost => {
                    self.record_first(node, quarantine_period - young_ticks(view), now());
                }
                Contact::None => {}
                Contact::Unreachable => {
                    self.quarantine.handle_unreachable(NodeId::new(node), now());
                }
            }
            if view.field(QUARANTINE) > 0 {
                // A flush causes the same exclusion as a restart, and has no other effects.
                let at = before(quarantine_period - view.field(QUARANTINE));
                self.quarantine.handle_flush(NodeId::new(node), at);
                self.quarantine.handle_missing(NodeId::new(node), at);
            }
        }
    }

    /// Records the client's first connection to `node`. The reported uptime is one second too long,
    /// which is the largest error that the guard allows for.
    fn record_first(&mut self, node: usize, age: u16, at: Time) {
        record_set_up(&mut self.quarantine, node, 0, age + 1, at);
    }

    /// Records a connection to the current run of `node`, which started `age` ticks ago. An `age`
    /// equal to the quarantine period also represents older runs.
    pub(crate) fn connect(mut self, node: usize, age: u8) -> [NodeView; NODES] {
        let is_first = !self.views[node].is_known();
        record_set_up(
            &mut self.quarantine,
            node,
            1,
            u16::from(age + self.guard.uptime_error),
            now(),
        );
        self.views[node].set_contact(Contact::Up);
        let ends = whole(self.quarantine.ends(NodeId::new(node)).since(now()));
        let is_young = is_first && self.guard.rule == CountingRule::Observed;
        self.views[node].set(if is_young { YOUNG } else { QUARANTINE }, ends);
        self.update_exemptions();
        self.views
    }

    pub(crate) fn assume_unreachable(mut self, node: usize) -> [NodeView; NODES] {
        self.quarantine.handle_unreachable(NodeId::new(node), now());
        self.views[node].set_contact(Contact::Unreachable);
        self.update_exemptions();
        self.views
    }

    fn update_exemptions(&mut self) {
        for (node, view) in self.views.iter_mut().enumerate() {
            let is_withheld = self.quarantine.recent_start(NodeId::new(node), now()).is_some();
            view.set(EXEMPT, u16::from(view.field(YOUNG) > 0 && !is_withheld));
        }
    }

    pub(crate) fn counts(&self, node: usize) -> bool {
        exclusion_of(&self.quarantine, node, now()).is_none()
    }
}
