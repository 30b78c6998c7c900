//! A turn of a node: opens, reads and writes its connections.

use super::io::{Connections, NodeIo, Opening};
use super::shared::Engine;
use crate::coordinator::ConnectionId;
use crate::protocol::NodeId;
use crate::sync::lock;
use crate::wire::NodeFailure;
use redis::RedisError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that one read takes.
const READ: usize = 64 << 10;

impl NodeIo {
    /// Reads and writes until no more is possible. `is_task` is false outside of the node's task: no connection is
    /// opened there, and streams keep the waker of the task.
    pub(super) fn take_turn(&self, engine: &Engine, cx: &mut Context<'_>, is_task: bool) {
        if is_task {
            self.is_missed.store(true, Ordering::SeqCst);
        }
        let Ok(mut connections) = self.connections.try_lock() else { return };
        if is_task {
            self.is_missed.store(false, Ordering::SeqCst);
        }
        let task = lock(&self.waker).clone();
        let waker = task.filter(|_| !is_task).unwrap_or_else(|| cx.waker().clone());
        let mut cx = Context::from_waker(&waker);
        self.is_blocked.store(false, Ordering::Release);
        while connections.step(engine, self.node, &mut cx, is_task) {}
        self.is_blocked.store(connections.is_blocked, Ordering::Release);
        drop(connections);
        if !is_task && self.is_missed.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }
}

impl Connections {
    /// Returns true if there may be more to do.
    fn step(&mut self, engine: &Engine, node: NodeId, cx: &mut Context<'_>, is_task: bool) -> bool {
        let closed = engine.with_io(node, |it, now| {
            while is_task && let Some(id) = it.poll_connect_to(node, now) {
                self.opening.push((id, engine.open(node)));
            }
            let opening: Vec<_> = self.opening.extract_if(.., |(id, _)| !it.is_open(*id)).collect();
            let open: Vec<_> = self.open.extract_if(.., |(id, _)| !it.is_open(*id)).collect();
            (opening, open)
        });
        drop(closed);
        let has_opened = is_task && self.poll_opening(engine, node, cx);
        let has_read = self.read(engine, node, cx);
        if has_read {
            self.has_gathered = false;
        }
        if is_task && !self.has_gathered {
            // Callers that were answered together submit their next commands together.
            self.has_gathered = true;
            let may_gather = engine
                .with_io(node, |it, now| self.open.iter().any(|(id, _)| it.may_gather(*id, now)));
            if may_gather {
                cx.waker().wake_by_ref();
                return false;
            }
        }
        let has_written = self.write(engine, node, cx);
        has_opened || has_read || has_written
    }

    fn poll_opening(&mut self, engine: &Engine, node: NodeId, cx: &mut Context<'_>) -> bool {
        let mut done = Vec::new();
        self.opening.retain_mut(|(id, opening)| match opening.as_mut().poll(cx) {
            Poll::Ready(result) => {
                done.push((*id, result));
                false
            }
            Poll::Pending => true,
        });
        let has_opened = !done.is_empty();
        for (id, result) in done {
            match result {
                Ok((stream, login)) => {
                    self.open.push((id, stream));
                    engine.with_io(node, |it, now| it.handle_connected(id, &login, now));
                }
                Err(failure) => {
                    engine.with_io(node, |it, now| it.handle_connect_failed(id, failure, now));
                }
            }
        }
        has_opened
    }

    fn read(&mut self, engine: &Engine, node: NodeId, cx: &mut Context<'_>) -> bool {
        self.buffer.resize(READ, 0);
        let (mut has_read, mut lost) = (false, Vec::new());
        for (id, stream) in &mut self.open {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            let error = match Pin::new(stream).poll_read(cx, &mut buffer) {
                Poll::Pending => continue,
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    io::Error::from(io::ErrorKind::UnexpectedEof)
                }
                Poll::Ready(Ok(())) => {
                    has_read = true;
                    let bytes = buffer.filled();
                    engine.with_io(node, |it, now| it.handle_bytes(*id, bytes, now));
                    continue;
                }
                Poll::Ready(Err(error)) => error,
            };
            lost.push((*id, error));
        }
        has_read || self.lose(engine, node, lost)
    }

    fn write(&mut self, engine: &Engine, node: NodeId, cx: &mut Context<'_>) -> bool {
        let (mut has_written, mut lost) = (false, Vec::new());
        let Self { open, buffer, is_blocked, .. } = self;
        *is_blocked = false;
        for (id, stream) in open {
            let must_wait = stream.has_unread();
            buffer.clear();
            let is_held = engine.with_io(node, |it, now| {
                let is_held = must_wait && it.must_read_first(*id, now);
                if !is_held {
                    buffer.extend_from_slice(it.poll_transmit(*id, now));
                }
                is_held
            });
            if is_held {
                // The runtime has not noticed yet that there are bytes or the end of the stream.
                cx.waker().wake_by_ref();
            }
            if buffer.is_empty() {
                continue;
            }
            match Pin::new(stream).poll_write(cx, buffer) {
                Poll::Pending => *is_blocked = true,
                Poll::Ready(Ok(0)) => lost.push((*id, io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    has_written = true;
                    engine.with_io(node, |it, _| it.handle_sent(*id, count));
                }
                Poll::Ready(Err(error)) => lost.push((*id, error)),
            }
        }
        let is_lost = self.lose(engine, node, lost);
        has_written || is_lost
    }

    fn lose(
        &mut self,
        engine: &Engine,
        node: NodeId,
        lost: Vec<(ConnectionId, io::Error)>,
    ) -> bool {
        let is_lost = !lost.is_empty();
        for (id, error) in lost {
            self.open.retain(|(known, _)| *known != id);
            let error: RedisError = error.into();
            engine.with_io(node, |it, now| it.handle_closed(id, &error, now));
        }
        is_lost
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
