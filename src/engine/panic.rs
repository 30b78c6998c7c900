//! Engines that have become unusable, because the coordinator has panicked or because the process was forked.

use super::failure::EngineFailure;
use super::shared::{Engine, State};
use crate::sync::{MutexGuard, catch_panic, drop_panic_payload, try_lock};
use std::any::Any;
use std::process;

impl Engine {
    /// Returns the reason why the engine is not usable, or `None` if it is usable. The caller must not lock a mutex of
    /// an unusable engine: in a forked process, a thread that exists only in the parent may hold the lock.
    pub(crate) fn failure(&self) -> Option<EngineFailure> {
        let forked = || (self.process != process::id()).then_some(EngineFailure::Forked);
        self.panic_failure().or_else(forked)
    }

    /// Returns the failure if the coordinator has panicked. Skips the check for a fork, which needs a system call.
    pub(super) fn panic_failure(&self) -> Option<EngineFailure> {
        let message = self.panic.get()?;
        Some(EngineFailure::Panicked(message.clone()))
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.panic.get().is_some()
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.panic.get().is_none() && self.process == process::id()
    }

    /// Makes the engine unusable after a panic of the coordinator, whose state may be inconsistent. All leases are
    /// lost, all calls fail, and the task ends and closes its connections.
    pub(super) fn handle_panic(
        &self,
        mut state: MutexGuard<'_, State>,
        panic: Box<dyn Any + Send>,
    ) {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let _ = self.panic.set(text.unwrap_or("no message").into());
        state.calls.values().for_each(|call| call.handle_panic());
        let mut wakers = state.take_wakers();
        wakers.append(&mut state.wakers);
        drop(state);
        drop_panic_payload(panic);
        self.alarm.cancel();
        drop(self.requests.take());
        catch_panic(|| self.leases.handle_failure());
        // If another thread is taking a turn, that thread closes the connections.
        let io = try_lock(&self.io).map(|mut it| std::mem::take(&mut *it));
        drop(io);
        self.task.wake(self.now());
        catch_panic(|| self.ended.notify_waiters());
        for waker in wakers {
            catch_panic(|| waker.wake());
        }
    }
}
