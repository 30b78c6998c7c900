//! Compares the quarantine that the model rebuilds from a state with a quarantine that receives the
//! events directly. The comparison covers all short histories of events.

use crate::NODES;
use crate::memory::{Contact, Memory, NodeView, TICK, exclusion_of, new_quarantine, record_set_up};
use crate::protocol::{NodeId, Time};
use crate::setting::GuardPromises;

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick,
    Restart(usize),
    Connect(usize),
    AssumeUnreachable(usize),
}

#[derive(Clone, Copy)]
struct Knowledge {
    ages: [u8; NODES],
    views: [NodeView; NODES],
}

/// Compares the rebuilt quarantine with a directly fed one, after every history of at most `events`
/// events. Returns the number of histories.
///
/// # Errors
/// Returns the first history after which the quarantines disagree about whether a node's grants
/// count.
pub fn check_rebuilt_quarantine(guard: GuardPromises, events: usize) -> Result<usize, String> {
    let age = if guard.is_fresh { 0 } else { guard.quarantine_period };
    let start = Knowledge { ages: [age; NODES], views: [NodeView::NEW; NODES] };
    let mut count = 0;
    visit(guard, start, &mut Vec::new(), events, &mut count)?;
    Ok(count)
}

fn visit(
    guard: GuardPromises,
    known: Knowledge,
    history: &mut Vec<Event>,
    events: usize,
    count: &mut usize,
) -> Result<(), String> {
    *count += 1;
    let memory = Memory::new(guard, known.views);
    let direct_counts = direct_counts(guard, history);
    if let Some(node) = (0..NODES).find(|node| memory.counts(*node) != direct_counts[*node]) {
        return Err(format!("node {node} after {history:?}"));
    }
    if events == 0 {
        return Ok(());
    }
    for event in possible(guard, known) {
        history.push(event);
        visit(guard, known.after(guard, event), history, events - 1, count)?;
        history.pop();
    }
    Ok(())
}

fn possible(guard: GuardPromises, known: Knowledge) -> Vec<Event> {
    let mut found = vec![Event::Tick];
    for node in 0..NODES {
        found.push(Event::Restart(node));
        let contact = known.views[node].contact();
        if contact != Contact::Up {
            found.push(Event::Connect(node));
        }
        if contact == Contact::None && guard.assumes_unreachable {
            found.push(Event::AssumeUnreachable(node));
        }
    }
    found
}

impl Knowledge {
    fn after(mut self, guard: GuardPromises, event: Event) -> Self {
        match event {
            Event::Tick => {
                self.ages.iter_mut().for_each(|age| *age = (*age + 1).min(guard.quarantine_period));
                self.views.iter_mut().for_each(NodeView::tick);
            }
            Event::Restart(node) => {
                self.ages[node] = 0;
                self.views[node].handle_restart();
            }
            Event::Connect(node) => {
                self.views = Memory::new(guard, self.views).connect(node, self.ages[node]);
            }
            Event::AssumeUnreachable(node) => {
                self.views = Memory::new(guard, self.views).assume_unreachable(node);
            }
        }
        self
    }
}

/// Feeds `history` to a quarantine directly. Returns, for each node, true if the node's grants
/// count.
fn direct_counts(guard: GuardPromises, history: &[Event]) -> [bool; NODES] {
    let mut quarantine = new_quarantine(guard);
    // The age of an old node is well above the quarantine period.
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
            Event::Connect(node) => {
                let uptime = ages[node] + u16::from(guard.uptime_error);
                record_set_up(&mut quarantine, node, runs[node], uptime, now);
            }
            Event::AssumeUnreachable(node) => quarantine.handle_unreachable(NodeId::new(node), now),
        }
    }
    std::array::from_fn(|node| exclusion_of(&quarantine, node, now).is_none())
}
