//! The counters and the fenced cells, as a client sees them: it asks the torturer by its standard output, and is
//! answered by its standard input.

use crate::line::{Line, Request, Teller};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// What is asked for, and not answered yet.
#[derive(Debug)]
pub(crate) struct Cells {
    teller: Arc<Teller>,
    asked: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<u64>>>,
}

impl Cells {
    /// Those of the torturer that `teller` tells.
    pub(crate) fn new(teller: &Arc<Teller>) -> Self {
        Self { teller: teller.clone(), asked: AtomicU64::new(0), open: Mutex::default() }
    }

    /// The counter of a resource.
    pub(crate) async fn read(&self, resource: u16) -> Option<u64> {
        self.ask(Request::Read { resource }).await
    }

    /// Sets the counter, if that lands before `until`, on the boot clock; says whether it did.
    pub(crate) async fn write(&self, resource: u16, value: u64, until: u64) -> Option<bool> {
        let landed = self.ask(Request::Write { resource, value, until }).await?;
        Some(landed == 1)
    }

    /// The highest token that the cell has taken; 0 before the first one.
    pub(crate) async fn highest(&self, resource: u16) -> Option<u64> {
        self.ask(Request::Highest { resource }).await
    }

    /// Writes with a token, as the tenure of that number; the cell notes whether it took that. The validity ends at
    /// `until`, on the boot clock; 0 if it has ended.
    pub(crate) async fn write_fenced(&self, resource: u16, id: u64, token: u64, until: u64) {
        self.ask(Request::WriteFenced { resource, id, token, until }).await;
    }

    /// Takes an answer of the torturer.
    pub(crate) fn take(&self, ask: u64, answer: u64) {
        if let Some(asker) = self.open().remove(&ask) {
            // Who has gone meanwhile does not want it.
            let _ = asker.send(answer);
        }
    }

    /// `None` if there is no torturer any more: this process ends then.
    async fn ask(&self, request: Request) -> Option<u64> {
        let ask = self.asked.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.open().insert(ask, asker);
        self.teller.tell(&Line::Asks { ask, request });
        answer.await.ok()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<u64>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
