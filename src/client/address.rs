//! Parser for the URLs of nodes. Errors contain no part of a URL, because any part may belong to a password.

use crate::error::ConfigError;
use crate::transport::{Address, TcpAddress};
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use std::sync::Arc;

const TCP: [&str; 2] = ["redis", "valkey"];
const TLS: [&str; 2] = ["rediss", "valkeys"];
const UNIX: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];

pub(crate) type NodeTarget = (Address, RedisConnectionInfo);

/// Parses the URL of a node into its address and its login. Errors contain `position`, the node's position in the list,
/// starting at 1.
pub(crate) fn parse(position: usize, url: &str) -> Result<NodeTarget, ConfigError> {
    let url = url.trim();
    let bad = |reason: &str| ConfigError::BadUrl { position, reason: reason.to_owned() };
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| bad("no scheme: begin the URL with redis://"))?;
    let scheme = scheme.to_ascii_lowercase();
    let is_one_of = |schemes: &[&str]| schemes.contains(&&*scheme);
    let has_tls = is_one_of(&TLS);
    let fault = if is_one_of(&UNIX) {
        fault_of_path(rest)
    } else if has_tls || is_one_of(&TCP) {
        fault_of_host(rest)
    } else {
        Some("unsupported scheme: use redis://, rediss:// or unix://")
    };
    let is_control =
        url.chars().any(char::is_control).then_some("control character: percent-encode it");
    if let Some(reason) = is_control.or(fault) {
        return Err(bad(reason));
    }
    if has_tls && !cfg!(feature = "tls-rustls") {
        return Err(ConfigError::TlsNotEnabled { position });
    }
    // The redis crate parses TLS schemes only if it was built with TLS. Its errors may contain parts of the URL.
    let plain = if has_tls { format!("redis://{rest}") } else { url.to_owned() };
    let info = plain.into_connection_info().map_err(|_| bad(FORM))?;
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let server = TcpAddress { host: host.clone(), port: *port };
            match has_tls {
                #[cfg(feature = "tls-rustls")]
                true => Address::Tls(server),
                _ => Address::Tcp(server),
            }
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err(bad("Unix sockets are not supported on this system")),
    };
    // The redis crate reads the `db` parameter only in URLs of Unix sockets.
    let login = info.redis_settings().clone();
    let login = match parameters(rest).find(|(name, _)| *name == "db") {
        Some((_, db)) => login.set_db(db.parse().map_err(|_| bad(NO_DATABASE))?),
        None => login,
    };
    Ok((address, login))
}

const NO_DATABASE: &str = "the db parameter must be a database number";

const FORM: &str =
    "use redis://user:password@host:port/database; encode special characters, such as a % as %25";

/// Returns the text for `Debug` output: the node's address without credentials, or the reason why its URL is invalid.
pub(super) fn shown(place: &Result<NodeTarget, ConfigError>) -> String {
    match place {
        Ok((address, _)) => address.to_string(),
        Err(fault) => fault.to_string(),
    }
}

pub(crate) fn distinct_names(places: &[NodeTarget]) -> Result<Vec<Arc<str>>, ConfigError> {
    let mut names: Vec<Arc<str>> = Vec::with_capacity(places.len());
    for (address, _) in places {
        let name = address.to_string();
        if names.iter().any(|known| **known == *name) {
            return Err(ConfigError::SameNode { name });
        }
        names.push(name.into());
    }
    Ok(names)
}

/// Returns the reason why `rest`, the part of a URL after the scheme, is invalid, or `None` if `rest` is valid. Detects
/// URLs that the redis crate would misread: for example, it reads `redis://me:12#34@host` as the address of a host
/// `me`.
fn fault_of_host(rest: &str) -> Option<&'static str> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // With several @, the part after the last one may belong to a password, and would be shown as the host.
    if tail.contains('@') || authority.matches('@').count() > 1 {
        return Some(
            "the user or the password contains reserved characters: \
             percent-encode them (# as %23, / as %2F, ? as %3F, @ as %40)",
        );
    }
    if authority.rsplit('@').next().is_some_and(|host| host.contains(',')) {
        return Some("several URLs in one string: pass one URL per node");
    }
    let path = tail.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    let mut dbs = parameters(tail).filter(|(name, _)| *name == "db").map(|(_, db)| db);
    if let Some(db) = dbs.next() {
        if !db.parse::<i64>().is_ok_and(|db| db >= 0) {
            return Some(NO_DATABASE);
        }
        if dbs.next().is_some() || !path.is_empty() && path != db {
            return Some("the URL names several databases: leave one");
        }
    }
    fault_of_parameters(tail, &["db", "protocol"])
}

/// Returns the query parameters of a URL, without percent-decoding.
fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn fault_of_path(rest: &str) -> Option<&'static str> {
    if !rest.starts_with('/') {
        return Some("no path: use unix:///path/to/socket?user=...&pass=...");
    }
    fault_of_parameters(rest, &["db", "user", "pass", "protocol"])
}

/// Rejects a fragment, and parameters that are not in `accepted`, because the redis crate would ignore them. Returns
/// the reason, or `None` if `tail` is valid.
fn fault_of_parameters(tail: &str, accepted: &[&str]) -> Option<&'static str> {
    if tail.contains('#') {
        return Some("unexpected #: percent-encode it as %23 if it is part of a password");
    }
    tail.split_once('?')?;
    parameters(tail).any(|(name, _)| !accepted.contains(&name)).then_some(
        "unknown parameter: remove it; URLs have db and protocol, those of unix:// also user and pass",
    )
}

#[cfg(all(test, feature = "tls-rustls"))]
mod tests {
    use super::*;

    #[test]
    fn tls_url_is_parsed_like_a_plain_url() {
        for (url, host, port) in [
            ("rediss://me:s%23cret@example.org.:7000/3", "example.org.", 7000),
            ("valkeys://me:s%23cret@[2001:db8::1]/3", "2001:db8::1", 6379),
            ("Rediss://me:s%23cret@10.0.0.1/3", "10.0.0.1", 6379),
        ] {
            let (address, login) = parse(1, url).expect("a good address");
            let Address::Tls(server) = address else { panic!("{address:?}") };
            assert_eq!((&*server.host, server.port), (host, port));
            let user = (login.username(), login.password(), login.db());
            assert_eq!(user, (Some("me"), Some("s#cret"), 3));
        }
    }
}
