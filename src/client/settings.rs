//! What every acquire starts from, and what cannot work.

use crate::error::ConfigError;
use crate::protocol::{Drift, RetryPolicy, Ttl, TtlError};
use crate::wire::{Counters, Keys, is_reserved};
use std::sync::Arc;
use std::time::Duration;

/// The settings of one client.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) metadata: Option<Arc<str>>,
    /// True if every lease has a fencing token.
    pub(crate) is_fenced: bool,
    pub(crate) token_ttl: Ttl,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift: Drift,
    /// True if nodes that write all to their disks keep all they promised.
    pub(crate) trusts_persistence: bool,
}

impl Settings {
    /// The key of a resource, if it is not one of the library's own.
    pub(crate) fn key(&self, resource: &[u8]) -> Result<Box<[u8]>, ConfigError> {
        let key = [&*self.prefix, resource].concat();
        if is_reserved(&key) {
            return Err(ConfigError::ReservedResource { resource: shown(resource) });
        }
        Ok(key.into())
    }

    /// Says so if every key with the prefix would be one of the library's own.
    pub(crate) fn check_prefix(&self) -> Result<(), ConfigError> {
        if is_reserved(&self.prefix) {
            let prefix = shown(&self.prefix);
            return Err(ConfigError::ReservedPrefix { prefix });
        }
        Ok(())
    }

    /// The counters beside `keys`, for a fencing token.
    pub(crate) fn counters(&self, keys: &Keys) -> Result<Arc<Counters>, ConfigError> {
        let counters = Counters::beside(keys, self.token_ttl);
        counters.map(Arc::new).map_err(|key| {
            let resource = key.get(self.prefix.len()..).unwrap_or_default();
            ConfigError::NoCounter { resource: shown(resource) }
        })
    }

    /// For how long a key can stand that nobody holds, if that is to be `asked`: the longest there is
    /// comes with what is wrong.
    pub(crate) fn check_cool_down(
        &self,
        asked: Duration,
    ) -> (Option<Ttl>, Result<(), ConfigError>) {
        let max_ttl = self.max_ttl;
        let too_long = ConfigError::CoolDownExceedsMax { cool_down: asked, max_ttl };
        let checked = if asked > max_ttl { Err(too_long) } else { Ok(()) };
        // Less than a millisecond is none.
        (Ttl::from_duration(asked.min(max_ttl)).ok(), checked)
    }

    /// How long counters are to stand: as long as the longest lease at least.
    pub(crate) fn check_token_ttl(&self, asked: Option<Duration>) -> Result<Ttl, ConfigError> {
        let max_ttl = self.max_ttl;
        let token_ttl = asked.unwrap_or(max_ttl.max(TOKEN_TTL));
        if token_ttl < max_ttl {
            return Err(ConfigError::TokenTtlBelowMax { token_ttl, max_ttl });
        }
        to_ttl("token_ttl", token_ttl)
    }

    /// The ttl that `asked` is, if it can work with the other settings.
    pub(crate) fn check_ttl(&self, asked: Duration) -> Result<Ttl, ConfigError> {
        let ttl = to_ttl("ttl", asked)?;
        let max_ttl = self.max_ttl;
        if asked > max_ttl {
            return Err(ConfigError::TtlExceedsMax { ttl: asked, max_ttl });
        }
        let (drift, node_timeout) = (self.drift.allowance(ttl), self.node_timeout);
        let validity = ttl.as_duration().saturating_sub(drift);
        if validity.is_zero() {
            return Err(ConfigError::DriftExceedsTtl { ttl: asked, drift });
        }
        if node_timeout >= validity {
            let ttl = asked;
            return Err(ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity });
        }
        Ok(ttl)
    }

    /// The ttl of an extension after which at least `validity` is left: it may take a node timeout. Where
    /// that is more than a key may stand for, the longest ttl, if it gives as much at the start.
    pub(crate) fn ttl_for(&self, validity: Duration) -> Result<Ttl, ConfigError> {
        let max_ttl = self.max_ttl;
        let ttl_for = |validity| self.drift.ttl_for(validity);
        let asked = ttl_for(validity).map_or(Duration::MAX, Ttl::as_duration);
        if asked > max_ttl {
            return Err(ConfigError::EnsureExceedsMax { validity, max_ttl });
        }
        let with_time = ttl_for(validity.saturating_add(self.node_timeout));
        let ttl = with_time.map_or(max_ttl, |ttl| ttl.as_duration().min(max_ttl));
        self.check_ttl(ttl)
    }

    /// Says so if a lease that is held for at most so long could end while it is acquired.
    pub(crate) fn check_max_hold(&self, asked: Option<Duration>) -> Result<(), ConfigError> {
        let node_timeout = self.node_timeout;
        match asked {
            Some(max_hold) if max_hold <= node_timeout => {
                Err(ConfigError::MaxHoldTooShort { max_hold, node_timeout })
            }
            _ => Ok(()),
        }
    }
}

/// How long a counter stands where nothing else was asked for.
const TOKEN_TTL: Duration = Duration::from_hours(24);

/// What was `asked` for by `setting`, as the nodes can be told it.
pub(crate) fn to_ttl(setting: &'static str, asked: Duration) -> Result<Ttl, ConfigError> {
    Ttl::from_duration(asked).map_err(|reason| match reason {
        TtlError::TooShort | TtlError::TooLong => ConfigError::BadTtl { setting, ttl: asked },
    })
}

/// The longest metadata: it is sent with every command of its lease.
const MOST_METADATA: usize = 4096;

/// Says so if there is too much of it.
pub(crate) fn check_metadata(metadata: Option<&str>) -> Result<(), ConfigError> {
    match metadata.map_or(0, str::len) {
        length if length > MOST_METADATA => {
            Err(ConfigError::LongMetadata { length, most: MOST_METADATA })
        }
        _ => Ok(()),
    }
}

/// So much of a name is shown, in characters.
const MOST_SHOWN: usize = 64;

/// A resource, or a part of one, for people: on one line, and not longer than a line.
fn shown(name: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        shown.extend(chunk.valid().escape_debug().take(MOST_SHOWN + 1));
        shown.extend(chunk.invalid().escape_ascii().map(char::from));
        if let Some((end, _)) = shown.char_indices().nth(MOST_SHOWN) {
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    shown
}

/// This host and this process.
pub(crate) fn owner() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_on_one_line_and_not_longer_than_one() {
        for (name, as_shown) in [
            (&b""[..], ""),
            (b"orders/42", "orders/42"),
            ("größe/日本".as_bytes(), "größe/日本"),
            (b"two\r\nlines \"quoted\"", "two\\r\\nlines \\\"quoted\\\""),
            (b"\xff\x00a\xf0", "\\xff\\0a\\xf0"),
        ] {
            assert_eq!(shown(name), as_shown);
        }
        assert_eq!(shown(&[b'a'; 64]), "a".repeat(64));
        for long in [vec![b'a'; 1 << 20], vec![0xff; 1 << 20], "ö\u{1f409}\0".repeat(999).into()] {
            let shown = shown(&long);
            assert_eq!(shown.chars().count(), MOST_SHOWN + 1, "{shown}");
            assert!(shown.ends_with('…'), "{shown}");
        }
    }
}
