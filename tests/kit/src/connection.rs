//! A proxied connection: two sockets, and one flow per direction.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use socket2::{Domain, SockRef, Socket, Type};

use crate::Direction;
use crate::flow::{Delivery, DirectionState, Flow};

/// A connection that the proxy accepted from a client, with the corresponding connection to the
/// server.
#[derive(Debug)]
pub(crate) struct Connection {
    client: TcpStream,
    server: SocketState,
    requests: Flow,
    replies: Flow,
}

#[derive(Debug)]
enum SocketState {
    /// The proxy must not connect to the server yet.
    Parked,
    Connecting(TcpStream),
    Open(TcpStream),
    Failed,
}

impl Connection {
    /// Creates a proxied connection that is not yet connected to the server.
    pub(crate) fn parked(client: TcpStream) -> Self {
        // An error means that the client has already closed the connection, which the next read
        // detects.
        let _ = client.set_nonblocking(true);
        let _ = client.set_nodelay(true);
        Self { client, server: SocketState::Parked, requests: Flow::new(), replies: Flow::new() }
    }

    /// Starts to connect to the server, unless the proxy has already started to connect.
    pub(crate) fn connect(&mut self, target: SocketAddr) {
        if matches!(self.server, SocketState::Parked) {
            self.server =
                start_connecting(target).map_or(SocketState::Failed, SocketState::Connecting);
        }
    }

    pub(crate) fn client(&self) -> &TcpStream {
        &self.client
    }

    pub(crate) fn server(&self) -> Option<&TcpStream> {
        match &self.server {
            SocketState::Connecting(server) | SocketState::Open(server) => Some(server),
            SocketState::Parked | SocketState::Failed => None,
        }
    }

    pub(crate) fn flow(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::Requests => &mut self.requests,
            Direction::Replies => &mut self.replies,
        }
    }

    pub(crate) fn wanted(
        &self,
        requests: &DirectionState,
        replies: &DirectionState,
    ) -> (PollFlags, PollFlags) {
        match self.server {
            SocketState::Parked | SocketState::Failed => (PollFlags::empty(), PollFlags::empty()),
            SocketState::Connecting(_) => (PollFlags::empty(), PollFlags::OUT),
            SocketState::Open(_) => (
                flags(self.requests.wants_bytes(), self.replies.wants_room(replies)),
                flags(self.replies.wants_bytes(), self.requests.wants_room(requests)),
            ),
        }
    }

    /// Returns the time at which [`deliver`](Self::deliver) must be called, unless a socket is
    /// ready before that time. Returns `None` if no chunk waits for its delay to end.
    pub(crate) fn next_due(
        &self,
        requests: &DirectionState,
        replies: &DirectionState,
    ) -> Option<Instant> {
        let due = [self.requests.next_due(requests), self.replies.next_due(replies)];
        due.into_iter().flatten().min()
    }

    pub(crate) fn read_client(&mut self, requests: &mut DirectionState, buffer: &mut [u8]) {
        if self.requests.wants_bytes() {
            self.requests.read(&self.client, requests, buffer, &mut None);
        }
    }

    /// Handles an event of the server's socket: completes the connection to the server, or reads
    /// replies. For `cut`, see [`Flow::read`].
    pub(crate) fn read_server(
        &mut self,
        replies: &mut DirectionState,
        buffer: &mut [u8],
        cut: &mut Option<usize>,
    ) {
        match std::mem::replace(&mut self.server, SocketState::Failed) {
            SocketState::Connecting(server) if matches!(server.take_error(), Ok(None)) => {
                self.server = SocketState::Open(server);
            }
            SocketState::Open(server) => {
                if self.replies.wants_bytes() {
                    self.replies.read(&server, replies, buffer, cut);
                }
                self.server = SocketState::Open(server);
            }
            SocketState::Connecting(_) | SocketState::Parked | SocketState::Failed => {}
        }
    }

    pub(crate) fn deliver(
        &mut self,
        requests: &DirectionState,
        replies: &DirectionState,
        now: Instant,
    ) -> Delivery {
        let server = match &self.server {
            SocketState::Parked | SocketState::Connecting(_) => return Delivery::Open,
            SocketState::Open(server) => server,
            SocketState::Failed => return Delivery::Reset,
        };
        let forth = self.requests.deliver(server, requests, now);
        let back = self.replies.deliver(&self.client, replies, now);
        match (forth, back) {
            (Delivery::Reset, _) | (_, Delivery::Reset) => Delivery::Reset,
            (Delivery::Ended, Delivery::Ended) => Delivery::Ended,
            _ => Delivery::Open,
        }
    }

    /// Resets both sides: closing a socket with a linger time of zero sends a reset.
    pub(crate) fn reset(self) {
        for socket in [Some(&self.client), self.server()].into_iter().flatten() {
            // An error means that the peer has already reset the connection.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// Closes both sides gracefully, with FIN.
    pub(crate) fn close(self, buffer: &mut [u8]) {
        for mut socket in [Some(&self.client), self.server()].into_iter().flatten() {
            // Closing a socket with unread bytes would send a reset, so the bytes are read first. A
            // socket's buffer has far fewer chunks than this limit. A peer that continues to send
            // receives a reset.
            let chunks = (0..1024).map(|_| socket.read(buffer));
            let _ = chunks.take_while(|read| matches!(read, Ok(1..))).count();
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

fn start_connecting(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&target.into()) {
        Err(error) if !is_in_progress(&error) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

fn flags(bytes: bool, room: bool) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, bytes);
    flags.set(PollFlags::OUT, room);
    flags
}
