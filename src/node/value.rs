//! The ownership string stored under a key.

use std::fmt;
use uuid::Uuid;

/// The hex digits of a UUID.
const DIGITS: usize = 32;

/// What stands under a key: 32 hex digits of a `UUIDv4` made from the operating system's
/// randomness, fresh for every attempt (I7); with metadata, a colon and that follow. The value of
/// somebody else's lock can be any bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Value(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Plain([u8; DIGITS]),
    Long(Box<[u8]>),
}

impl Value {
    pub(crate) fn fresh() -> Self {
        let mut digits = [0; DIGITS];
        Uuid::new_v4().simple().encode_lower(&mut digits);
        Self(Form::Plain(digits))
    }

    /// A fresh value that tells `metadata` to whoever reads it.
    pub(crate) fn telling(metadata: Option<&str>) -> Self {
        let fresh = Self::fresh();
        match metadata {
            None => fresh,
            Some(told) => Self(Form::Long([fresh.bytes(), b":", told.as_bytes()].concat().into())),
        }
    }

    /// A value as it was read, or handed over.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Form::Long(bytes.into()))
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

    /// The part that must not be shown.
    pub(super) fn secret(&self) -> &str {
        self.as_str().get(..DIGITS).unwrap_or(self.as_str())
    }

    /// Enough of it to tell two apart, and too little to take the lock away.
    pub(crate) fn hint(&self) -> String {
        let most = (self.bytes().len() / 4).min(6);
        String::from_utf8_lossy(&self.bytes()[..most]).into_owned()
    }

    /// What the holder tells, if the value has our format.
    pub(crate) fn metadata(&self) -> Option<&str> {
        let (digits, told) = self.bytes().split_at_checked(DIGITS)?;
        let told = told.strip_prefix(b":")?;
        let is_ours = digits.iter().all(u8::is_ascii_hexdigit);
        is_ours.then(|| std::str::from_utf8(told).ok()).flatten()
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
        let values: Vec<_> = (0..1_000).map(|_| Value::fresh()).collect();
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
        for told in ["", "worker-7", "host:42", "größe"] {
            let value = Value::telling(Some(told));
            assert_eq!(value.metadata(), Some(told));
            assert_eq!(Value::of(value.bytes()), value);
            assert_eq!(value.secret(), &value.as_str()[..DIGITS]);
            assert!(!format!("{value:?}").contains(value.secret()));
        }
    }

    #[test]
    fn others_values_tell_nothing_and_break_nothing() {
        for others in
            [&b""[..], b"1", b"\xff\xfe", &[b'x'; 40], b"some-token-of-another-library:zz"]
        {
            let value = Value::of(others);
            assert_eq!(value.metadata(), None);
            assert!(value.hint().chars().count() <= others.len() / 4);
        }
    }
}
