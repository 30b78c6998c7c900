//! The network address of a node.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;

/// The network address of a node. `Display` writes the node's name, which is the same for equivalent spellings of a
/// host.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(TcpAddress),
    #[cfg(feature = "tls-rustls")]
    Tls(TcpAddress),
    #[cfg(unix)]
    Unix(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct TcpAddress {
    /// A host name, an IPv4 address, or an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Returns a suffix for the error message about a server that closes the connection without a reply. Redis with TLS
    /// does so for a plain TCP connection.
    pub(crate) fn hint_if_closed(&self) -> &'static str {
        if matches!(self, Self::Tcp(_)) { "; if it speaks TLS, use rediss://" } else { "" }
    }

    /// Returns a suffix for the error message about a server that sends no reply. Redis without TLS does not reply to a
    /// TLS handshake, because it waits for the end of a line.
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
