//! The ownership string stored under a key.

use crate::random::Random;
use std::fmt;
use uuid::Uuid;

/// The hex digits of a UUID.
const DIGITS: usize = 32;

/// Follows the digits of a value that no lease has. Metadata follows a colon, so no holder can write it.
const COOLING: &str = "+cool-down";

/// The longest value in bytes that is read from a node. A value of a lease has up to 4,134: the digits, a plus
/// sign with the number of keys, a colon and 4,096 bytes of metadata. A longer one is no lock of this library. The
/// scripts repeat the number.
pub(crate) const MAX_VALUE: usize = 4_200;

/// What stands under a key: 32 hex digits of a `UUIDv4` made from the operating system's
/// randomness, fresh for every attempt (I7). If it stands under several keys, for one lease, a plus
/// sign and their number follow; with metadata, a colon and that. The value of somebody else's lock
/// can be any bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain([u8; DIGITS]),
    Long(Box<[u8]>),
}

impl Value {
    pub(crate) fn fresh(random: &Random) -> Self {
        Self::plain(random.uuid())
    }

    /// The value with these digits.
    pub(crate) fn plain(uuid: Uuid) -> Self {
        let mut digits = [0; DIGITS];
        uuid.simple().encode_lower(&mut digits);
        Self(Form::Plain(digits))
    }

    /// The value with these digits for so many `keys`, that tells `metadata` to whoever reads it.
    pub(crate) fn telling(uuid: Uuid, keys: usize, metadata: Option<&str>) -> Self {
        let fresh = Self::plain(uuid);
        if keys == 1 && metadata.is_none() {
            return fresh;
        }
        let mark = if keys > 1 { format!("+{keys}") } else { String::new() };
        let told = metadata.map_or_else(String::new, |told| format!(":{told}"));
        Self(Form::Long(format!("{}{mark}{told}", fresh.as_str()).into_bytes().into()))
    }

    /// The value that stays for a cool-down after a release.
    pub(crate) fn cooling(random: &Random) -> Self {
        Self(Form::Long(format!("{}{COOLING}", Self::fresh(random).as_str()).into_bytes().into()))
    }

    /// True if it was left by a release with a cool-down.
    pub(crate) fn is_cooling(&self) -> bool {
        self.secret().is_some() && self.bytes()[DIGITS..] == *COOLING.as_bytes()
    }

    /// A value as it was read, or handed over. Equal bytes have one form, so that they compare as equal.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.try_into().map_or_else(|_| Form::Long(bytes.into()), Form::Plain))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Plain(digits) => digits,
            Form::Long(bytes) => bytes,
        }
    }

    /// One of ours is text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// The digits of a lock's value, which no text may show. A value of another format has none: to redact an empty or
    /// a short one would make texts unreadable.
    pub(crate) fn secret(&self) -> Option<&str> {
        let digits = self.as_str().get(..DIGITS)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(digits)
    }

    /// Enough of it to tell two apart, and too little to take the lock away.
    pub(crate) fn hint(&self) -> String {
        let most = (self.bytes().len() / 4).min(6);
        String::from_utf8_lossy(&self.bytes()[..most]).into_owned()
    }

    /// What the holder tells, if the value has our format.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.parts()?.1
    }

    /// Under how many keys it stands for one lease, if it says that these are several.
    pub(crate) fn several(&self) -> Option<usize> {
        self.parts().map(|(keys, _)| keys).filter(|keys| *keys > 1)
    }

    /// Under how many keys it stands, and the metadata; `None` if it has not our format.
    fn parts(&self) -> Option<(usize, Option<&str>)> {
        let (digits, rest) = self.bytes().split_at_checked(DIGITS)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let rest = std::str::from_utf8(rest).ok()?;
        let (mark, told) =
            rest.split_once(':').map_or((rest, None), |(mark, told)| (mark, Some(told)));
        if mark.is_empty() {
            return Some((1, told));
        }
        let number = mark.strip_prefix('+')?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let keys = number.parse().ok().filter(|keys| is_number && *keys > 1)?;
        Some((keys, told))
    }
}

/// Shows the first digits only: who knows a value can take the lock away.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn values_are_fresh_hex_and_never_shown_whole() {
        let values: Vec<_> = (0..1_000).map(|_| Value::fresh(&Random::Machine)).collect();
        let distinct: HashSet<_> = values.iter().map(|v| v.as_str().to_owned()).collect();
        assert_eq!(distinct.len(), values.len());
        for value in values {
            let digits = value.as_str();
            assert!(digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            assert_eq!(format!("{value:?}"), format!("{}…", &digits[..6]));
            assert_eq!(value.metadata(), None);
        }
    }

    #[test]
    fn metadata_follows_the_digits_and_is_read_back() {
        for (keys, mark) in [(1, ""), (2, "+2"), (1_000, "+1000")] {
            for told in
                [None, Some(""), Some("worker-7"), Some("host:42"), Some("größe"), Some("+7")]
            {
                let value = Value::telling(Random::Machine.uuid(), keys, told);
                assert_eq!(
                    (value.metadata(), value.several()),
                    (told, Some(keys).filter(|k| *k > 1))
                );
                let metadata = told.map_or(String::new(), |told| format!(":{told}"));
                assert_eq!(value.as_str()[DIGITS..], format!("{mark}{metadata}"));
                assert_eq!(Value::of(value.bytes()).bytes(), value.bytes());
                assert_eq!(value.secret(), Some(&value.as_str()[..DIGITS]));
                assert!(!format!("{value:?}").contains(&value.as_str()[..DIGITS]));
            }
        }
    }

    #[test]
    fn values_with_equal_bytes_are_equal_however_they_were_made() {
        let made = Value::fresh(&Random::Machine);
        assert_eq!(Value::of(made.bytes()), made);
        let made = Value::telling(Random::Machine.uuid(), 1, Some("worker-7"));
        assert_eq!(Value::of(made.bytes()), made);
    }

    #[test]
    fn cool_down_values_are_recognised_and_have_no_metadata() {
        let cooling = Value::cooling(&Random::Machine);
        assert!(cooling.is_cooling() && Value::of(cooling.bytes()).is_cooling());
        assert_eq!((cooling.metadata(), cooling.several()), (None, None));
        let holders = [None, Some("cool-down"), Some("+cool-down")];
        for metadata in holders {
            assert!(!Value::telling(Random::Machine.uuid(), 1, metadata).is_cooling());
        }
        assert!(!Value::of(b"+cool-down").is_cooling());
    }

    #[test]
    fn foreign_values_have_no_secret_digits() {
        for foreign in
            ["", "T", "holder-7", "0123456789abcdef", "not-hex-but-longer-than-32-letters"]
        {
            assert_eq!(Value::of(foreign.as_bytes()).secret(), None, "{foreign}");
        }
    }

    #[test]
    fn only_a_number_above_one_says_that_there_are_several_keys() {
        let digits = Value::fresh(&Random::Machine).as_str().to_owned();
        for rest in [
            "+",
            "+0",
            "+1",
            "+-2",
            "++2",
            "+2x",
            "+ 2",
            "2",
            "-2",
            "+99999999999999999999",
            "+:+2",
        ] {
            let value = Value::of(format!("{digits}{rest}").as_bytes());
            assert_eq!((value.several(), value.metadata()), (None, None), "{rest}");
        }
        let in_metadata = Value::of(format!("{digits}:+2").as_bytes());
        assert_eq!((in_metadata.several(), in_metadata.metadata()), (None, Some("+2")));
        for no_digits in ["+2", "x+2", "0123+2", &"x".repeat(DIGITS), ""] {
            assert_eq!(Value::of(format!("{no_digits}+2").as_bytes()).several(), None);
        }
    }

    #[test]
    fn others_values_tell_nothing_and_break_nothing() {
        for others in
            [&b""[..], b"1", b"\xff\xfe", &[b'x'; 40], b"some-token-of-another-library:zz"]
        {
            let value = Value::of(others);
            assert_eq!((value.metadata(), value.several()), (None, None));
            assert!(value.hint().chars().count() <= others.len() / 4);
        }
    }
}
