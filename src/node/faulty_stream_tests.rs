//! Streams that fail on purpose, to a stub of a node.

use crate::transport::{Address, Stream, StubNode, Transport};
use futures::future::BoxFuture;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A fault of a stream. Each is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It panics as it is made.
    Connecting,
    Reading,
    Writing,
    /// It ends, and panics as it is dropped.
    Dropped,
}

/// Streams to `server`, and what goes wrong with the next that is used.
pub(super) struct Faults {
    pub(super) server: Arc<StubNode>,
    fault: Mutex<Option<Fault>>,
    /// True while replies are held back.
    pub(super) is_silent: AtomicBool,
    /// The streams made before this one lose all bytes, in both directions.
    pub(super) cut_before: AtomicUsize,
    /// True if such a stream ends once something was written to it.
    pub(super) ends_when_cut: AtomicBool,
}

impl Faults {
    pub(super) fn new() -> Arc<Self> {
        let (fault, is_silent, cut_before, ends_when_cut) = <_>::default();
        Arc::new(Self { server: StubNode::new(), fault, is_silent, cut_before, ends_when_cut })
    }

    pub(super) fn strike(&self, fault: Fault) {
        *self.fault.lock().expect("not poisoned") = Some(fault);
    }

    pub(super) fn has_struck(&self) -> bool {
        self.fault.lock().expect("not poisoned").is_none()
    }

    /// Uses `fault` up, if it is the one that is set.
    fn is(&self, fault: Fault) -> bool {
        self.fault.lock().expect("not poisoned").take_if(|set| *set == fault).is_some()
    }
}

pub(super) struct FaultyTransport(pub(super) Arc<Faults>);

impl Transport for FaultyTransport {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            assert!(!self.0.is(Fault::Connecting), "no stream today");
            let stream = self.0.server.connect(to).await?;
            let (faults, number) = (self.0.clone(), self.0.server.addresses().len());
            Ok(Box::new(FaultyStream { faults, stream, number, is_spoilt: false, has_lost: false })
                as _)
        })
    }
}

struct FaultyStream {
    faults: Arc<Faults>,
    stream: Box<dyn Stream>,
    /// Counted from 1.
    number: usize,
    is_spoilt: bool,
    /// True if bytes that were written to it are lost.
    has_lost: bool,
}

impl FaultyStream {
    fn is_cut(&self) -> bool {
        self.number < self.faults.cut_before.load(Ordering::Relaxed)
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        assert!(!self.is_spoilt, "no end today");
    }
}

impl AsyncRead for FaultyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        assert!(!self.faults.is(Fault::Reading), "no bytes today");
        if self.faults.is(Fault::Dropped) {
            self.is_spoilt = true;
            return Poll::Ready(Ok(()));
        }
        if self.is_cut() && self.has_lost && self.faults.ends_when_cut.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        if self.is_cut() || self.faults.is_silent.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, room)
    }
}

impl Stream for FaultyStream {}

impl AsyncWrite for FaultyStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.faults.is(Fault::Writing), "no bytes today");
        if self.is_cut() {
            self.has_lost = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
