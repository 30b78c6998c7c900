//! First commands on a connection: protocol version, authentication, connection name, database.

use super::fingerprint::Fingerprint;
use super::requests::INFO_REPLY;
use super::set_up_parts::{Optional, SetUpParts};
use redis::{RedisConnectionInfo, RedisError, ServerError, Value};

/// The user of an `AUTH` without a user name.
const DEFAULT_USER: &str = "default";

/// A greeting that was sent, and how to parse its replies.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// True if the first reply belongs to `HELLO` or `AUTH`.
    has_login: bool,
    has_database: bool,
    /// True if `AUTH` names a user, which servers before Redis 6 do not support.
    has_user: bool,
}

#[derive(Debug)]
pub(crate) enum Greeted {
    Accepted,
    /// The server does not support users: greet it again without a user name.
    UsersUnsupported,
}

impl Greeting {
    /// Appends `HELLO 3`, or `AUTH` for RESP2. Without `names_user`, `AUTH` has a password only.
    pub(crate) fn ask(
        login: &RedisConnectionInfo,
        fingerprint: &Fingerprint,
        resp3: bool,
        names_user: bool,
        parts: &mut SetUpParts,
    ) -> Self {
        let user = login.username().filter(|_| names_user);
        let has_login = resp3 || login.password().is_some();
        let requests = parts.required();
        requests.allow_reply(INFO_REPLY);
        match (resp3, login.password()) {
            (true, Some(password)) => {
                let user = login.username().unwrap_or(DEFAULT_USER);
                requests.command("HELLO", 4).args(["3", "AUTH", user, password]).end();
            }
            (true, None) => requests.command("HELLO", 1).arg("3").end(),
            (false, Some(password)) => {
                let count = 1 + usize::from(user.is_some());
                requests.command("AUTH", count).args(user).arg(password).end();
            }
            (false, None) => {}
        }
        let has_database = login.db() != 0;
        if has_database {
            requests.command("SELECT", 1).arg(login.db().to_string()).end();
        }
        // Identifies the connection in `CLIENT LIST`. Servers before Redis 7.2 do not support `SETINFO`.
        let requests = parts.optional(Optional::SetName);
        requests.command("CLIENT", 2).arg("SETNAME").arg(fingerprint.to_string()).end();
        let requests = parts.optional(Optional::SetInfo);
        for (what, is) in
            [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))]
        {
            requests.command("CLIENT", 3).args(["SETINFO", what, is]).end();
        }
        Self { has_login, has_database, has_user: !resp3 && has_login && user.is_some() }
    }

    pub(crate) fn read(&self, replies: &[Value]) -> Result<Greeted, RedisError> {
        let mut replies = replies.iter();
        let login = if self.has_login { replies.next() } else { None };
        let database = if self.has_database { replies.next() } else { None };
        match (login, database) {
            (Some(Value::ServerError(error)), _) if self.has_user && is_of_arguments(error) => {
                Ok(Greeted::UsersUnsupported)
            }
            (Some(Value::ServerError(error)), _) | (_, Some(Value::ServerError(error))) => {
                Err(error.clone().into())
            }
            _ => Ok(Greeted::Accepted),
        }
    }
}

fn is_of_arguments(error: &ServerError) -> bool {
    error.details().is_some_and(|detail| detail.contains("wrong number of arguments"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn login() -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_username("me").set_password("secret").set_db(7)
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint::new(vec!["a:6379/0".to_owned()], 1, Duration::from_secs(60), b"")
    }

    fn asked(login: &RedisConnectionInfo, resp3: bool, names_user: bool) -> (Greeting, String) {
        let mut parts = SetUpParts::default();
        let greeting = Greeting::ask(login, &fingerprint(), resp3, names_user, &mut parts);
        let text = String::from_utf8(parts.all().bytes().to_vec()).expect("text");
        let words = text.split("\r\n").filter(|word| !word.starts_with(['$', '*']));
        (greeting, words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn greeting_commands() {
        let version = env!("CARGO_PKG_VERSION");
        let name = format!("CLIENT SETNAME {} ", fingerprint());
        let own =
            format!("{name}CLIENT SETINFO LIB-NAME quorlock CLIENT SETINFO LIB-VER {version} ");
        let nobody = RedisConnectionInfo::default();
        let password = RedisConnectionInfo::default().set_password("secret");
        for (login, resp3, names_user, begin) in [
            (&nobody, true, true, "HELLO 3 "),
            (&nobody, false, true, ""),
            (&password, true, true, "HELLO 3 AUTH default secret "),
            (&password, false, true, "AUTH secret "),
            (&login(), true, true, "HELLO 3 AUTH me secret SELECT 7 "),
            (&login(), false, true, "AUTH me secret SELECT 7 "),
            (&login(), false, false, "AUTH secret SELECT 7 "),
        ] {
            assert_eq!(asked(login, resp3, names_user).1, format!("{begin}{own}"));
        }
    }

    #[test]
    fn only_client_info_may_be_refused() {
        let error = |text: &str| {
            redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error")
        };
        let unknown = || error("ERR unknown subcommand 'SETINFO'");
        let read = |resp3, replies: &[Value]| asked(&login(), resp3, true).0.read(replies);
        let welcome = read(true, &[Value::Okay, Value::Okay, unknown(), unknown(), unknown()]);
        assert!(matches!(welcome, Ok(Greeted::Accepted)));
        let replies = [error("WRONGPASS no"), error("NOAUTH no"), unknown(), unknown(), unknown()];
        assert_eq!(read(true, &replies).expect_err("refused").code(), Some("WRONGPASS"));
        let replies =
            [Value::Okay, error("ERR DB index is out of range"), unknown(), unknown(), unknown()];
        let refused = read(false, &replies).expect_err("refused");
        assert_eq!(refused.detail(), Some("DB index is out of range"));
        let old = error("ERR wrong number of arguments for 'auth' command");
        let replies = [old, error("NOAUTH no"), unknown(), unknown(), unknown()];
        assert!(matches!(read(false, &replies), Ok(Greeted::UsersUnsupported)));
        let (alone, _) = asked(&login(), false, false);
        assert!(alone.read(&replies).is_err(), "no user was named");
    }
}
