//! The proxy's thread, which owns all connections.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Direction;
use crate::connection::Connection;
use crate::flow::{Delivery, DirectionState, Mode};

const CHUNK_BYTES: usize = 64 << 10;

/// An action that a method of the proxy sends to the proxy's thread.
pub(crate) type Command = Box<dyn FnOnce(&mut Relay) + Send>;

pub(crate) struct Relay {
    listener: TcpListener,
    target: SocketAddr,
    wake_receiver: UnixStream,
    inbox: Receiver<Command>,
    connections: Vec<Connection>,
    /// The open connections that are no longer read or written.
    forgotten: Vec<Connection>,
    requests: DirectionState,
    replies: DirectionState,
    cut_next_reply: Option<usize>,
    refuse: bool,
    hold_connects: bool,
    accepted: u64,
    ended: bool,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Ready {
    Wake,
    Accept,
    Client(usize),
    Server(usize),
}

impl Relay {
    pub(crate) fn new(
        listener: TcpListener,
        target: SocketAddr,
        wake_receiver: UnixStream,
        inbox: Receiver<Command>,
    ) -> Self {
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        wake_receiver.set_nonblocking(true).expect("a socket can be non-blocking");
        Self {
            listener,
            target,
            wake_receiver,
            inbox,
            connections: Vec::new(),
            forgotten: Vec::new(),
            requests: DirectionState::default(),
            replies: DirectionState::default(),
            cut_next_reply: None,
            refuse: false,
            hold_connects: false,
            accepted: 0,
            ended: false,
            buffer: vec![0; CHUNK_BYTES],
        }
    }

    /// Runs until [`end`](Self::end): delivers the data whose delay has ended, waits for an event,
    /// reads, and executes commands.
    pub(crate) fn run(mut self) {
        while !self.ended {
            self.deliver();
            let ready = self.poll_sockets();
            self.read(&ready);
            // Commands are executed after the read, because the read uses the indices that the
            // connections had before the wait. They are executed before the next delivery, so that
            // a fault also applies to data that was read just before the fault was requested.
            self.run_commands();
        }
        self.close();
    }

    pub(crate) fn state_of(&mut self, direction: Direction) -> &mut DirectionState {
        match direction {
            Direction::Requests => &mut self.requests,
            Direction::Replies => &mut self.replies,
        }
    }

    pub(crate) fn set_mode(&mut self, direction: Direction, mode: Mode) {
        self.state_of(direction).mode = mode;
        if mode == Mode::BlackHole {
            for connection in &mut self.connections {
                connection.flow(direction).lose_bytes();
            }
        }
    }

    pub(crate) fn cut_next_reply(&mut self, bytes: Option<usize>) {
        self.cut_next_reply = bytes;
    }

    pub(crate) fn refuse(&mut self, on: bool) {
        self.refuse = on;
    }

    pub(crate) fn hold_connects(&mut self, on: bool) {
        self.hold_connects = on;
        if !on {
            for connection in &mut self.connections {
                connection.connect(self.target);
            }
        }
    }

    pub(crate) fn set_target(&mut self, target: SocketAddr) {
        self.target = target;
    }

    pub(crate) fn heal(&mut self) {
        let now = Instant::now();
        for state in [&mut self.requests, &mut self.replies] {
            state.mode = Mode::Pass;
            state.delay = Duration::ZERO;
            state.discards_pushes = false;
        }
        for connection in &mut self.connections {
            connection.flow(Direction::Requests).make_due(now);
            connection.flow(Direction::Replies).make_due(now);
        }
        self.cut_next_reply(None);
        self.refuse(false);
        self.hold_connects(false);
    }

    pub(crate) fn reset(&mut self) {
        self.connections.drain(..).for_each(Connection::reset);
    }

    pub(crate) fn close(&mut self) {
        let buffer = &mut self.buffer;
        self.connections.drain(..).for_each(|connection| connection.close(buffer));
    }

    pub(crate) fn forget(&mut self) {
        self.forgotten.append(&mut self.connections);
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(crate) fn live(&self) -> usize {
        self.connections.len()
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        for index in (0..self.connections.len()).rev() {
            match self.connections[index].deliver(&self.requests, &self.replies, now) {
                Delivery::Open => {}
                Delivery::Ended => drop(self.connections.swap_remove(index)),
                Delivery::Reset => self.connections.swap_remove(index).reset(),
            }
        }
    }

    fn poll_sockets(&self) -> Vec<Ready> {
        let mut names = vec![Ready::Wake, Ready::Accept];
        let mut sockets = vec![
            PollFd::new(&self.wake_receiver, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        for (index, connection) in self.connections.iter().enumerate() {
            let wanted = connection.wanted(&self.requests, &self.replies);
            for (name, socket, flags) in [
                (Ready::Client(index), Some(connection.client()), wanted.0),
                (Ready::Server(index), connection.server(), wanted.1),
            ] {
                // A socket without flags would repeatedly report that its peer has closed it.
                if let Some(socket) = socket.filter(|_| !flags.is_empty()) {
                    names.push(name);
                    sockets.push(PollFd::new(socket, flags));
                }
            }
        }
        let timeout = self.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let timeout =
            timeout.map(|timeout| Timespec::try_from(timeout).expect("delays are limited"));
        match poll(&mut sockets, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
        let ready =
            names.into_iter().zip(&sockets).filter(|(_, socket)| !socket.revents().is_empty());
        ready.map(|(name, _)| name).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        self.connections
            .iter()
            .filter_map(|connection| connection.next_due(&self.requests, &self.replies))
            .min()
    }

    fn run_commands(&mut self) {
        while let Ok(command) = self.inbox.try_recv() {
            command(self);
        }
    }

    fn read(&mut self, ready: &[Ready]) {
        for ready in ready {
            match *ready {
                // The number of wake-ups does not matter, because the commands are in the inbox.
                Ready::Wake => drop(self.wake_receiver.read(&mut self.buffer)),
                Ready::Accept => self.accept(),
                Ready::Client(index) => {
                    self.connections[index].read_client(&mut self.requests, &mut self.buffer);
                }
                Ready::Server(index) => {
                    self.connections[index].read_server(
                        &mut self.replies,
                        &mut self.buffer,
                        &mut self.cut_next_reply,
                    );
                }
            }
        }
    }

    fn accept(&mut self) {
        // Any error except `WouldBlock` concerns a connection that was closed before it was
        // accepted.
        while let Ok((client, _)) = self.listener.accept() {
            self.accepted += 1;
            if self.refuse {
                continue;
            }
            let mut connection = Connection::parked(client);
            if !self.hold_connects {
                connection.connect(self.target);
            }
            self.connections.push(connection);
        }
    }
}
