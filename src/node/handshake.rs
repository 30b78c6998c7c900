//! Which version of the protocol a server is greeted in.

use crate::wire::is_unknown_command;
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
            // Counted once it has failed for good: others may be greeting the same proxy.
            Hello::CutOff => self.cut_off.load(Ordering::Relaxed).is_multiple_of(SELDOM),
            Hello::Other => {
                self.cut_off.store(0, Ordering::Relaxed);
                false
            }
        }
    }

    /// A greeting whose `HELLO` was cut off ended so, with RESP2 as well where that was tried.
    fn handle_cut_off(&self, is_well: bool) {
        if is_well {
            self.cut_off.store(0, Ordering::Relaxed);
        } else {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
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
    let by_hello = open(true).await;
    let hello = by_hello.as_ref().map_or_else(Hello::of, |_| Hello::Other);
    let in_resp2 = if known.handle_hello(hello) { Some(open(false).await) } else { None };
    if hello == Hello::CutOff {
        known.handle_cut_off(matches!(in_resp2, Some(Ok(_))));
    }
    match in_resp2 {
        Some(Err(_)) if hello == Hello::CutOff => by_hello, // What was said first is what is wrong.
        Some(opened) => opened,
        None => by_hello,
    }
}

impl Hello {
    /// A refused password is no refused `HELLO`.
    fn of(error: &RedisError) -> Self {
        let is_refused = error.kind() == ErrorKind::RESP3NotSupported
            || error.code().is_some_and(|code| is_unknown_command(code, error.detail()));
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
    /// Envoy before 1.21.
    const ODD: Server = [Err(|| said("-unsupported command\r\n")), Ok(())];
    const FULL: Server = [Err(|| said("-ERR max number of clients reached\r\n")), Ok(())];
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
    fn several_greetings_of_one_proxy_do_not_count_each_other() {
        let known = Handshake::default();
        for _ in 0..3 {
            // Each of them has been cut off, and none has gone on yet.
            assert!(known.handle_hello(Hello::CutOff));
        }
        known.handle_cut_off(true);
        assert!(known.handle_hello(Hello::CutOff));
    }

    #[test]
    fn a_server_is_spoken_to_in_resp3_as_soon_as_it_can() {
        let known = Handshake::default();
        for _ in 0..3 {
            assert_eq!(greeted(&known, OLD), (vec![true, false], true));
            assert_eq!(greeted(&known, ODD), (vec![true, false], true));
            assert_eq!(greeted(&known, FULL), (vec![true], false));
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
