//! What systemd is told, as `sd_notify(3)` has it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Who wants to be told.
const SOCKET: &str = "NOTIFY_SOCKET";

/// A service has begun, or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Ready,
    Stopping,
}

/// Tells it, if anybody wants to be told.
pub(crate) fn tell(state: State) -> io::Result<()> {
    let named = env::var_os(SOCKET).filter(|name| !name.is_empty());
    named.map_or(Ok(()), |name| tell_to(&name, state))
}

fn tell_to(name: &OsStr, state: State) -> io::Result<()> {
    let text: &[u8] = match state {
        State::Ready => b"READY=1\n",
        State::Stopping => b"STOPPING=1\n",
    };
    UnixDatagram::unbound()?.send_to_addr(text, &address(name)?).map(drop)
}

/// A path; or with an `@` a name of no file, which containers and older systems use.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
