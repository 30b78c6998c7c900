//! Addresses of nodes, and errors for invalid ones. Errors never contain the user or the password of a URL.

use crate::error::ConfigError;
use crate::transport::{Address, TcpAddress, TcpOptions};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Reason for refusing a text with several addresses.
const LIST: &str = "several URLs in one string: pass one URL per node";

const TCP: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];
const TLS: [&str; 2] = ["rediss", "valkeys"];
const UNIX: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];
/// Schemes that are refused, but are safe to show in errors.
const OTHERS: [&str; 3] = ["http", "https", "tcp"];

/// A node's address and login.
pub(crate) type Place = (Address, RedisConnectionInfo);

/// Parses the URL of a node; `position` is its place in the list, for errors.
pub(crate) fn parse(position: usize, url: &str) -> Result<Place, ConfigError> {
    let url = url.trim();
    let bad = |reason: &str| {
        let url = without_secrets(url);
        ConfigError::BadUrl { position, url, reason: reason.to_owned() }
    };
    if let Some(reason) = fault(url) {
        return Err(bad(reason));
    }
    let wants_tls = wants_tls(url);
    if wants_tls && !cfg!(feature = "tls-rustls") {
        return Err(ConfigError::TlsNotEnabled { url: without_secrets(url) });
    }
    let accepted = accepted_parameters(url);
    if let Some((name, _)) = parameters(url).find(|(name, _)| !accepted.contains(name)) {
        return Err(ConfigError::UnknownUrlParameter {
            position,
            url: without_secrets(url),
            parameter: shown_parameter(name),
            accepted: accepted.join(", "),
        });
    }
    let info = without_tls(url).into_connection_info().map_err(|error| bad(reason(&error)))?;
    let addr = match info.addr().clone() {
        ConnectionAddr::Tcp(host, port) if wants_tls => {
            let insecure = url.ends_with("#insecure");
            ConnectionAddr::TcpTls { host, port, insecure, tls_params: None }
        }
        addr => addr,
    };
    // The redis crate reads `db` in URLs of Unix sockets only.
    let login = info.redis_settings().clone();
    let login = match parameter(url, "db").and_then(|db| db.parse().ok()) {
        Some(db) => login.set_db(db),
        None => login,
    };
    place(position, &info.set_addr(addr).set_redis_settings(login))
}

/// Text for a node without user and password: its address, or the reason why its URL is invalid.
pub(super) fn shown(place: &Result<Place, ConfigError>) -> String {
    match place {
        Ok((address, _)) => address.to_string(),
        Err(fault) => fault.to_string(),
    }
}

/// Returns the node of a client of the `redis` crate.
pub(crate) fn place(position: usize, info: &ConnectionInfo) -> Result<Place, ConfigError> {
    let server = |host: &str, port| TcpAddress {
        host: host.to_owned(),
        port,
        options: options(info.tcp_settings()),
    };
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Address::Tcp(server(host, *port)),
        // Certificates are private to the redis crate and cannot be read.
        ConnectionAddr::TcpTls { tls_params: Some(_), .. } if cfg!(feature = "tls-rustls") => {
            return Err(ConfigError::OpaqueTls { name: info.addr().to_string() });
        }
        #[cfg(feature = "tls-rustls")]
        ConnectionAddr::TcpTls { host, port, insecure, .. } => {
            Address::Tls { server: server(host, *port), is_insecure: *insecure }
        }
        #[cfg(not(feature = "tls-rustls"))]
        ConnectionAddr::TcpTls { .. } => {
            return Err(ConfigError::TlsNotEnabled { url: format!("rediss://{}", info.addr()) });
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        other => {
            let reason = "addresses of this type are not supported on this system".to_owned();
            return Err(ConfigError::BadUrl { position, url: other.to_string(), reason });
        }
    };
    Ok((address, info.redis_settings().clone()))
}

/// The names of `places`. An error if two are equal.
pub(crate) fn distinct_names(places: &[Place]) -> Result<Vec<Arc<str>>, ConfigError> {
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

fn options(tcp: &TcpSettings) -> TcpOptions {
    TcpOptions {
        keepalive: tcp.keepalive().cloned(),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        user_timeout: tcp.user_timeout(),
    }
}

/// Scheme of `url` in lower case, and the text after it.
fn split_scheme(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    Some((scheme.to_ascii_lowercase(), rest))
}

/// Splits the text after a scheme into host and port, without user and password, and path, parameters and fragment.
fn split_place(rest: &str) -> (&str, &str) {
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    (authority.rsplit_once('@').map_or(authority, |(_, place)| place), tail)
}

fn wants_tls(url: &str) -> bool {
    split_scheme(url).is_some_and(|(scheme, _)| TLS.contains(&&*scheme))
}

/// Replaces a TLS scheme by `redis`, because the parser knows TLS only if the redis crate was built with it.
fn without_tls(url: &str) -> String {
    match url.split_once("://") {
        Some((_, rest)) if wants_tls(url) => format!("redis://{rest}"),
        _ => url.to_owned(),
    }
}

/// Returns why `url` is invalid. Runs before the parser, to find URLs that the parser would misread. For example, it
/// would take `redis://me:12#34@host` for the address of a host `me`.
fn fault(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        return Some("the URL is empty");
    }
    if url.chars().any(char::is_control) {
        return Some("unexpected control character: percent-encode it if it is part of a password");
    }
    let is_next = |scheme| [",", " "].iter().any(|gap| url.contains(&format!("{gap}{scheme}://")));
    if TCP.iter().chain(&UNIX).any(is_next) {
        return Some(LIST);
    }
    let Some((scheme, rest)) = split_scheme(url) else {
        let is_list = url.contains(',') && !url.contains('@');
        return Some(if is_list { LIST } else { "no scheme: begin the URL with redis://" });
    };
    if UNIX.contains(&&*scheme) {
        if cfg!(not(unix)) {
            return Some("Unix sockets are not supported on this system: write redis://host:port");
        }
        return fault_of_path(rest);
    }
    if !TCP.contains(&&*scheme) {
        return Some("unsupported scheme: use redis://, rediss:// or unix://");
    }
    fault_of_host(rest, TLS.contains(&&*scheme))
}

fn fault_of_path(rest: &str) -> Option<&'static str> {
    let path = rest.split('?').next().unwrap_or_default();
    if rest.contains('#') {
        return Some("unexpected #: percent-encode it as %23");
    }
    if !path.starts_with('/') {
        return Some("no path: use unix:///path/to/socket?user=...&pass=...");
    }
    fault_of_parameters(rest, None)
}

/// Faults in the query parameters of a URL whose path names the database `path`.
const PROTOCOL: &str = "the protocol parameter must be 3 or resp3: RESP2 is not supported";

fn fault_of_parameters(url: &str, path: Option<&str>) -> Option<&'static str> {
    let count = |name| parameters(url).filter(|(other, _)| *other == name).count();
    if parameters(url).any(|(name, _)| count(name) > 1) {
        return Some("a parameter is given twice");
    }
    if parameter(url, "protocol").is_some_and(|protocol| !matches!(protocol, "3" | "resp3")) {
        return Some(PROTOCOL);
    }
    let db = parameter(url, "db")?;
    if !is_database(db) {
        return Some("the db parameter must be a database number");
    }
    let number = |db: &str| db.parse::<i64>().ok();
    path.is_some_and(|path| number(path) != number(db))
        .then_some("the path and the db parameter name different databases: remove one of them")
}

/// The query parameters of a URL, not decoded.
fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    parameters(url).find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn accepted_parameters(url: &str) -> &'static [&'static str] {
    match split_scheme(url) {
        Some((scheme, _)) if UNIX.contains(&&*scheme) => &["db", "user", "pass", "protocol"],
        _ => &["db", "protocol"],
    }
}

/// The name of a parameter. If it does not look like a name, it may be part of a password, so only its length is shown.
fn shown_parameter(name: &str) -> String {
    let is_name = |it: char| it.is_ascii_alphabetic() || it == '_' || it == '-';
    if name.len() <= 24 && name.chars().all(is_name) { name.to_owned() } else { length(name) }
}

fn fault_of_host(rest: &str, has_tls: bool) -> Option<&'static str> {
    let (place, tail) = split_place(rest);
    if tail.contains('@') {
        return Some(
            "the user or the password contains reserved characters: \
             percent-encode them (# as %23, / as %2F, ? as %3F, @ as %40)",
        );
    }
    if place.contains(',') {
        return Some(LIST);
    }
    let (address, fragment) = tail.split_once('#').map_or((tail, None), |(a, f)| (a, Some(f)));
    if fragment.is_some_and(|fragment| !(has_tls && fragment == "insecure")) {
        return Some("unexpected #: percent-encode it as %23 if it is part of a password");
    }
    // An IPv6 address contains colons, within brackets.
    let bracket = place.rfind(']').unwrap_or(0);
    let colon = place[bracket..].find(':').map(|colon| bracket + colon);
    let is_broken = place.starts_with('[') && bracket == 0;
    let (host, port) = match colon.filter(|_| !is_broken) {
        Some(colon) => (&place[..colon], &place[colon + 1..]),
        None => (place, ""),
    };
    if host.is_empty() {
        return Some("no host: use redis://host:port");
    }
    // An empty port after the colon means the default port.
    if !port.is_empty() && !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Some("the port must be a number from 1 to 65535");
    }
    let path = address.split('?').next().unwrap_or_default().trim_matches('/');
    if !path.is_empty() && !is_database(path) {
        return Some("the path must be a database number");
    }
    fault_of_parameters(tail, (!path.is_empty()).then_some(path))
}

fn is_database(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|database| database >= 0)
}

/// The parser's error in this crate's words, because its own message may contain parts of the URL.
fn reason(error: &redis::RedisError) -> &'static str {
    let said = error.to_string();
    let knows = |words: &str| said.contains(words);
    if knows("UTF-8") {
        "the decoded user or password is not valid UTF-8: percent-encode a % as %25"
    } else if knows("wildcard") {
        "0.0.0.0 and :: are not addresses of a server"
    } else if knows("protocol") {
        PROTOCOL
    } else {
        "invalid host: use redis://user:password@host:port"
    }
}

/// Scheme, host and port of `url`. If it does not have them, returns its length only, because it may be or contain a
/// password.
fn without_secrets(url: &str) -> String {
    scheme_and_host(url).unwrap_or_else(|| length(url))
}

fn length(text: &str) -> String {
    format!("{} characters", text.chars().count())
}

fn scheme_and_host(url: &str) -> Option<String> {
    if url.parse::<SocketAddr>().is_ok() || url.parse::<IpAddr>().is_ok() {
        return Some(url.to_owned());
    }
    let (scheme, rest) = url.split_once("://")?;
    let lower = scheme.to_ascii_lowercase();
    let consists_of = |text: &str, marks: &str| {
        text.chars().all(|it| it.is_ascii_alphanumeric() || marks.contains(it))
    };
    if UNIX.contains(&&*lower) {
        let path = rest.split(['?', '#']).next()?;
        let is_path = path.starts_with('/') && consists_of(path, "/._-");
        return is_path.then(|| format!("{scheme}://{path}"));
    }
    let (place, tail) = split_place(rest);
    // The password may contain one of these characters, and end at a later `@`.
    if tail.contains('@') || !(TCP.contains(&&*lower) || OTHERS.contains(&&*lower)) {
        return None;
    }
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !place.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match literal {
        Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && consists_of(host, "._-"),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    (is_host && is_port).then(|| format!("{scheme}://{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_parser_is_never_given_an_address_with_tls() {
        for (url, plain) in [
            ("rediss://me:secret@10.0.0.1:7000/3", "redis://me:secret@10.0.0.1:7000/3"),
            ("REDISS://10.0.0.1", "redis://10.0.0.1"),
            ("valkeys://[::1]#insecure", "redis://[::1]#insecure"),
            ("redis://rediss", "redis://rediss"),
            ("unix:///rediss://", "unix:///rediss://"),
        ] {
            assert_eq!(without_tls(url), plain);
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn what_a_client_has_set_for_its_sockets_is_kept() {
        let info = "redis://10.0.0.1".into_connection_info().expect("a good address");
        let (idle, timeout) = (Duration::from_secs(77), Duration::from_secs(3));
        let keepalive = socket2::TcpKeepalive::new().with_time(idle);
        let tcp = TcpSettings::default().set_keepalive(keepalive).set_user_timeout(timeout);
        for (tcp, is_set) in [(TcpSettings::default(), false), (tcp, true)] {
            let (address, _) = place(1, &info.clone().set_tcp_settings(tcp)).expect("an address");
            let Address::Tcp(server) = address else { panic!("{address:?}") };
            assert_eq!(server.options.user_timeout, is_set.then_some(timeout));
            let shown = format!("{:?}", server.options.keepalive);
            assert_eq!(shown.contains("77"), is_set, "{shown}");
        }
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn an_address_with_tls_is_read_like_one_without() {
        for (url, host, port, insecure) in [
            ("rediss://me:s%23cret@example.org.:7000/3", "example.org.", 7000, false),
            ("valkeys://me:s%23cret@[2001:db8::1]/3", "2001:db8::1", 6379, false),
            ("Rediss://me:s%23cret@10.0.0.1/3#insecure", "10.0.0.1", 6379, true),
        ] {
            let (address, login) = parse(1, url).expect("a good address");
            let Address::Tls { server, is_insecure } = address else { panic!("{address:?}") };
            assert_eq!((&*server.host, server.port, is_insecure), (host, port, insecure));
            let user = (login.username(), login.password(), login.db());
            assert_eq!(user, (Some("me"), Some("s#cret"), 3));
        }
    }
}
