//! A TCP proxy with faults.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::flow::Mode;
use crate::relay::{Command, Relay};

const LONGEST_DELAY: Duration = Duration::from_hours(1);

/// What passes a proxy: from the client to the server, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// A TCP proxy that forwards the connections it accepts to one server, and can be told to do so
/// badly.
///
/// ```text
///            Requests ->            Requests ->
///   client ------------- proxy ------------------ server
///            <- Replies             <- Replies
/// ```
///
/// - Getters: [`addr`](Self::addr), [`url`](Self::url), [`accepted`](Self::accepted),
///   [`live`](Self::live), [`bytes`](Self::bytes), [`swallowed`](Self::swallowed).
/// - Faults that last until [`heal`](Self::heal): [`delay`](Self::delay), [`hold`](Self::hold),
///   [`black_hole`](Self::black_hole), [`swallow_pushes`](Self::swallow_pushes),
///   [`refuse`](Self::refuse), [`hold_connects`](Self::hold_connects).
/// - Faults that happen once: [`reset`](Self::reset), [`close`](Self::close),
///   [`cut_next_reply`](Self::cut_next_reply).
/// - Another server: [`turn_to`](Self::turn_to).
///
/// # Rules
///
/// - Faults apply to live and to new connections alike. When the method returns, the fault is in
///   force: no byte that is sent afterwards escapes it. Nor do, except from `delay` and
///   `swallow_pushes`, the bytes that are still on their way through the proxy.
/// - In each direction there is at most one of `hold` and `black_hole`, the latest; `delay` and
///   `swallow_pushes` are independent of them.
/// - The end of a connection takes its place behind the bytes before it: it is delayed and held
///   like them. A black hole holds it too, as TCP would repeat it until it arrives.
/// - A server that cannot be connected to is shown to the client as a reset. One that is stopped
///   accepts connections.
/// - At most 64 MiB are kept in each direction of a connection; beyond, the sender feels
///   back-pressure.
///
/// One thread serves all connections. Dropping the proxy closes them and ends the thread; this
/// takes no longer than a call of any other method, microseconds.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    commands: Sender<Command>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`, which need not be there yet.
    #[track_caller]
    #[must_use = "a proxy that is dropped ends"]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen on a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let (wake, sleeper) = UnixStream::pair().expect("cannot make a socket pair");
        wake.set_nonblocking(true).expect("a socket can be non-blocking");
        let (commands, inbox) = mpsc::channel();
        let relay = Relay::new(listener, target, sleeper, inbox);
        let thread = thread::Builder::new().name(format!("proxy-{}", addr.port()));
        let thread = thread.spawn(move || relay.run()).expect("cannot start a thread");
        Self { addr, commands, wake, thread: Some(thread) }
    }

    /// The address clients connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Delivers what arrives from now on that much later (`Duration::ZERO`: at once). The order is
    /// kept, and any number of chunks may be on their way at the same time, so throughput does not
    /// suffer.
    ///
    /// # Panics
    ///
    /// When `delay` is more than an hour; see [`hold`](Self::hold).
    #[track_caller]
    pub fn delay(&self, direction: Direction, delay: Duration) {
        assert!(delay <= LONGEST_DELAY, "a delay of more than {LONGEST_DELAY:?}");
        self.ask(move |relay| relay.wire(direction).delay = delay);
    }

    /// Keeps what arrives, and what was delayed, until [`heal`](Self::heal), which delivers it.
    /// Nothing is lost.
    ///
    /// `hold(Direction::Replies)` lets commands run and withholds their replies; that one has run
    /// is seen from [`bytes`](Self::bytes) growing.
    pub fn hold(&self, direction: Direction) {
        self.ask(move |relay| relay.set_mode(direction, Mode::Hold));
    }

    /// Accepts and LOSES what arrives, and what was delayed or held, until [`heal`](Self::heal).
    /// What is lost stays lost: a connection that lives through it may have a hole in the middle of
    /// a command or reply.
    pub fn black_hole(&self, direction: Direction) {
        self.ask(move |relay| relay.set_mode(direction, Mode::BlackHole));
    }

    /// `true`: loses the push messages among the replies (RESP3: frames that begin with `>` at the
    /// top level), such as the invalidations of client tracking, and forwards all else. A push that
    /// has begun to pass goes on as it began. Connections on which the server does not speak RESP,
    /// for example TLS, are left as they are.
    pub fn swallow_pushes(&self, on: bool) {
        self.ask(move |relay| relay.wire(Direction::Replies).swallows_pushes = on);
    }

    /// Closes all live connections, both sides, with a reset (RST). What was on its way is lost.
    /// Connections made afterwards work.
    pub fn reset(&self) {
        self.ask(Relay::reset);
    }

    /// Closes all live connections, both sides, in order (FIN). What was on its way is lost.
    /// Connections made afterwards work.
    pub fn close(&self) {
        self.ask(Relay::close);
    }

    /// Stops forwarding on the live connections, in both directions, like a gateway that has lost its
    /// connection table. Both sides stay connected until the proxy ends, and [`live`](Self::live) does not
    /// count these connections. Later connections work.
    pub fn forget(&self) {
        self.ask(Relay::forget);
    }

    /// Forwards only the first `bytes` bytes of the next chunk of replies, on whichever connection
    /// it arrives, then resets that connection. `0` loses the whole reply after the command ran. A
    /// chunk is what one `read` returns: all replies to a pipeline, as a rule. A chunk that a black
    /// hole takes does not count.
    pub fn cut_next_reply(&self, bytes: usize) {
        self.ask(move |relay| relay.cut_next_reply(Some(bytes)));
    }

    /// `true`: new connections are accepted and closed at once. Live ones go on.
    pub fn refuse(&self, on: bool) {
        self.ask(move |relay| relay.refuse(on));
    }

    /// `true`: new connections are accepted, but nothing is forwarded in either direction, and the
    /// server sees nothing of them, until switched off. Live ones go on.
    pub fn hold_connects(&self, on: bool) {
        self.ask(move |relay| relay.hold_connects(on));
    }

    /// Forwards new connections to `target`, and those that are held: as an address does that has failed
    /// over to another server. The others go on; [`reset`](Self::reset) ends them.
    pub fn turn_to(&self, target: SocketAddr) {
        self.ask(move |relay| relay.turn_to(target));
    }

    /// Ends all faults. What was held or delayed is delivered now; what a black hole took is lost.
    pub fn heal(&self) {
        self.ask(Relay::heal);
    }

    /// The connections accepted so far, refused ones included.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.ask(|relay| relay.accepted())
    }

    /// The connections which are open now, held ones included. One that the client has left counts
    /// until the server has closed its side too.
    #[must_use]
    pub fn live(&self) -> usize {
        self.ask(|relay| relay.live())
    }

    /// The bytes which have ARRIVED from that direction's sender so far, also those which were then
    /// held or lost.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.ask(move |relay| relay.wire(direction).bytes)
    }

    /// The push messages that [`swallow_pushes`](Self::swallow_pushes) has lost so far.
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.ask(|relay| relay.wire(Direction::Replies).swallowed)
    }

    /// Runs `question` on the proxy's thread, between two events, and returns its answer.
    fn ask<T: Send + 'static>(&self, question: impl FnOnce(&mut Relay) -> T + Send + 'static) -> T {
        let (reply, answer) = mpsc::channel();
        let command: Command = Box::new(move |relay| {
            // Fails only if this call has panicked.
            let _ = reply.send(question(relay));
        });
        self.commands.send(command).expect("the proxy's thread has panicked");
        self.wake();
        answer.recv().expect("the proxy's thread has panicked")
    }

    fn wake(&self) {
        match (&self.wake).write(&[0]) {
            // Full: then it is about to wake up anyway.
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                panic!("cannot wake the proxy's thread: {error}")
            }
            _ => {}
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error means that the thread has ended already, and that its panic message has been
        // printed.
        let _ = self.commands.send(Box::new(Relay::end));
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
