//! A turn of a node: opens, reads and writes its connections.

use super::io::{Connections, NodeIo, OpenConnection, Opening};
use super::shared::Engine;
use crate::coordinator::{ConnectionId, Coordinator};
use crate::protocol::{NodeId, Time};
use crate::sync::lock;
use crate::wire::NodeFailure;
use redis::RedisError;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that one read takes.
const READ: usize = 8 << 10;

/// Number of bytes of one connection from which on the rest is read in the next turn.
const MAX_READ: usize = 64 << 10;

/// Actions of the driver after a step of a turn.
#[derive(Default)]
struct Next {
    /// Connections to open.
    connect: Vec<ConnectionId>,
    /// True if the task has to run again after other tasks.
    yields: bool,
    is_closed: bool,
}

impl NodeIo {
    /// Reads and writes what is possible. `task` is the generation of the node's task. Outside of it, no connection is
    /// opened, and streams keep the waker of the task. Returns true once the client is closed or the task was replaced.
    pub(super) fn take_turn(
        &self,
        engine: &Engine,
        cx: &mut Context<'_>,
        task: Option<u64>,
    ) -> bool {
        let Some(mut connections) = self.try_lock() else { return false };
        let known = if task.is_none() { lock(&self.waker).clone() } else { None };
        let waker = known.unwrap_or_else(|| cx.waker().clone());
        // A task that was replaced must not poll connections that its successor opens.
        let is_over = task.is_some_and(|task| !self.is_current(task))
            || connections.take_turn(engine, self, &mut Context::from_waker(&waker), task);
        drop(connections);
        fence(Ordering::SeqCst);
        if self.was_busy.swap(false, Ordering::SeqCst) {
            self.wake(engine.now());
        }
        is_over
    }

    /// Locks the connections. If another thread takes a turn, that thread wakes the task afterwards.
    fn try_lock(&self) -> Option<MutexGuard<'_, Connections>> {
        if let Ok(connections) = self.connections.try_lock() {
            return Some(connections);
        }
        self.was_busy.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The other turn may have ended before it could see that.
        self.connections.try_lock().ok()
    }
}

impl Connections {
    fn take_turn(
        &mut self,
        engine: &Engine,
        io: &NodeIo,
        cx: &mut Context<'_>,
        task: Option<u64>,
    ) -> bool {
        let node = io.node;
        let mut budget = MAX_READ;
        loop {
            let mut has_more = self.write(cx);
            if task.is_some() {
                self.poll_opening(cx);
            }
            let is_full = self.read(cx, &mut budget);
            self.is_flooded = is_full;
            let exchanged = engine.with_io(node, |it, now| {
                let is_replaced = task.is_some_and(|task| !io.is_current(task));
                let next = self.exchange(it, node, now, task.is_some() && !is_replaced);
                (next, self.take_ended(it), is_replaced)
            });
            let Some((next, ended, is_replaced)) = exchanged else { return true };
            // The streams are closed without a lock.
            drop(ended);
            if is_replaced {
                return true;
            }
            if is_full || next.yields {
                cx.waker().wake_by_ref();
            }
            for id in next.connect {
                self.opening.push((id, engine.open(node)));
                has_more = true;
            }
            has_more |= self.write(cx);
            if !has_more {
                return next.is_closed;
            }
        }
    }

    /// Passes to the coordinator what was opened, read or lost, and takes the bytes to write.
    fn exchange(&mut self, it: &mut Coordinator, node: NodeId, now: Time, is_task: bool) -> Next {
        for (id, result) in self.opened.drain(..) {
            match result {
                Ok(login) => it.handle_connected(id, &login, now),
                Err(failure) => it.handle_connect_failed(id, failure, now),
            }
        }
        for connection in &self.open {
            it.handle_unsent(connection.id, connection.unsent.len());
        }
        if !self.parts.is_empty() {
            self.has_gathered = false;
        }
        for (id, part) in self.parts.drain(..) {
            it.handle_bytes(id, &self.received[part], now);
        }
        for (id, error) in self.lost.drain(..) {
            self.open.retain(|connection| connection.id != id);
            it.handle_closed(id, &RedisError::from(error), now);
        }
        let mut next = Next::default();
        if is_task {
            next.connect.extend(std::iter::from_fn(|| it.poll_connect_to(node, now)));
        }
        if is_task && !std::mem::replace(&mut self.has_gathered, true) {
            // Callers that were answered together submit their next commands together.
            next.yields = self.open.iter().any(|connection| it.may_gather(connection.id, now));
        }
        if !next.yields {
            // Under a flood of pushes there is always more to read.
            let reads_first = !self.is_flooded;
            let each = self.open.iter_mut();
            next.yields = each.fold(false, |yields, connection| {
                yields | !connection.take_bytes_to_write(it, reads_first, now)
            });
        }
        next.is_closed = it.is_closed();
        next
    }

    /// Removes the connections that have ended.
    fn take_ended(
        &mut self,
        it: &Coordinator,
    ) -> (Vec<(ConnectionId, Opening)>, Vec<OpenConnection>) {
        let opening = self.opening.extract_if(.., |(id, _)| !it.is_open(*id)).collect();
        let open = self.open.extract_if(.., |connection| !it.is_open(connection.id)).collect();
        (opening, open)
    }

    fn poll_opening(&mut self, cx: &mut Context<'_>) {
        let Self { opening, open, opened, .. } = self;
        opening.retain_mut(|(id, opening)| {
            let Poll::Ready(result) = opening.as_mut().poll(cx) else { return true };
            let result = result.map(|(stream, login)| {
                open.push(OpenConnection { id: *id, stream, unsent: Vec::new() });
                login
            });
            opened.push((*id, result));
            false
        });
    }

    /// Reads what has arrived, up to `budget` bytes. Returns true if there may be more.
    fn read(&mut self, cx: &mut Context<'_>, budget: &mut usize) -> bool {
        let Self { open, received, parts, lost, .. } = self;
        received.clear();
        let mut buffer = [MaybeUninit::uninit(); READ];
        for OpenConnection { id, stream, .. } in open {
            let start = received.len();
            let mut is_pending = false;
            while *budget > 0 && !is_pending {
                let mut buffer = ReadBuf::uninit(&mut buffer);
                let error = match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
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
                parts.push((*id, start..received.len()));
            }
        }
        *budget == 0
    }

    /// Writes what the streams take. Returns true if one has failed, or has taken a part.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_more = false;
        for OpenConnection { id, stream, unsent } in &mut self.open {
            if unsent.is_empty() {
                continue;
            }
            let error = match Pin::new(stream).poll_write(cx, unsent) {
                Poll::Pending => continue,
                Poll::Ready(Ok(0)) => io::ErrorKind::WriteZero.into(),
                Poll::Ready(Ok(count)) => {
                    unsent.drain(..count);
                    has_more |= !unsent.is_empty();
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
    /// Returns false if the connection must be read before: the runtime has not noticed yet that there are bytes or the
    /// end of the stream.
    fn take_bytes_to_write(&mut self, it: &mut Coordinator, reads_first: bool, now: Time) -> bool {
        if !self.unsent.is_empty() {
            return true;
        }
        if reads_first && it.must_read_first(self.id, now) && self.stream.has_unread() {
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

impl Engine {
    /// Connects to `node`, after it has obtained the credentials.
    fn open(&self, node: NodeId) -> Opening {
        let shared: Arc<_> = self.shared(node).clone();
        Box::pin(async move {
            let (login, _) = shared.log_in().await?;
            let login = login.into_owned();
            let stream = shared.connect().await;
            let stream = stream.map_err(|error| NodeFailure::unreachable(&error.into()))?;
            Ok((stream, login))
        })
    }
}
