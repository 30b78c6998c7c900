//! Streams of bytes to nodes.
//!
//! Here live the seam that every connection goes through, and the sockets that are behind it: TCP, TLS over
//! TCP, Unix. A client is given one [`Transport`], and hands it down to each of its nodes: nothing else in the
//! crate opens a connection, and nothing about it is global. No word of Redis' language: that is in
//! [`wire`](crate::wire). When to connect, and for how long to try, is up to [`node`](crate::node).

mod address;
#[cfg(all(test, feature = "test-util"))]
mod inside;
mod sockets;
#[cfg(feature = "tls-rustls")]
mod tls;

pub(crate) use address::{Address, TcpAddress, TcpOptions};
#[cfg(all(test, feature = "test-util"))]
pub(crate) use inside::Inside;
pub(crate) use sockets::Sockets;
#[cfg(feature = "tls-rustls")]
pub(crate) use sockets::Tls;
#[cfg(feature = "tls-rustls")]
pub(crate) use tls::{BadFile, TlsFiles};

use futures::future::BoxFuture;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// What makes streams to nodes.
pub(crate) trait Transport: Send + Sync {
    /// Makes a new stream `to` an address.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// Bytes to a node and from it, in order. Dropping it closes it.
#[cfg_attr(not(feature = "test-util"), allow(unreachable_pub))] // Worlds of tests make streams.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// True if the system has bytes or an end of file for it that the runtime may not have noticed yet. A runtime with
    /// several threads notices them when one of these threads polls the sockets, which may be later than a task runs.
    fn has_unread(&self) -> bool {
        false
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}
