//! A queue of events that occur on the timer thread or on the library's own runtime. A separate thread passes the
//! events to the observers, because a slow observer must not block the threads that serve all clients.

use crate::observe::event::Event;
use crate::observe::{EventLevel, Observers};
use crate::sync::{lock, threads, wait};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of events that wait while an observer blocks. Later events are dropped.
const MAX_EVENTS: usize = 1 << 10;

/// How long the thread that emits events waits for more of them.
const LINGER: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct EventQueue {
    state: Mutex<State>,
    pushed: Condvar,
}

#[derive(Default)]
struct State {
    events: VecDeque<(EventLevel, Event, Observers)>,
    /// Whether a thread emits the queued events.
    is_emitting: bool,
}

impl EventQueue {
    /// Emits `events` on a separate thread. If the system cannot start the thread, the events wait until the next call,
    /// which tries again.
    pub(super) fn emit_elsewhere(
        self: &Arc<Self>,
        events: Vec<(EventLevel, Event)>,
        observers: &Observers,
    ) {
        if events.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        let room = MAX_EVENTS.saturating_sub(state.events.len());
        let events = events.into_iter().take(room);
        state.events.extend(events.map(|(level, event)| (level, event, observers.clone())));
        if std::mem::replace(&mut state.is_emitting, true) {
            self.pushed.notify_one();
            return;
        }
        drop(state);
        let queue = self.clone();
        if threads::spawn("quorlock-events", move || queue.emit_all()).is_err() {
            lock(&self.state).is_emitting = false;
        }
    }

    fn emit_all(&self) {
        while let Some((level, event, observers)) = self.pop() {
            observers.emit(level, || event);
        }
    }

    /// Waits for an event for up to [`LINGER`]. Holds no observer while it waits, so that the program can drop them.
    fn pop(&self) -> Option<(EventLevel, Event, Observers)> {
        let end = Instant::now() + LINGER;
        let mut state = lock(&self.state);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = state.events.pop_front();
            if event.is_some() || left.is_zero() {
                state.is_emitting = event.is_some();
                return event;
            }
            state = wait(&self.pushed, state, Some(left));
        }
    }
}
