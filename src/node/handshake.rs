//! Which version of the protocol a server is greeted in.

use redis::{ErrorKind, RedisError};
use std::sync::atomic::{AtomicU32, Ordering};

/// Of so many greetings in a row that end with a closed connection, one is tried without `HELLO`:
/// a server that is away is not met with twice as many connections.
const SELDOM: u32 = 8;

/// What is known of the protocol of one node: nothing of its server, as another may stand there at any time, and be
/// newer.
#[derive(Default)]
pub(super) struct Handshake {
    /// How many greetings in a row the server cut off, with RESP2 as well where that was tried.
    cut_off: AtomicU32,
}

/// What became of a greeting by `HELLO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    /// The server does not know it, or not this version.
    Refused,
    /// The server took the connection, and then closed it: some proxies do so, and a server that ends.
    CutOff,
    /// It says nothing of the protocol.
    Other,
}

impl Handshake {
    /// A greeting by `HELLO` came to this. True if the server is to be greeted in RESP2 at once, over a connection of
    /// its own.
    fn handle_hello(&self, hello: Hello) -> bool {
        match hello {
            Hello::Refused => true,
            Hello::CutOff => self.cut_off.fetch_add(1, Ordering::Relaxed).is_multiple_of(SELDOM),
            Hello::Other => {
                self.cut_off.store(0, Ordering::Relaxed);
                false
            }
        }
    }

    /// A greeting in RESP2 was answered where `HELLO` was cut off: it may be so again.
    fn handle_resp2(&self) {
        self.cut_off.store(0, Ordering::Relaxed);
    }
}

/// Opens a connection by `open`, which is told whether to speak RESP3: yes, but RESP2 where the
/// server refuses that, or closes the connection at a `HELLO`. Neither is remembered: each connection begins with
/// `HELLO`.
pub(super) async fn greet<T, F>(
    known: &Handshake,
    open: impl Fn(bool) -> F,
) -> Result<T, RedisError>
where
    F: Future<Output = Result<T, RedisError>>,
{
    // It is large, and not often made.
    let open = |resp3| Box::pin(open(resp3));
    let opened = open(true).await;
    let hello = opened.as_ref().map_or_else(Hello::of, |_| Hello::Other);
    if !known.handle_hello(hello) {
        return opened;
    }
    let in_resp2 = open(false).await;
    if in_resp2.is_ok() {
        known.handle_resp2();
    } else if hello == Hello::CutOff {
        // What was said first is what is wrong.
        return opened;
    }
    in_resp2
}

impl Hello {
    /// A refused password is no refused `HELLO`.
    fn of(error: &RedisError) -> Self {
        let is_refused = error.kind() == ErrorKind::RESP3NotSupported
            || matches!(error.code(), Some("NOPROTO" | "ERR"));
        if is_refused {
            Self::Refused
        } else if error.is_connection_dropped() && !error.is_connection_refusal() {
            Self::CutOff
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::cell::RefCell;
    use std::io;

    /// What a server does with each greeting: the answer to `HELLO`, and to RESP2.
    type Server = [Result<(), fn() -> RedisError>; 2];

    fn refused() -> RedisError {
        said("-ERR unknown command 'HELLO'\r\n")
    }

    fn said(error: &str) -> RedisError {
        let reply = redis::parse_redis_value(error.as_bytes()).expect("an error reply");
        reply.extract_error().expect_err("it is an error")
    }

    fn cut_off() -> RedisError {
        io::Error::from(io::ErrorKind::UnexpectedEof).into()
    }

    fn away() -> RedisError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    const NEW: Server = [Ok(()), Ok(())];
    const OLD: Server = [Err(refused), Ok(())];
    /// A proxy.
    const TACITURN: Server = [Err(cut_off), Ok(())];
    const ENDING: Server = [Err(cut_off), Err(cut_off)];
    const AWAY: Server = [Err(away), Err(away)];
    const STRICT: Server = [Err(|| said("-WRONGPASS no\r\n")), Ok(())];

    /// What was tried of a server, true for RESP3, and whether that ended well.
    fn greeted(known: &Handshake, [resp3, resp2]: Server) -> (Vec<bool>, bool) {
        let tried = RefCell::new(Vec::new());
        let open = |is_resp3| {
            tried.borrow_mut().push(is_resp3);
            let opened = if is_resp3 { resp3 } else { resp2 };
            async move { opened.map_err(|error| error()) }
        };
        let opened = greet(known, open).now_or_never().expect("nothing to wait for");
        (tried.take(), opened.is_ok())
    }

    #[test]
    fn a_server_is_spoken_to_in_resp3_as_soon_as_it_can() {
        let known = Handshake::default();
        for _ in 0..3 {
            assert_eq!(greeted(&known, OLD), (vec![true, false], true));
        }
        // It was replaced: at once, or after it was away.
        assert_eq!(greeted(&known, NEW), (vec![true], true));
        assert_eq!(greeted(&known, OLD), (vec![true, false], true));
        assert_eq!(greeted(&known, AWAY), (vec![true], false));
        assert_eq!(greeted(&known, NEW), (vec![true], true));
        assert_eq!(greeted(&known, STRICT), (vec![true], false), "the password is refused");
    }

    #[test]
    fn who_closes_the_connection_at_hello_is_spoken_to_without_and_who_is_away_seldom() {
        let known = Handshake::default();
        for _ in 0..3 {
            assert_eq!(greeted(&known, TACITURN), (vec![true, false], true));
        }
        let tries = |count: u32| -> Vec<usize> {
            (0..count).map(|_| greeted(&known, ENDING).0.len()).collect()
        };
        assert_eq!(tries(2 * SELDOM), [2, 1, 1, 1, 1, 1, 1, 1].repeat(2));
        assert_eq!(tries(3), [2, 1, 1]);
        // Whatever is answered, the server is there.
        assert_eq!(greeted(&known, STRICT), (vec![true], false));
        assert_eq!(greeted(&known, TACITURN), (vec![true, false], true));
        assert_eq!(tries(1), [2]);
    }
}
