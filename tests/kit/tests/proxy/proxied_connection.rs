//! Setup for tests of the proxy: a proxy between two sockets that belong to the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use kit::Proxy;

/// The time after which a waiting test fails. It is long enough for a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// How long a test waits to check that no data arrives.
const QUIET: Duration = Duration::from_millis(150);

/// A proxy with one open connection between a client and a server.
pub(crate) struct ProxiedConnection {
    pub(crate) proxy: Proxy,
    pub(crate) listener: TcpListener,
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

impl ProxiedConnection {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap());
        let client = connect(&proxy);
        let server = accept(&listener);
        Self { proxy, listener, client, server }
    }

    pub(crate) fn another(&self) -> (TcpStream, TcpStream) {
        (connect(&self.proxy), accept(&self.listener))
    }
}

pub(crate) fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.addr()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client
}

pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let server = listener.accept().unwrap().0;
    server.set_read_timeout(Some(LIMIT)).unwrap();
    server
}

#[track_caller]
pub(crate) fn sends(mut from: &TcpStream, text: &str) {
    from.write_all(text.as_bytes()).unwrap();
}

#[track_caller]
pub(crate) fn receives(mut to: &TcpStream, text: &str) {
    let mut got = vec![0; text.len()];
    to.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), text);
}

#[track_caller]
pub(crate) fn receives_nothing(mut to: &TcpStream) {
    to.set_read_timeout(Some(QUIET)).unwrap();
    let error = to.read(&mut [0]).expect_err("neither data nor the end of the stream arrives");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    to.set_read_timeout(Some(LIMIT)).unwrap();
}

#[track_caller]
pub(crate) fn receives_end(mut to: &TcpStream) {
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
}

#[track_caller]
pub(crate) fn receives_reset(mut to: &TcpStream) {
    let error = to.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[track_caller]
pub(crate) fn passes(client: &TcpStream, server: &TcpStream) {
    sends(client, "request");
    receives(server, "request");
    sends(server, "reply");
    receives(client, "reply");
}
