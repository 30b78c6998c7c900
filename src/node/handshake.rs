//! Which version of the protocol a server speaks.

use redis::{ErrorKind, RedisError};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Of so many handshakes in a row that end with a closed connection, one is tried without `HELLO`:
/// a server that is away is not met with twice as many connections.
const SELDOM: u32 = 8;

/// What is known of the protocol of one node.
#[derive(Default)]
pub(super) struct Handshake {
    /// Learnt from a refused `HELLO`.
    speaks_resp2: AtomicBool,
    /// How many handshakes in a row the server cut off, with RESP2 as well where that was tried.
    cut_off: AtomicU32,
}

/// Opens a connection by `open`, which is told whether to speak RESP3: yes, but RESP2 where the
/// server refuses that, or closes the connection at a `HELLO`, as some proxies do. The latter is not
/// remembered: a server that ends closes connections too.
pub(super) async fn greet<T, F>(
    known: &Handshake,
    open: impl Fn(bool) -> F,
) -> Result<T, RedisError>
where
    F: Future<Output = Result<T, RedisError>>,
{
    // It is large, and not often made.
    let open = |resp3| Box::pin(open(resp3));
    if known.speaks_resp2.load(Ordering::Relaxed) {
        let opened = open(false).await;
        if opened.as_ref().is_err_and(is_cut_off) {
            // Another server may stand there when it is back.
            known.speaks_resp2.store(false, Ordering::Relaxed);
        }
        return opened;
    }
    let error = match open(true).await {
        Err(error) => error,
        opened => {
            known.cut_off.store(0, Ordering::Relaxed);
            return opened;
        }
    };
    if refuses_hello(&error) {
        let opened = open(false).await;
        known.speaks_resp2.store(opened.is_ok(), Ordering::Relaxed);
        return opened;
    }
    if !is_cut_off(&error) {
        known.cut_off.store(0, Ordering::Relaxed);
        return Err(error);
    }
    if known.cut_off.load(Ordering::Relaxed).is_multiple_of(SELDOM)
        && let Ok(opened) = open(false).await
    {
        known.cut_off.store(0, Ordering::Relaxed);
        return Ok(opened);
    }
    known.cut_off.fetch_add(1, Ordering::Relaxed);
    Err(error)
}

/// True if the server does not speak RESP3. A refused password is not that.
fn refuses_hello(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.code() == Some("ERR")
}

/// True if the server took the connection, and then closed it.
fn is_cut_off(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}
