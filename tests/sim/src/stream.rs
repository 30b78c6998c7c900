//! The client's end of a connection.

use crate::shared::Shared;
use futures::future::BoxFuture;
use quorlock_test::Stream;
use quorlock_test::internals::{Carrier, StreamEnd, Wire};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

/// Connects a client of `process` to the node that `address` leads to.
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

impl Carrier for Shared {
    fn with_end<T>(&self, connection: usize, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T> {
        self.lock().connections.get_mut(connection).map(|it| act(&mut it.end))
    }

    fn write(&self, connection: usize, bytes: &[u8]) {
        self.lock().write(connection, bytes);
    }

    fn let_go(&self, connection: usize) {
        let waker = self.lock().let_go(connection);
        drop(waker);
    }
}
