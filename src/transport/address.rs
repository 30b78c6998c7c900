//! Address of a node.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;

/// Where a node is. Prints as its name: no two addresses of one server by the same way have two.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(TcpAddress),
    /// TLS over TCP.
    #[cfg(feature = "tls-rustls")]
    Tls(TcpAddress),
    /// The path of a Unix socket.
    #[cfg(unix)]
    Unix(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct TcpAddress {
    /// A name, or an address of version 4, or one of version 6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Hint for a connection that the server closes without a reply, as Redis with TLS does.
    pub(crate) fn hint_if_closed(&self) -> &'static str {
        if matches!(self, Self::Tcp(_)) { "; if it speaks TLS, use rediss://" } else { "" }
    }

    /// Hint for a connection without any reply: Redis without TLS waits for the end of a line.
    pub(crate) fn hint_if_silent(&self) -> &'static str {
        match self {
            #[cfg(feature = "tls-rustls")]
            Self::Tls(_) => "; if the server does not speak TLS, use redis://",
            _ => "",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TcpAddress { host, port } = match self {
            Self::Tcp(server) => server,
            #[cfg(feature = "tls-rustls")]
            Self::Tls(server) => server,
            #[cfg(unix)]
            Self::Unix(path) => return write!(f, "{}", path.display()),
        };
        write!(f, "{}:{port}", host.trim_end_matches('.').to_ascii_lowercase())
    }
}
