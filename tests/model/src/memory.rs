//! What a client knows of its nodes' memories. The library's own `Quarantine` decides, here as there: it
//! is made again from the state, and asked.

use crate::NODES;
use crate::protocol::{Exclusion, NodeId, Policy, Quarantine, Quorum, Server, Time};
use crate::setting::{CountingRule, GuardPromises};
use std::time::Duration;

/// Whether a client can talk to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// It is connected to what the node is now.
    Up,
    /// The node has restarted since.
    Lost,
    /// It has not met the node.
    None,
    /// It has not met the node, and goes by that it cannot.
    Unreachable,
}

/// What a client knows of the memory of one node, in one word. The default is a node that it knows for
/// longer than anything stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sight(u16);

const BITS: u16 = 4;
const FIELD: u16 = (1 << BITS) - 1;
/// Places of the fields: the contact; for how many ticks the node does not count as it was restarted, and
/// as it was young when it was met; and whether it counts though it is young.
const CONTACT: u16 = 0;
const SENTENCE: u16 = BITS;
const YOUTH: u16 = 2 * BITS;
const NATIVE: u16 = 3 * BITS;

impl Sight {
    /// Of a node that was not met.
    pub(crate) const NEW: Self = Self(Contact::None as u16);

    /// Of a node of which it is known how old it is.
    pub(crate) fn of_age(guard: GuardPromises, age: u8) -> Self {
        let mut sight = Self::default();
        if guard.rule != CountingRule::Off {
            sight.set(SENTENCE, u16::from(guard.term - age));
        }
        sight
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

    /// The node has restarted.
    pub(crate) fn lose(&mut self) {
        if self.contact() == Contact::Up {
            self.set(CONTACT, Contact::Lost as u16);
        }
    }

    fn is_met(self) -> bool {
        matches!(self.contact(), Contact::Up | Contact::Lost)
    }

    fn is_native(self) -> bool {
        self.field(NATIVE) != 0
    }

    /// A tick has passed.
    pub(crate) fn tick(&mut self) {
        for place in [SENTENCE, YOUTH] {
            self.set(place, self.field(place).saturating_sub(1));
        }
        if self.field(YOUTH) == 0 {
            self.set(NATIVE, 0);
        }
    }
}

/// A tick is a second here: servers tell how old they are in seconds.
pub(crate) const TICK: Duration = Duration::from_secs(1);

fn ticks(count: u16) -> Duration {
    TICK * u32::from(count)
}

/// The present: later than anything that is remembered.
fn now() -> Time {
    Time::default().after(100 * TICK)
}

fn before(count: u16) -> Time {
    Time::default().after(ticks(100 - count))
}

fn whole(duration: Duration) -> u16 {
    u16::try_from(duration.as_secs()).expect("terms are short")
}

pub(crate) fn new_quarantine(guard: GuardPromises) -> Quarantine<u16> {
    let rule = match guard.rule {
        CountingRule::Off => Policy::Off,
        CountingRule::Observed => Policy::Observed,
        CountingRule::Strict => Policy::Strict,
    };
    Quarantine::new(Quorum::majority(NODES), rule, ticks(u16::from(guard.term)))
}

/// A connection was set up.
pub(crate) fn tell(of: &mut Quarantine<u16>, node: usize, run: u16, uptime: u16, at: Time) {
    let (run, uptime) = (Some(run), Some(ticks(uptime)));
    let server = Server { run, unnamed: "", uptime, is_trusted: false };
    of.handle_set_up(NodeId::new(node), server, at);
}

/// Why what `node` grants does not count.
pub(crate) fn why_not(of: &Quarantine<u16>, node: usize, now: Time) -> Option<Exclusion> {
    let node = NodeId::new(node);
    of.exclusion(node, now).or_else(|| of.recent_start(node, now))
}

/// The nodes that a client knows something of, and what.
pub(crate) struct Memory {
    guard: GuardPromises,
    sights: [Sight; NODES],
    quarantine: Quarantine<u16>,
}

impl Memory {
    /// The quarantine of a client to which the nodes look like this.
    pub(crate) fn new(guard: GuardPromises, sights: [Sight; NODES]) -> Self {
        let mut it = Self { guard, sights, quarantine: new_quarantine(guard) };
        it.remember();
        it
    }

    /// Tells the quarantine what must have been.
    fn remember(&mut self) {
        let term = u16::from(self.guard.term);
        let youth = |sight: Sight| sight.field(YOUTH);
        let sights: Vec<_> = (0..NODES).zip(self.sights).collect();
        let has_natives = sights.iter().any(|(_, sight)| sight.is_native());
        if has_natives {
            // All were tried while the deployment was new; if a node is old by now, a tick ago at least.
            let is_old = |(_, sight): &(usize, Sight)| sight.is_met() && youth(*sight) == 0;
            let ago = u16::from(sights.iter().any(is_old));
            for (node, sight) in &sights {
                if sight.is_native() || is_old(&(*node, *sight)) {
                    self.tell(*node, term - youth(*sight) - ago, before(ago));
                } else {
                    self.quarantine.handle_unreachable(NodeId::new(*node), before(ago));
                }
            }
        }
        for (node, sight) in sights {
            match sight.contact() {
                Contact::Up | Contact::Lost if has_natives => {
                    if youth(sight) > 0 && !sight.is_native() {
                        self.tell(node, term - youth(sight), now());
                    }
                }
                Contact::Up | Contact::Lost => self.tell(node, term - youth(sight), now()),
                Contact::None => {}
                Contact::Unreachable => {
                    self.quarantine.handle_unreachable(NodeId::new(node), now());
                }
            }
            if sight.field(SENTENCE) > 0 {
                // A flush brings the same sentence as a restart, and nothing else.
                let at = before(term - sight.field(SENTENCE));
                self.quarantine.handle_flush(NodeId::new(node), at);
                self.quarantine.handle_missing(NodeId::new(node), at);
            }
        }
    }

    /// The first connection was set up. A server can say that it is a second older than it is: so does this.
    fn tell(&mut self, node: usize, age: u16, at: Time) {
        tell(&mut self.quarantine, node, 0, age + 1, at);
    }

    /// The client has a connection to what `node` is now, which is `age` ticks old, or older if that is the
    /// term.
    pub(crate) fn meet(mut self, node: usize, age: u8) -> [Sight; NODES] {
        let is_first = !self.sights[node].is_met();
        tell(&mut self.quarantine, node, 1, u16::from(age + self.guard.uptime_error), now());
        self.sights[node].set_contact(Contact::Up);
        let ends = whole(self.quarantine.ends(NodeId::new(node)).since(now()));
        let is_youth = is_first && self.guard.rule == CountingRule::Observed;
        self.sights[node].set(if is_youth { YOUTH } else { SENTENCE }, ends);
        self.read_natives();
        self.sights
    }

    /// The client goes by that it cannot reach `node`.
    pub(crate) fn give_up(mut self, node: usize) -> [Sight; NODES] {
        self.quarantine.handle_unreachable(NodeId::new(node), now());
        self.sights[node].set_contact(Contact::Unreachable);
        self.read_natives();
        self.sights
    }

    fn read_natives(&mut self) {
        for (node, sight) in self.sights.iter_mut().enumerate() {
            let is_withheld = self.quarantine.recent_start(NodeId::new(node), now()).is_some();
            sight.set(NATIVE, u16::from(sight.field(YOUTH) > 0 && !is_withheld));
        }
    }

    /// Whether what `node` grants counts now.
    pub(crate) fn counts(&self, node: usize) -> bool {
        why_not(&self.quarantine, node, now()).is_none()
    }
}
