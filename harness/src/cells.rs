//! Access of a client process to the counters and fenced cells. Requests go to the controller
//! through standard output, and replies come through standard input.

use crate::line::{ClientMessage, MessageWriter, Request};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Requests to the store that have no reply yet.
#[derive(Debug)]
pub(crate) struct Cells {
    writer: Arc<MessageWriter>,
    next_request: AtomicU64,
    pending: Mutex<HashMap<u64, oneshot::Sender<u64>>>,
}

impl Cells {
    pub(crate) fn new(writer: &Arc<MessageWriter>) -> Self {
        Self { writer: writer.clone(), next_request: AtomicU64::new(0), pending: Mutex::default() }
    }

    /// Reads the counter of a resource.
    pub(crate) async fn read(&self, resource: u16) -> Option<u64> {
        self.ask(Request::Read { resource }).await
    }

    /// Sets the counter if the write arrives before `until` on the boot clock. Returns whether it
    /// did.
    pub(crate) async fn write(&self, resource: u16, value: u64, until: u64) -> Option<bool> {
        let landed = self.ask(Request::Write { resource, value, until }).await?;
        Some(landed == 1)
    }

    /// The highest token that the cell has accepted; 0 before the first one.
    pub(crate) async fn highest(&self, resource: u16) -> Option<u64> {
        self.ask(Request::Highest { resource }).await
    }

    /// Writes to the cell with a token, for tenure `id`. The cell records whether it accepted the
    /// write. The validity of the lease ends at `until` on the boot clock; 0 if it has ended.
    pub(crate) async fn write_fenced(&self, resource: u16, id: u64, token: u64, until: u64) {
        self.ask(Request::WriteFenced { resource, id, token, until }).await;
    }

    /// Completes the request number `ask`.
    pub(crate) fn take(&self, ask: u64, answer: u64) {
        if let Some(reply) = self.pending().remove(&ask) {
            // The receiver is dropped if the task has ended.
            let _ = reply.send(answer);
        }
    }

    /// Sends a request and waits for the reply. `None` if the controller has ended; then this
    /// process ends, too.
    async fn ask(&self, request: Request) -> Option<u64> {
        let ask = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.pending().insert(ask, reply);
        self.writer.send(&ClientMessage::StoreRequest { ask, request });
        answer.await.ok()
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<u64>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
