//! A queue of events that occur on the timer thread or on the library's own runtime. A separate thread passes the
//! events to the observers, because a slow observer must not block the threads that serve all clients.

use crate::node::Pool;
use crate::observe::event::Event;
use crate::observe::{EventLevel, Observers};
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Maximum number of events that wait while an observer blocks. Later events are dropped.
const MAX_EVENTS: usize = 1 << 10;

#[derive(Default)]
pub(super) struct EventQueue(Mutex<State>);

#[derive(Default)]
struct State {
    events: VecDeque<(EventLevel, Event)>,
    is_emitting: bool,
}

impl EventQueue {
    /// Adds events to the queue. Returns true if no thread is emitting events. The caller must then make a thread call
    /// [`emit_all`](Self::emit_all).
    fn push(&self, events: Vec<(EventLevel, Event)>) -> bool {
        let mut state = lock(&self.0);
        let room = MAX_EVENTS.saturating_sub(state.events.len());
        state.events.extend(events.into_iter().take(room));
        !std::mem::replace(&mut state.is_emitting, true)
    }

    fn pop(&self) -> Option<(EventLevel, Event)> {
        let mut state = lock(&self.0);
        let event = state.events.pop_front();
        state.is_emitting = event.is_some();
        event
    }

    fn emit_all(&self, observers: &Observers) {
        while let Some((level, event)) = self.pop() {
            observers.emit(level, || event);
        }
    }

    /// Emits `events` on a blocking thread of the library's own runtime. If that runtime does not exist, emits the
    /// events on the current thread.
    pub(super) fn emit_elsewhere(self: &Arc<Self>, events: Vec<(EventLevel, Event)>, pool: &Pool) {
        if events.is_empty() || !self.push(events) {
            return;
        }
        let (queue, observers) = (self.clone(), pool.observers().clone());
        match pool.own_runtime() {
            Some(runtime) => drop(runtime.spawn_blocking(move || queue.emit_all(&observers))),
            None => self.emit_all(&observers),
        }
    }
}
