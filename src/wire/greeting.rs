//! The first commands on a connection: protocol version, authentication, database and connection name.

use super::failure::last_error;
use super::requests::{INFO_REPLY, Requests};
use super::unknown_command::is_unknown_command;
use redis::{RedisConnectionInfo, RedisError, Value};
use std::io;

/// The user name for a login that has only a password.
const DEFAULT_USER: &str = "default";

/// The explanation in the error for a server that does not support `HELLO 3`.
const NEEDS_RESP3: &str =
    "a server with a renamed HELLO, or behind a proxy without RESP3, cannot be a node";

/// A greeting that has been written to a connection. Parses the server's replies to it.
#[derive(Debug)]
pub(crate) struct Greeting {
    has_database: bool,
}

impl Greeting {
    /// Appends the commands: `HELLO 3` with the login, `SELECT` if the database is not 0, and commands that name the
    /// connection.
    pub(crate) fn ask(login: &RedisConnectionInfo, requests: &mut Requests) -> Self {
        requests.allow_reply(INFO_REPLY);
        match login.password() {
            Some(password) => {
                let user = login.username().unwrap_or(DEFAULT_USER);
                requests.command("HELLO", 4).args(["3", "AUTH", user, password]).end();
            }
            None => requests.command("HELLO", 1).arg("3").end(),
        }
        let has_database = login.db() != 0;
        if has_database {
            requests.command("SELECT", 1).arg(login.db().to_string()).end();
        }
        // The names identify the connection in `CLIENT LIST`. Errors are ignored, because servers before Redis 7.2 do
        // not support `SETINFO`.
        requests.command("CLIENT", 2).arg("SETNAME").arg(env!("CARGO_PKG_NAME")).end();
        for (what, is) in
            [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))]
        {
            requests.command("CLIENT", 3).args(["SETINFO", what, is]).end();
        }
        Self { has_database }
    }

    /// Checks the replies to the greeting. Fails if the server refuses the login or the database, or does not support
    /// RESP3.
    pub(crate) fn read(&self, replies: &[Value]) -> Result<(), RedisError> {
        match replies.first() {
            Some(Value::Map(_)) => {}
            Some(Value::ServerError(error))
                if is_unknown_command(error.code(), error.details()) =>
            {
                return Err(unsupported(&format!("refused ({})", last_error(error))));
            }
            Some(Value::ServerError(error)) => return Err(error.clone().into()),
            _ => return Err(unsupported("answered in RESP2")),
        }
        match replies.get(1) {
            Some(Value::ServerError(error)) if self.has_database => Err(error.clone().into()),
            _ => Ok(()),
        }
    }
}

fn unsupported(how: &str) -> RedisError {
    let text = format!("HELLO 3 is {how}: {NEEDS_RESP3}");
    io::Error::new(io::ErrorKind::Unsupported, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_username("me").set_password("secret").set_db(7)
    }

    fn asked(login: &RedisConnectionInfo) -> (Greeting, String) {
        let mut requests = Requests::default();
        let greeting = Greeting::ask(login, &mut requests);
        let text = String::from_utf8(requests.bytes().to_vec()).expect("text");
        let words = text.split("\r\n").filter(|word| !word.starts_with(['$', '*']));
        (greeting, words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn greeting_commands() {
        let version = env!("CARGO_PKG_VERSION");
        let own = format!(
            "CLIENT SETNAME quorlock CLIENT SETINFO LIB-NAME quorlock CLIENT SETINFO LIB-VER {version} "
        );
        let anonymous = RedisConnectionInfo::default();
        let password = RedisConnectionInfo::default().set_password("secret");
        for (login, begin) in [
            (&anonymous, "HELLO 3 "),
            (&password, "HELLO 3 AUTH default secret "),
            (&login(), "HELLO 3 AUTH me secret SELECT 7 "),
        ] {
            assert_eq!(asked(login).1, format!("{begin}{own}"));
        }
    }

    #[test]
    fn login_and_database_must_be_accepted() {
        let error = |text: &str| {
            redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error")
        };
        let hello = || Value::Map(Vec::new());
        let unknown = || error("ERR unknown subcommand 'SETINFO'");
        let read = |hello: Value, select: Value| {
            asked(&login()).0.read(&[hello, select, unknown(), unknown(), unknown()])
        };
        assert!(read(hello(), Value::Okay).is_ok(), "the client's name is optional");
        let refused = read(error("WRONGPASS no"), error("NOAUTH no"));
        assert_eq!(refused.expect_err("refused").code(), Some("WRONGPASS"));
        let refused = read(hello(), error("ERR DB index is out of range"));
        assert_eq!(refused.expect_err("refused").detail(), Some("DB index is out of range"));
    }

    #[test]
    fn server_without_resp3_is_named() {
        let error = |text: &str| {
            redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error")
        };
        let array = Value::Array(Vec::new());
        for (hello, is_without) in [
            (error("ERR unknown command 'HELLO'"), true),
            (error("NOPROTO unsupported protocol version"), true),
            (error("unsupported command"), true), // Envoy before 1.21
            (array, true),
            (error("ERR max number of clients reached"), false),
            (error("NOAUTH Authentication required."), false),
        ] {
            let (greeting, _) = asked(&RedisConnectionInfo::default());
            let refused = greeting.read(std::slice::from_ref(&hello)).expect_err("refused");
            assert_eq!(refused.to_string().contains(NEEDS_RESP3), is_without, "{hello:?}");
        }
    }
}
