//! Service notifications for systemd, as in `sd_notify(3)`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the socket's name.
const SOCKET: &str = "NOTIFY_SOCKET";

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Ready,
    Stopping,
}

/// Sends the state to the socket in `NOTIFY_SOCKET`; has no effect if the variable is unset or empty.
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

/// A path, or with a leading `@` an abstract name, which containers and older systems use.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
