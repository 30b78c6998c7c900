//! Whether a state remembers what a client knows of its nodes: each history of a few events is played to the
//! library's `Quarantine` as it came, and to the one that is made again from the state after each.

use crate::NODES;
use crate::memory::{Contact, Memory, Sight, TICK, new_quarantine, tell, why_not};
use crate::protocol::{NodeId, Time};
use crate::setting::GuardPromises;

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick,
    Restart(usize),
    Meet(usize),
    Miss(usize),
}

/// What a state has of one client and the nodes.
#[derive(Clone, Copy)]
struct Knowledge {
    ages: [u8; NODES],
    sights: [Sight; NODES],
}

/// Plays all histories of up to `events` events.
///
/// # Errors
/// The first history after which a node counts for one and not for the other.
pub fn rehearse(guard: GuardPromises, events: usize) -> Result<usize, String> {
    let age = if guard.is_fresh { 0 } else { guard.term };
    let start = Knowledge { ages: [age; NODES], sights: [Sight::NEW; NODES] };
    let mut count = 0;
    go_on(guard, start, &mut Vec::new(), events, &mut count)?;
    Ok(count)
}

fn go_on(
    guard: GuardPromises,
    known: Knowledge,
    history: &mut Vec<Event>,
    events: usize,
    count: &mut usize,
) -> Result<(), String> {
    *count += 1;
    let memory = Memory::new(guard, known.sights);
    let truth = truth(guard, history);
    if let Some(node) = (0..NODES).find(|node| memory.counts(*node) != truth[*node]) {
        return Err(format!("node {node} after {history:?}"));
    }
    if events == 0 {
        return Ok(());
    }
    for event in possible(guard, known) {
        history.push(event);
        go_on(guard, known.after(guard, event), history, events - 1, count)?;
        history.pop();
    }
    Ok(())
}

fn possible(guard: GuardPromises, known: Knowledge) -> Vec<Event> {
    let mut found = vec![Event::Tick];
    for node in 0..NODES {
        found.push(Event::Restart(node));
        let contact = known.sights[node].contact();
        if contact != Contact::Up {
            found.push(Event::Meet(node));
        }
        if contact == Contact::None && guard.hastes {
            found.push(Event::Miss(node));
        }
    }
    found
}

impl Knowledge {
    fn after(mut self, guard: GuardPromises, event: Event) -> Self {
        match event {
            Event::Tick => {
                self.ages.iter_mut().for_each(|age| *age = (*age + 1).min(guard.term));
                self.sights.iter_mut().for_each(Sight::tick);
            }
            Event::Restart(node) => {
                self.ages[node] = 0;
                self.sights[node].lose();
            }
            Event::Meet(node) => {
                self.sights = Memory::new(guard, self.sights).meet(node, self.ages[node]);
            }
            Event::Miss(node) => self.sights = Memory::new(guard, self.sights).give_up(node),
        }
        self
    }
}

/// Which nodes count after `history`, as it was.
fn truth(guard: GuardPromises, history: &[Event]) -> [bool; NODES] {
    let mut quarantine = new_quarantine(guard);
    // Whoever is old is so for long.
    let mut ages = [if guard.is_fresh { 0_u16 } else { 50 }; NODES];
    let mut runs = [0; NODES];
    let mut now = Time::default().after(100 * TICK);
    for event in history {
        match *event {
            Event::Tick => {
                now = now.after(TICK);
                ages = ages.map(|age| age + 1);
            }
            Event::Restart(node) => {
                ages[node] = 0;
                runs[node] += 1;
            }
            Event::Meet(node) => {
                let uptime = ages[node] + u16::from(guard.uptime_error);
                tell(&mut quarantine, node, runs[node], uptime, now);
            }
            Event::Miss(node) => quarantine.handle_unreachable(NodeId::new(node), now),
        }
    }
    std::array::from_fn(|node| why_not(&quarantine, node, now).is_none())
}
