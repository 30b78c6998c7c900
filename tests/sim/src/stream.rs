//! The client's end of a connection.

use crate::rule::Rule;
use crate::shared::Shared;
use futures::future::BoxFuture;
use quorlock_test::Stream;
use quorlock_test::internals::{Carrier, StreamEnd, Wire};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

pub(crate) fn connect(
    shared: Arc<Shared>,
    (process, client): (usize, u64),
    address: usize,
) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
    Box::pin(async move {
        let connection = shared.lock().open(process, client, address);
        let wire = Wire::new(shared, connection);
        poll_fn(|cx| wire.poll_open(cx)).await?;
        let stream: Box<dyn Stream> = Box::new(wire);
        Ok(stream)
    })
}

/// The maximum number of bytes that a client may read from a connection in one turn of the
/// scheduler. A ringing alarm takes two turns of the client in one turn of the scheduler.
const MAX_READ: usize = (2 * (64 + 8)) << 10;

impl Carrier for Shared {
    fn with_end<T>(&self, connection: usize, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T> {
        let core = &mut *self.lock();
        let it = core.connections.get_mut(connection)?;
        let before = it.end.inbox.len();
        let result = act(&mut it.end);
        let count = before.saturating_sub(it.end.inbox.len());
        let earlier = if it.read.0 == core.polls_and_rings { it.read.1 } else { 0 };
        it.read = (core.polls_and_rings, earlier + count);
        core.counts.add(Rule::Bounded, u64::from(count > 0));
        if it.read.1 > MAX_READ {
            let how = format!("#{connection}: {} bytes were read in one turn", it.read.1);
            core.findings.push((Rule::Bounded, how));
        }
        Some(result)
    }

    fn write(&self, connection: usize, bytes: &[u8]) {
        self.lock().write(connection, bytes);
    }

    fn close(&self, connection: usize) {
        let waker = self.lock().close(connection);
        drop(waker);
    }
}
