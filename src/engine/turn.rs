//! A turn of a client: opens connections, and reads and writes all connections that are ready.

use super::io::{Io, MAX_IDLE, MAX_READ, OpenConnection, Opening};
use super::shared::{Engine, Thread};
use crate::coordinator::{ConnectionId, Coordinator};
use crate::node::shield;
use crate::protocol::Time;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{MutexGuard, ProcessBound, lock, try_lock};
use crate::wire::{NodeFailure, clear_buffer};
use redis::RedisError;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

const READ: usize = 8 << 10;

/// The client's task, as passed to [`Engine::take_turn`].
pub(super) struct TurnTask<'a> {
    pub(super) generation: u64,
    pub(super) runtime: &'a Handle,
}

#[derive(Default)]
struct Next {
    connect: Vec<ConnectionId>,
    /// Whether the task must yield to other tasks and then run again.
    yields: bool,
    reads: bool,
    is_closed: bool,
}

impl Engine {
    /// Reads and writes all connections that are ready. `task` is the client's task, or `None` if the alarm or another
    /// thread calls this method. Without `task`, no connection is opened, and the streams continue to wake the client's
    /// task.
    ///
    /// Returns true if the client is closed or the task was replaced. Returns `None` if another thread is using the
    /// connections.
    pub(super) fn take_turn(
        &self,
        cx: &mut Context<'_>,
        task: Option<&TurnTask<'_>>,
    ) -> Option<bool> {
        let mut io = self.try_lock_io()?;
        // A task that was replaced must not poll connections that its successor opens.
        let is_over = task.is_some_and(|task| !self.task.is_current(task.generation))
            || match self.task.waker().filter(|_| task.is_none()) {
                Some(waker) => io.take_turn(self, &mut Context::from_waker(&waker), None),
                None => io.take_turn(self, cx, task),
            };
        drop(io);
        fence(Ordering::SeqCst);
        if self.was_busy.swap(false, Ordering::SeqCst) {
            self.task.wake(self.now());
        }
        if task.is_some() {
            self.apply_delayed();
        }
        Some(is_over)
    }

    /// Locks the connections. Returns `None` if another thread is using them. That thread wakes the task afterwards.
    fn try_lock_io(&self) -> Option<MutexGuard<'_, Io>> {
        if let Some(io) = try_lock(&self.io) {
            return Some(io);
        }
        self.was_busy.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The other turn may have ended before it could see the flag.
        try_lock(&self.io)
    }

    /// Starts a task that obtains the credentials and opens a connection. The task is separate, so that a blocking
    /// callback does not delay other connections.
    fn open(&self, id: ConnectionId, runtime: &Handle) -> Opening {
        let (node, engine) = (self.shared(id.node).clone(), self.this.clone());
        let task = runtime.spawn(self.environment().task(async move {
            let opened = async {
                let (login, _) = node.log_in().await?;
                let login = login.into_owned();
                let stream = node.connect().await;
                let stream = stream.map_err(|error| NodeFailure::unreachable(&error.into()))?;
                Ok((ProcessBound::new(stream), login))
            };
            // tokio panics if the system refuses a thread, for example to resolve a name.
            let opened = shield(opened, |panic| NodeFailure::Unreachable(panic.into())).await;
            if let Some(engine) = engine.upgrade() {
                lock(&engine.opened).push((id, opened));
                engine.task.wake(engine.now());
                engine.close_unused();
            }
        }));
        Opening { id, task: task.abort_handle() }
    }

    /// Closes streams that were opened after the end of the task. Must be called after each stream is opened, and after
    /// the task has ended.
    pub(super) fn close_unused(&self) {
        // Orders the push of a stream, or the end of the task, before the check.
        fence(Ordering::SeqCst);
        if !self.is_served() || self.has_panicked() {
            let unused = std::mem::take(&mut *lock(&self.opened));
            drop(unused);
        }
    }
}

impl Io {
    fn take_turn(
        &mut self,
        engine: &Engine,
        cx: &mut Context<'_>,
        task: Option<&TurnTask<'_>>,
    ) -> bool {
        self.open.iter_mut().for_each(|connection| connection.begin_turn(task.is_some()));
        let thread = if task.is_some() { Thread::Turn } else { Thread::Timer };
        loop {
            let mut has_more = self.write(cx);
            self.take_opened(engine);
            let is_full = self.read(cx);
            let exchanged = engine.with_turn(thread, |it, now| {
                let is_replaced = task.is_some_and(|task| !engine.task.is_current(task.generation));
                let next = self.exchange(it, now, task.is_some() && !is_replaced);
                (next, self.take_ended(it), is_replaced)
            });
            let Some((next, ended, is_replaced)) = exchanged else { return true };
            // The streams are closed after the engine's state is unlocked.
            drop(ended);
            if is_replaced {
                return true;
            }
            if is_full || next.yields {
                cx.waker().wake_by_ref();
            }
            for id in next.connect {
                self.opening.extend(task.map(|task| engine.open(id, task.runtime)));
            }
            has_more |= self.write(cx) || next.reads;
            if !has_more {
                return next.is_closed;
            }
        }
    }

    /// Takes the results of the tasks that open connections. The caller must then read each new stream, because the
    /// read registers the task's waker.
    fn take_opened(&mut self, engine: &Engine) {
        for (id, result) in std::mem::take(&mut *lock(&engine.opened)) {
            self.opening.retain(|opening| opening.id != id);
            let result = result.map(|(stream, login)| {
                self.open.push(OpenConnection::new(id, stream));
                login
            });
            self.opened.push((id, result));
        }
    }

    /// Passes opened connections, received bytes and lost connections to the coordinator, and takes the bytes to write.
    fn exchange(&mut self, it: &mut Coordinator, now: Time, is_task: bool) -> Next {
        for (id, result) in self.opened.drain(..) {
            match result {
                Ok(login) => it.handle_connected(id, &login, now),
                Err(failure) => it.handle_connect_failed(id, failure, now),
            }
        }
        for connection in &self.open {
            it.handle_unsent(connection.id, connection.unsent.len());
            if connection.budget == 0 {
                it.handle_backlog(connection.id, now);
            }
        }
        for (id, part) in self.parts.drain(..) {
            it.handle_bytes(id, &self.received[part], now);
        }
        if !self.received.is_empty() {
            clear_buffer(&mut self.received, MAX_IDLE);
        }
        for (id, error) in self.lost.drain(..) {
            self.open.retain(|connection| connection.id != id);
            it.handle_closed(id, &RedisError::from(error), now);
        }
        let mut next = Next::default();
        if is_task {
            next.connect.extend(std::iter::from_fn(|| it.poll_connect(now)));
        }
        let mut is_first = true;
        // A cancelled command can count as a vote although it is not written. The vote can make the coordinator submit
        // more commands.
        while it.take_submitted() || is_first {
            for connection in &mut self.open {
                // Callers that receive their results at the same time tend to submit their next commands together.
                let gathers = is_task && it.should_gather(connection.id, connection.yields, now);
                connection.yields += u32::from(gathers);
                next.yields |= gathers;
                next.reads |= !gathers && !connection.take_bytes_to_write(it, now);
            }
            is_first = false;
        }
        next.is_closed = it.is_closed();
        next
    }

    fn take_ended(&mut self, it: &Coordinator) -> (Vec<Opening>, Vec<OpenConnection>) {
        let opening = self.opening.extract_if(.., |opening| !it.is_open(opening.id)).collect();
        let open = self.open.extract_if(.., |connection| !it.is_open(connection.id)).collect();
        (opening, open)
    }

    /// Reads the available bytes, up to the budget of each connection. Returns true if more bytes may be available.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { open, received, parts, lost, .. } = self;
        received.clear();
        let mut is_full = false;
        let mut buffer = [MaybeUninit::uninit(); READ];
        for OpenConnection { id, stream, budget, yields, .. } in open {
            let start = received.len();
            let mut is_pending = false;
            while *budget > 0 && !is_pending {
                let mut buffer = ReadBuf::uninit(&mut buffer);
                let error = match Pin::new(&mut **stream).poll_read(cx, &mut buffer) {
                    Poll::Pending => {
                        is_pending = true;
                        continue;
                    }
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                        received.extend_from_slice(buffer.filled());
                        *budget = budget.saturating_sub(buffer.filled().len());
                        continue;
                    }
                    Poll::Ready(Ok(())) => io::ErrorKind::UnexpectedEof.into(),
                    Poll::Ready(Err(error)) => error,
                };
                lost.push((*id, error));
                is_pending = true;
            }
            if received.len() > start {
                *yields = 0;
                parts.push((*id, start..received.len()));
            }
            is_full |= *budget == 0;
        }
        is_full
    }

    /// Writes the bytes that the streams accept. Returns true if a stream has failed or has accepted only some of the
    /// bytes.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_more = false;
        for OpenConnection { id, stream, unsent, is_set_up, .. } in &mut self.open {
            if unsent.is_empty() {
                continue;
            }
            let error = match Pin::new(&mut **stream).poll_write(cx, unsent) {
                Poll::Pending => continue,
                Poll::Ready(Ok(0)) => io::ErrorKind::WriteZero.into(),
                Poll::Ready(Ok(count)) if count == unsent.len() => {
                    let most = if std::mem::replace(is_set_up, true) { MAX_READ } else { 0 };
                    clear_buffer(unsent, most);
                    continue;
                }
                Poll::Ready(Ok(count)) => {
                    unsent.drain(..count);
                    has_more = true;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
            };
            unsent.clear();
            self.lost.push((*id, error));
            has_more = true;
        }
        has_more
    }
}

impl OpenConnection {
    /// Takes the bytes to write from the coordinator. Returns false if the connection must be read directly first.
    fn take_bytes_to_write(&mut self, it: &mut Coordinator, now: Time) -> bool {
        if !self.unsent.is_empty() {
            return true;
        }
        // During a flood of pushes, more bytes are always available, so a connection with no budget left is not read
        // again.
        if self.budget > 0 && !self.is_direct && it.must_read_first(self.id, now) {
            self.read_directly(true);
            return false;
        }
        loop {
            let bytes = it.poll_transmit(self.id, now);
            if bytes.is_empty() {
                return true;
            }
            self.unsent.extend_from_slice(bytes);
            let count = bytes.len();
            it.handle_sent(self.id, count);
        }
    }
}
