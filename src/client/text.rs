//! Parsing of settings that are written as text in configuration files and environment variables.

use super::restart_guard::RestartGuard;
use crate::protocol::RetryPolicy;
use std::time::Duration;

pub(super) trait SettingText: Sized {
    const EXPECTED: &'static str;

    fn read(text: &str) -> Option<Self>;
}

impl SettingText for Duration {
    const EXPECTED: &'static str = "a duration with its unit, such as 10s, 250ms or 1m 30s";

    fn read(text: &str) -> Option<Self> {
        humantime::parse_duration(text.trim()).ok()
    }
}

impl SettingText for RetryPolicy {
    const EXPECTED: &'static str = "a retry policy: none, fixed 100ms, linear 50ms..500ms, exponential \
                                    5ms..500ms or jittered 50ms..250ms, with an optional limit: fixed \
                                    100ms, limit 3";

    fn read(text: &str) -> Option<Self> {
        let (delays, limit) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
        let (shape, times) = delays.trim().split_once(' ').unwrap_or((delays.trim(), ""));
        let range = || {
            let (from, to) = times.split_once("..")?;
            Some((Duration::read(from)?, Duration::read(to)?))
        };
        let policy = match shape {
            "none" if times.is_empty() => Self::none(),
            "fixed" => Self::fixed(Duration::read(times)?),
            "linear" => range().map(|(step, most)| Self::linear(step, most))?,
            "exponential" => range().map(|(base, most)| Self::exponential(base, most))?,
            "jittered" => range().map(|(from, to)| Self::jittered(from..to))?,
            _ => return None,
        };
        let Some(limit) = limit else { return Some(policy) };
        let retries = limit.trim().strip_prefix("limit ")?.trim().parse().ok()?;
        Some(policy.limit(retries))
    }
}

impl SettingText for RestartGuard {
    const EXPECTED: &'static str = "observed, strict or off";

    fn read(text: &str) -> Option<Self> {
        match text.trim() {
            "observed" => Some(Self::Observed),
            "strict" => Some(Self::Strict),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

impl SettingText for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }
}

impl SettingText for f64 {
    const EXPECTED: &'static str = "a number such as 0.01";

    fn read(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }
}

/// Splits a list of URLs at commas and white space. A separator counts only if another URL or the end of the list
/// follows. Otherwise, the function would split a password that contains a separator, and an error message could
/// contain the second part of the password.
pub(super) fn urls(list: &str) -> Vec<String> {
    let is_gap = |at: char| at == ',' || at.is_whitespace();
    let mut urls: Vec<String> = Vec::new();
    let mut rest = list.trim_matches(is_gap);
    while !rest.is_empty() {
        let gaps = rest.match_indices(is_gap).map(|(at, _)| at);
        let mut ends = gaps.filter(|at| begins_url(rest[*at..].trim_start_matches(is_gap)));
        let end = ends.next().unwrap_or(rest.len());
        urls.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches(is_gap);
    }
    urls
}

fn begins_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '+';
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.chars().all(is_part))
}

pub(super) mod deserialize {
    use super::{SettingText, urls};
    use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
    use std::fmt;
    use std::marker::PhantomData;

    struct Setting<T>(T);

    struct SettingVisitor<T>(PhantomData<T>);

    macro_rules! visit_scalars {
        ($($visit:ident: $type:ty as $unexpected:ident;)*) => {$(
            fn $visit<E: Error>(self, value: $type) -> Result<Setting<T>, E> {
                let read = T::read(&value.to_string()).map(Setting);
                read.ok_or_else(|| E::invalid_type(Unexpected::$unexpected(value), &self))
            }
        )*};
    }

    impl<T: SettingText> Visitor<'_> for SettingVisitor<T> {
        type Value = Setting<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Setting<T>, E> {
            let read = T::read(text).map(Setting);
            read.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        visit_scalars! {
            visit_bool: bool as Bool;
            visit_f64: f64 as Float;
            visit_i64: i64 as Signed;
            visit_u64: u64 as Unsigned;
        }
    }

    impl<'de, T: SettingText> Deserialize<'de> for Setting<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(SettingVisitor(PhantomData))
        }
    }

    pub(crate) fn setting<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: SettingText,
        D: Deserializer<'de>,
    {
        Ok(Option::<Setting<T>>::deserialize(from)?.map(|setting| setting.0))
    }

    struct Urls;

    impl<'de> Visitor<'de> for Urls {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list with the URL of each node")
        }

        fn visit_str<E: Error>(self, list: &str) -> Result<Vec<String>, E> {
            Ok(urls(list))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut urls = Vec::new();
            while let Some(url) = list.next_element()? {
                urls.push(url);
            }
            Ok(urls)
        }
    }

    /// Deserializes the nodes from a list or a single string. Errors must not contain the string, which may contain
    /// passwords.
    pub(crate) fn nodes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        from.deserialize_any(Urls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let (ms, seconds) = (Duration::from_millis, Duration::from_secs);
        for (text, read) in [
            ("10s", Some(seconds(10))),
            (" 250ms ", Some(ms(250))),
            ("1m 30s", Some(seconds(90))),
            ("24h", Some(Duration::from_hours(24))),
            ("0s", Some(Duration::ZERO)),
            ("10", None),
            ("", None),
            ("-1s", None),
            ("ten seconds", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(Duration::read(text), read, "{text:?}");
        }
    }

    #[test]
    fn retry_policy_text_is_parsed_or_rejected() {
        for (text, shown) in [
            ("none", "none"),
            ("fixed 100ms", "fixed 100ms"),
            ("linear 50ms..500ms", "linear 50ms up to 500ms"),
            (" exponential 5ms..1s , limit 3 ", "exponential 5ms up to 1s, at most 3 retries"),
            ("jittered 50 ms .. 250 ms", "jittered 50ms..250ms"),
            ("jittered 50ms..250ms,limit 0", "jittered 50ms..250ms, at most 0 retries"),
        ] {
            let read = RetryPolicy::read(text).map(|policy| format!("{policy:?}"));
            assert_eq!(read.as_deref(), Some(shown), "{text:?}");
        }
        for bad in [
            "",
            "never",
            "none 5ms",
            "fixed",
            "fixed 100",
            "fixed 5ms..9ms",
            "linear 50ms",
            "linear 50ms..",
            "jittered 50ms-250ms",
            "fixed 5ms, 3",
            "fixed 5ms, limit",
            "fixed 5ms, limit -1",
            "fixed 5ms, limit 3, limit 4",
        ] {
            assert!(RetryPolicy::read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn list_is_split_only_where_another_url_begins() {
        for (list, cut) in [
            ("", &[][..]),
            (" , ", &[]),
            ("redis://a", &["redis://a"]),
            ("redis://a,redis://b", &["redis://a", "redis://b"]),
            (
                " redis://a , \n rediss://b:7/3\tunix:///c, ",
                &["redis://a", "rediss://b:7/3", "unix:///c"],
            ),
            ("redis://a redis+unix:///b", &["redis://a", "redis+unix:///b"]),
            ("redis://me:se,cr et@a,redis://b", &["redis://me:se,cr et@a", "redis://b"]),
            ("redis://a,b,c", &["redis://a,b,c"]),
        ] {
            assert_eq!(urls(list), cut, "{list:?}");
        }
    }
}
