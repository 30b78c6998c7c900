//! TCP ports for servers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// The first port of the range. Linux (from 32768) and macOS (from 49152) choose ports above this
/// range for outgoing connections. Otherwise, a client that reconnects to a killed server could be
/// assigned the server's port.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of 127.0.0.1 that was free when it was picked.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// On Linux, a socket that reserves the port while the server is down. Other test runs find the
    /// port in use, but a server can listen on it, because both sockets set `SO_REUSEADDR`. BSD
    /// systems would refuse the server.
    _reservation: Option<Socket>,
}

impl Port {
    /// Picks a random free port. Concurrent test runs rarely try the same port.
    pub(crate) fn pick() -> Self {
        (0..1000)
            .find_map(|_| Self::reserve(FIRST + random_below(COUNT)))
            .unwrap_or_else(|| panic!("no free port among 1000 random ones from {FIRST} on"))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Reserves a port. Returns `None` if the port is in use.
    fn reserve(number: u16) -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("cannot make a socket");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        // Bound without SO_REUSEADDR, which would allow two reservations of a port.
        socket.bind(&addr.into()).ok()?;
        let reservation = cfg!(target_os = "linux").then(|| {
            socket.set_reuse_address(true).expect("cannot set SO_REUSEADDR");
            socket
        });
        Some(Self { number, _reservation: reservation })
    }
}

/// Returns a random number below `limit`, from the randomness that the hash maps of std take from
/// the system.
fn random_below(limit: u16) -> u16 {
    let random = RandomState::new().build_hasher().finish();
    u16::try_from(random % u64::from(limit)).expect("the remainder is below a u16")
}
