//! A TCP port for one server.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// Ports from here on are tried. They lie below the ranges from which Linux (32768) and macOS
/// (49152) choose ports for outgoing connections: a client that keeps connecting to a dead server
/// must not get that server's port as its own.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port on 127.0.0.1 that was free when it was picked.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// On Linux, keeps the port ours also while the server is down: other runs find the port in
    /// use, while a server, which sets `SO_REUSEADDR` as this socket does, may listen on it. The
    /// BSDs would refuse the server.
    _claim: Option<Socket>,
}

impl Port {
    /// Picks a free port at random, so that test runs side by side seldom try the same.
    pub(crate) fn pick() -> Self {
        (0..1000)
            .find_map(|_| Self::claim(FIRST + random_below(COUNT)))
            .unwrap_or_else(|| panic!("no free port among 1000 tried from {FIRST} on"))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// `None` when anything is bound to the port.
    fn claim(number: u16) -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("cannot make a socket");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        // Without SO_REUSEADDR, which would let this succeed beside the claim of another run.
        socket.bind(&addr.into()).ok()?;
        let claim = cfg!(target_os = "linux").then(|| {
            socket.set_reuse_address(true).expect("cannot set SO_REUSEADDR");
            socket
        });
        Some(Self { number, _claim: claim })
    }
}

/// A number below `limit`; std's hash maps get their keys from the system's source of randomness.
fn random_below(limit: u16) -> u16 {
    let random = RandomState::new().build_hasher().finish();
    u16::try_from(random % u64::from(limit)).expect("the remainder is below a u16")
}
