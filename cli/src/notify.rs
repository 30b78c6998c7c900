//! Sends service notifications to systemd, as specified in `sd_notify(3)`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const SOCKET: &str = "NOTIFY_SOCKET";

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Ready,
    Stopping,
}

/// Sends `state` to the socket in `NOTIFY_SOCKET`. Does nothing if the variable is unset or empty.
pub(crate) fn send(state: State) -> io::Result<()> {
    let named = env::var_os(SOCKET).filter(|name| !name.is_empty());
    named.map_or(Ok(()), |name| send_to(&name, state))
}

fn send_to(name: &OsStr, state: State) -> io::Result<()> {
    let text: &[u8] = match state {
        State::Ready => b"READY=1\n",
        State::Stopping => b"STOPPING=1\n",
    };
    UnixDatagram::unbound()?.send_to_addr(text, &address(name)?).map(drop)
}

/// Parses the socket's address, which is a path or, after an `@`, a name in Linux's abstract namespace. Containers and
/// older systems use abstract names.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
