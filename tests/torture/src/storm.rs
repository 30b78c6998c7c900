//! Carries a plan of faults out.

use crate::boot;
use crate::fleet::Fleet;
use crate::inflict::Node;
use crate::nemesis::Nemesis;
use crate::plan::Planned;
use crate::record::Fault;
use crate::room::{Room, Target};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// How long a fault waits for room when others are late; then it does not take place.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where faults take place.
pub(crate) struct Scene<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) fleet: &'a Fleet,
    pub(crate) room: Room,
    /// When the run began, on the boot clock.
    pub(crate) origin: u64,
    /// Those that have begun or are over.
    pub(crate) faults: &'a Mutex<Vec<Fault>>,
    /// What could not be done.
    pub(crate) failures: Mutex<Vec<String>>,
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
        let Some(_seat) = self.room.enter(target, nemesis.kind(), PATIENCE) else {
            return;
        };
        let done = match target {
            Target::Node(node) => self.strike(planned, &self.nodes[usize::from(node)]),
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
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        }
    }

    fn strike(&self, planned: &Planned, node: &Node) -> io::Result<()> {
        let index = self.note(planned);
        let undo = node.inflict(planned.nemesis, planned.delay)?;
        thread::sleep(planned.lasts);
        let healed = node.heal(planned.nemesis, undo);
        self.note_end(index);
        healed
    }

    fn slow_down(&self, planned: &Planned) {
        let index = self.note(planned);
        self.nodes.iter().for_each(|node| node.delay(planned.delay));
        thread::sleep(planned.lasts);
        self.nodes.iter().for_each(|node| node.delay(Duration::ZERO));
        self.note_end(index);
    }

    fn wipe(&self, planned: &Planned) -> io::Result<()> {
        let index = self.note(planned);
        let wiped: Vec<_> = thread::scope(|scope| {
            let each: Vec<_> = self.nodes.iter().map(|node| scope.spawn(|| node.wipe())).collect();
            let ended = each.into_iter().map(ScopedJoinHandle::join);
            ended.map(|end| end.unwrap_or_else(|_| Err(io::Error::other("a panic")))).collect()
        });
        self.note_end(index);
        wiped.into_iter().collect()
    }

    fn harm(&self, planned: &Planned, place: u16) {
        let index = self.note(planned);
        let begin = boot::now() - self.origin;
        if planned.nemesis == Nemesis::HangClient {
            self.fleet.stop(place);
            thread::sleep(planned.lasts);
            self.fleet.cont(place, begin);
        } else {
            self.fleet.kill(place);
            thread::sleep(planned.lasts);
            self.fleet.succeed(place);
        }
        self.note_end(index);
    }

    /// Until it is over, a fault lasts for ever.
    fn note(&self, planned: &Planned) -> usize {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(Fault {
            nemesis: planned.nemesis.name().to_owned(),
            target: planned.target.to_string(),
            from: boot::now() - self.origin,
            until: u64::MAX,
            is_promised: planned.nemesis.is_promised(),
        });
        faults.len() - 1
    }

    fn note_end(&self, index: usize) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults[index].until = boot::now() - self.origin;
    }
}
