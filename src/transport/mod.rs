//! Connections to nodes, as byte streams.
//!
//! A client opens every connection through the trait [`Transport`]. This module also contains its implementation for
//! sockets: TCP, TLS over TCP, and Unix sockets. A client has one [`Transport`], which all of its nodes share. No other
//! module opens connections, and this module has no global state.
//!
//! The Redis protocol is in [`wire`](crate::wire). The [`coordinator`](crate::coordinator) decides when to connect and
//! how long to try.

mod address;
mod socket;
mod sockets;
#[cfg(test)]
mod stub_node;
#[cfg(feature = "tls-rustls")]
mod tls;

pub(crate) use address::{Address, TcpAddress};
pub(crate) use sockets::Sockets;
#[cfg(feature = "tls-rustls")]
pub(crate) use sockets::Tls;
#[cfg(test)]
pub(crate) use stub_node::StubNode;
#[cfg(feature = "tls-rustls")]
pub(crate) use tls::{BadFile, TlsFiles};

use futures::future::BoxFuture;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) trait Transport: Send + Sync {
    /// Opens a stream to a node.
    ///
    /// # Cancel safety
    /// Dropping the future closes a stream that is already open.
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// A bidirectional byte stream to a node. Dropping the stream closes the connection.
#[cfg_attr(not(feature = "test-util"), allow(unreachable_pub))] // Simulated worlds implement this trait.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Enables or disables direct reads, which ask the operating system for bytes or an end of file that the runtime
    /// has not noticed yet. A runtime notices new bytes only when one of its threads polls the sockets.
    ///
    /// The default implementation ignores the call.
    fn read_directly(&mut self, is_direct: bool) {
        let _ = is_direct;
    }

    /// If a direct read has returned bytes, registers the stream with the runtime again, because the runtime may no
    /// longer notice bytes: a forked child that drops its copy of the stream removes the stream from the epoll instance
    /// that it shares with its parent. The next read must follow before the task waits. The caller must be a task of
    /// the stream's runtime.
    ///
    /// The default implementation ignores the call.
    fn restore_notifications(&mut self) {}
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}
