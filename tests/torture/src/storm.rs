//! Carries a plan of faults out.

use crate::ailment;
use crate::inflict::ProxiedNode;
use crate::log::{Log, open};
use crate::nemesis::{Kind, Nemesis, REREAD};
use crate::plan::Planned;
use crate::rolling::Rolling;
use crate::room::{Room, Target};
use harness::boot;
use harness::fleet::Fleet;
use harness::record::Fault;
use std::io;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// How long a fault waits for room when others are late; then it does not take place.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may take to see all nodes. Until then no clock steps; if it takes longer, some do.
pub(crate) const SIGHT: Duration = Duration::from_secs(20);

/// Where faults take place.
pub(crate) struct Scene<'a> {
    pub(crate) nodes: &'a [ProxiedNode],
    pub(crate) fleet: &'a Fleet,
    pub(crate) room: &'a Room,
    pub(crate) is_inside: bool,
    /// When the run began, on the boot clock.
    pub(crate) origin: u64,
    pub(crate) log: &'a Log,
}

impl Scene<'_> {
    /// Does all that is planned, from `begin` on; returns when all is over.
    pub(crate) fn rage(&self, plan: &[Planned], begin: u64) {
        thread::scope(|scope| {
            for planned in plan {
                boot::sleep_until(begin + boot::nanos(planned.at));
                scope.spawn(|| self.take_place(planned));
            }
        });
    }

    fn take_place(&self, planned: &Planned) {
        let Planned { nemesis, target, .. } = *planned;
        let Some(_seat) = self.room.enter(&planned.claims(), PATIENCE) else {
            return;
        };
        let done = match target {
            Target::Network if let Some(rolling) = &planned.rolling => self.roll(planned, rolling),
            Target::Newcomer(newcomer) => {
                self.visit(planned, self.fleet.newcomer(newcomer));
                Ok(())
            }
            Target::Node(node) => self.strike(planned, node),
            Target::Client(place) => {
                self.harm(planned, place);
                Ok(())
            }
            Target::Network if nemesis == Nemesis::WipeAll => self.wipe(planned),
            Target::Network => {
                self.slow_down(planned);
                Ok(())
            }
        };
        if let Err(error) = done {
            let failure = format!("{} at {target}: {error}", nemesis.name());
            open(&self.log.failures).push(failure);
        }
    }

    fn strike(&self, planned: &Planned, number: u16) -> io::Result<()> {
        let (Planned { nemesis, delay, lasts, .. }, node) =
            (planned, &self.nodes[usize::from(number)]);
        let index = self.note(planned, Target::Node(number));
        if *nemesis == Nemesis::StepForward {
            // Noted before it can have come of anything.
            let at = boot::now() - self.origin;
            open(&self.log.steps).note(number, at, boot::nanos(*delay));
        }
        let done = node.inflict(*nemesis, *delay).and_then(|undo| {
            // What restarts a node one after the other has a time of its own.
            thread::sleep(if planned.rolling.is_some() { Duration::ZERO } else { *lasts });
            node.heal(*nemesis, undo)
        });
        let Fault { from, until, .. } = self.note_end(index);
        open(&self.log.ailments).extend(ailment::of(*nemesis, number, from, until));
        if !nemesis.shakes().is_zero() {
            self.room.linger((Target::Node(number), Kind::Shaken), nemesis.shakes());
        }
        if nemesis.delays() {
            self.room.linger((Target::Node(number), Kind::Delayed), REREAD);
        }
        done
    }

    /// Restarts nodes, one after the other.
    fn roll(&self, planned: &Planned, rolling: &Rolling) -> io::Result<()> {
        let mut next = boot::now();
        for node in &rolling.nodes {
            boot::sleep_until(next);
            next = boot::now() + boot::nanos(rolling.gap);
            self.strike(planned, *node)?;
        }
        thread::sleep(rolling.settles());
        Ok(())
    }

    fn slow_down(&self, planned: &Planned) {
        let index = self.note(planned, planned.target);
        self.nodes.iter().for_each(|node| node.delay(planned.delay));
        thread::sleep(planned.lasts);
        self.nodes.iter().for_each(|node| node.delay(Duration::ZERO));
        self.room.linger((planned.target, Kind::Delayed), REREAD);
        self.note_end(index);
    }

    fn wipe(&self, planned: &Planned) -> io::Result<()> {
        let index = self.note(planned, planned.target);
        let wiped: Vec<_> = thread::scope(|scope| {
            let each: Vec<_> = self.nodes.iter().map(|node| scope.spawn(|| node.wipe())).collect();
            let ended = each.into_iter().map(ScopedJoinHandle::join);
            ended.map(|end| end.unwrap_or_else(|_| Err(io::Error::other("a panic")))).collect()
        });
        self.note_end(index);
        wiped.into_iter().collect()
    }

    fn harm(&self, planned: &Planned, place: u16) {
        let index = self.note(planned, planned.target);
        let begin = boot::now() - self.origin;
        if planned.nemesis == Nemesis::HangClient {
            self.fleet.stop(place);
            thread::sleep(planned.lasts);
            self.fleet.cont(place, begin);
            self.note_end(index);
        } else {
            self.fleet.kill(place);
            thread::sleep(planned.lasts);
            self.fleet.start(place);
            self.note_end(index);
            self.fleet.await_ready(place, SIGHT);
        }
    }

    /// Lets a client come, and go again: half of them without a word.
    fn visit(&self, planned: &Planned, place: u16) {
        let index = self.note(planned, planned.target);
        self.fleet.start(place);
        thread::sleep(planned.lasts);
        if planned.delay.subsec_nanos().is_multiple_of(2) {
            self.fleet.dismiss(place);
        } else {
            self.fleet.kill(place);
        }
        self.note_end(index);
    }

    /// Until it is over, a fault lasts for ever.
    fn note(&self, planned: &Planned, target: Target) -> usize {
        let mut faults = open(&self.log.faults);
        faults.push(Fault {
            nemesis: planned.nemesis.name().to_owned(),
            target: target.to_string(),
            from: boot::now() - self.origin,
            until: u64::MAX,
            is_promised: planned.nemesis.is_promised(self.is_inside),
        });
        faults.len() - 1
    }

    fn note_end(&self, index: usize) -> Fault {
        let mut faults = open(&self.log.faults);
        faults[index].until = boot::now() - self.origin;
        faults[index].clone()
    }
}
