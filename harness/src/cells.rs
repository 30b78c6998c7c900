//! A client process's access to the shared counters and fenced cells, which the controller process
//! stores. Requests are sent through standard output, and replies arrive through standard input.

use crate::line::{ClientMessage, MessageWriter, Request};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

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

    pub(crate) async fn read(&self, resource: u16) -> Option<u64> {
        self.request(Request::Read { resource }).await
    }

    /// Sets the counter of a resource, unless the write arrives after `until` on the boot clock.
    /// Returns whether the counter was set, or `None` if the controller has ended.
    pub(crate) async fn write(&self, resource: u16, value: u64, until: u64) -> Option<bool> {
        let landed = self.request(Request::Write { resource, value, until }).await?;
        Some(landed == 1)
    }

    /// Returns the highest token that the resource's fenced cell has accepted, or 0 before the
    /// first write. Returns `None` if the controller has ended.
    pub(crate) async fn highest(&self, resource: u16) -> Option<u64> {
        self.request(Request::Highest { resource }).await
    }

    /// Writes to the resource's fenced cell, which may refuse the token. The caller does not learn
    /// the result: the checks read it from the cell. `until` is the end of the lease's validity on
    /// the boot clock, or 0 if the lease has expired.
    pub(crate) async fn write_fenced(&self, resource: u16, id: u64, token: u64, until: u64) {
        self.request(Request::WriteFenced { resource, id, token, until }).await;
    }

    pub(crate) fn deliver_reply(&self, request_id: u64, value: u64) {
        if let Some(reply) = self.pending().remove(&request_id) {
            // The receiver is dropped if the task has ended.
            let _ = reply.send(value);
        }
    }

    /// Sends a request to the controller and returns the reply. Returns `None` if the controller
    /// has ended, in which case this process also ends.
    async fn request(&self, request: Request) -> Option<u64> {
        let request_id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (reply, value) = oneshot::channel();
        self.pending().insert(request_id, reply);
        self.writer.send(&ClientMessage::StoreRequest { request_id, request });
        value.await.ok()
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<u64>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
