//! A TCP proxy that injects faults.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::flow::Mode;
use crate::relay::{Command, Relay};

const LONGEST_DELAY: Duration = Duration::from_hours(1);

/// The direction of data through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Data from the client to the server.
    Requests,
    /// Data from the server to the client.
    Replies,
}

/// A TCP proxy in front of one server, with faults.
///
/// ```text
///            Requests ->            Requests ->
///   client ------------- proxy ------------------ server
///            <- Replies             <- Replies
/// ```
///
/// - Getters: [`addr`](Self::addr), [`url`](Self::url), [`accepted`](Self::accepted),
///   [`live`](Self::live), [`bytes`](Self::bytes), [`discarded_pushes`](Self::discarded_pushes).
/// - Faults that last until [`heal`](Self::heal): [`delay`](Self::delay), [`hold`](Self::hold),
///   [`black_hole`](Self::black_hole), [`discard_pushes`](Self::discard_pushes),
///   [`refuse`](Self::refuse), [`hold_connects`](Self::hold_connects).
/// - Faults that happen once: [`reset`](Self::reset), [`close`](Self::close),
///   [`cut_next_reply`](Self::cut_next_reply).
/// - Another server: [`set_target`](Self::set_target).
///
/// # Rules
///
/// - Faults apply to existing and new connections. They take effect before the method returns: all
///   bytes sent after that are affected. Except for `delay` and `discard_pushes`, this includes
///   bytes in transit.
/// - In each direction, only the latest of `hold` and `black_hole` applies. `delay` and
///   `discard_pushes` are independent of them.
/// - The end of a connection is delivered after the bytes before it, so it is also delayed and
///   held. A black hole holds it, too, because TCP would retransmit it until it arrives.
/// - If the server refuses a connection, the client's connection is reset. A stopped server accepts
///   connections.
/// - A connection buffers at most 64 MiB in each direction. Beyond that, the sender is blocked.
///
/// One thread handles all connections. Dropping the proxy closes them and ends the thread. The drop
/// and all methods take microseconds.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    commands: Sender<Command>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that listens on a free port of 127.0.0.1 and forwards to `target`. The server
    /// on `target` may start later.
    #[track_caller]
    #[must_use = "a proxy that is dropped ends"]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen on a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let (wake, wake_receiver) = UnixStream::pair().expect("cannot make a socket pair");
        wake.set_nonblocking(true).expect("a socket can be non-blocking");
        let (commands, inbox) = mpsc::channel();
        let relay = Relay::new(listener, target, wake_receiver, inbox);
        let thread = thread::Builder::new().name(format!("proxy-{}", addr.port()));
        let thread = thread.spawn(move || relay.run()).expect("cannot start a thread");
        Self { addr, commands, wake, thread: Some(thread) }
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL for clients: `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Delays data that arrives after this call by `delay`. `Duration::ZERO` ends the delay. The
    /// order is kept, and any number of chunks can be in transit, so throughput is not reduced.
    ///
    /// # Panics
    ///
    /// Panics if `delay` is longer than an hour. Use [`hold`](Self::hold) instead.
    #[track_caller]
    pub fn delay(&self, direction: Direction, delay: Duration) {
        assert!(delay <= LONGEST_DELAY, "a delay of more than {LONGEST_DELAY:?}");
        self.run(move |relay| relay.state_of(direction).delay = delay);
    }

    /// Holds data back until [`heal`](Self::heal), which delivers the data. Applies to arriving
    /// data and to delayed data.
    ///
    /// With `hold(Direction::Replies)`, commands run and their replies are withheld. A growing
    /// [`bytes`](Self::bytes) shows that a command has run.
    pub fn hold(&self, direction: Direction) {
        self.run(move |relay| relay.set_mode(direction, Mode::Hold));
    }

    /// Accepts and DISCARDS data until [`heal`](Self::heal). Applies to arriving, delayed and held
    /// data. A connection that survives this fault may have lost part of a command or reply.
    pub fn black_hole(&self, direction: Direction) {
        self.run(move |relay| relay.set_mode(direction, Mode::BlackHole));
    }

    /// Starts (`true`) or stops (`false`) discarding the push messages among the replies, such as
    /// invalidations (RESP3: top-level frames that begin with `>`). The proxy forwards all other
    /// data, and the rest of a push message that it has partly forwarded. Connections without RESP,
    /// such as TLS, are not affected.
    pub fn discard_pushes(&self, on: bool) {
        self.run(move |relay| relay.state_of(Direction::Replies).discards_pushes = on);
    }

    /// Resets both sides of all connections (RST). Data in transit is lost. New connections work.
    pub fn reset(&self) {
        self.run(Relay::reset);
    }

    /// Closes both sides of all connections gracefully (FIN). Data in transit is lost. New
    /// connections work.
    pub fn close(&self) {
        self.run(Relay::close);
    }

    /// Stops forwarding on the live connections in both directions, like a gateway that has lost
    /// its connection table. Both sides stay connected until the proxy ends. [`live`](Self::live)
    /// does not count these connections. Later connections work.
    pub fn forget(&self) {
        self.run(Relay::forget);
    }

    /// Forwards only the first `bytes` bytes of the next chunk of replies on any connection, and
    /// then resets that connection. `0` discards the whole reply after the command has run. A chunk
    /// is the result of one `read`, usually all replies to a pipeline. Chunks that a black hole
    /// discards do not count.
    pub fn cut_next_reply(&self, bytes: usize) {
        self.run(move |relay| relay.cut_next_reply(Some(bytes)));
    }

    /// Starts (`true`) or stops (`false`) refusing new connections: the proxy accepts them and
    /// closes them immediately. Existing connections are not affected.
    pub fn refuse(&self, on: bool) {
        self.run(move |relay| relay.refuse(on));
    }

    /// Starts (`true`) or stops (`false`) holding new connections: the proxy accepts them but does
    /// not forward data or connect to the server. When this fault ends, the proxy connects the held
    /// connections. Existing connections are not affected.
    pub fn hold_connects(&self, on: bool) {
        self.run(move |relay| relay.hold_connects(on));
    }

    /// Forwards new and held connections to `target`, as after a failover. Existing connections are
    /// not affected; [`reset`](Self::reset) ends them.
    pub fn set_target(&self, target: SocketAddr) {
        self.run(move |relay| relay.set_target(target));
    }

    /// Ends all faults. The proxy delivers held and delayed data. Data in a black hole is lost.
    pub fn heal(&self) {
        self.run(Relay::heal);
    }

    /// Returns the number of accepted connections, including refused connections.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.run(|relay| relay.accepted())
    }

    /// Returns the number of open connections, including held connections. A connection that the
    /// client has closed still counts until the server has closed it as well.
    #[must_use]
    pub fn live(&self) -> usize {
        self.run(|relay| relay.live())
    }

    /// Returns the number of bytes that have ARRIVED from the sender of that direction, including
    /// held and discarded bytes.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.run(move |relay| relay.state_of(direction).bytes)
    }

    /// Returns the number of push messages that [`discard_pushes`](Self::discard_pushes) has
    /// discarded.
    #[must_use]
    pub fn discarded_pushes(&self) -> u64 {
        self.run(|relay| relay.state_of(Direction::Replies).discarded_pushes)
    }

    /// Runs `action` on the proxy's thread, between two events, and returns its result.
    fn run<T: Send + 'static>(&self, action: impl FnOnce(&mut Relay) -> T + Send + 'static) -> T {
        let (reply, answer) = mpsc::channel();
        let command: Command = Box::new(move |relay| {
            // An error means that the waiting call has panicked.
            let _ = reply.send(action(relay));
        });
        self.commands.send(command).expect("the proxy's thread has panicked");
        self.wake();
        answer.recv().expect("the proxy's thread has panicked")
    }

    fn wake(&self) {
        match (&self.wake).write(&[0]) {
            // If the buffer is full, the thread will wake up in any case.
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                panic!("cannot wake the proxy's thread: {error}")
            }
            _ => {}
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error means that the thread has ended because of a panic, whose message was printed.
        let _ = self.commands.send(Box::new(Relay::end));
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
