//! The value stored under a lock's key.

use crate::protocol::ClientId;
use crate::random::Random;
use std::fmt;
use std::ops::Range;
use uuid::Uuid;

/// Number of hex digits in a UUID.
const DIGITS: usize = 32;

/// The bytes of the UUID that identify the client. The range contains neither the version and variant bits nor the
/// digits that [`Value::hint`] returns.
const CLIENT_BYTES: Range<usize> = 12..16;

/// The text after the digits of a cool-down value. A holder cannot create a value with this text directly after the
/// digits, because the metadata that a holder chooses follows a colon.
const COOL_DOWN: &str = "+cool-down";

/// The value of a lock's key while the lock has readers. The Lua scripts contain the same value.
const READERS: &[u8] = b"quorlock:readers";

/// Maximum length of a value read from a node, in bytes. A lease's value has at most 4,134 bytes: the digits, a plus
/// sign and the number of keys, a colon and 4,096 bytes of metadata (with a slash and 1,000 permits: 4,134). The Lua scripts contain the same limit.
pub(crate) const MAX_VALUE: usize = 4_200;

/// The value of a lock: the 32 hex digits of a random `UUIDv4`, generated for every attempt (I7). The last eight digits
/// are the same for all leases of a client. From them, a waiter can detect whether the lock stayed in one process.
///
/// For a lease of several keys, a plus sign and the number of keys follow the digits. For a permit of a semaphore, a
/// slash and the number of permits follow. Metadata follows after a colon.
/// Values of other clients may be arbitrary bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain([u8; DIGITS]),
    Long(Box<[u8]>),
}

/// The keys or the permit of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// This number of keys.
    Keys(usize),
    /// One permit of a semaphore that has this number of permits.
    Permit { of: usize },
}

impl Value {
    pub(crate) fn fresh(random: &Random) -> Self {
        Self::plain(random.uuid())
    }

    pub(crate) fn plain(uuid: Uuid) -> Self {
        let mut digits = [0; DIGITS];
        uuid.simple().encode_lower(&mut digits);
        Self(Form::Plain(digits))
    }

    pub(crate) fn of_lease(
        uuid: Uuid,
        client: ClientId,
        holding: Holding,
        metadata: Option<&str>,
    ) -> Self {
        let mut bytes = uuid.into_bytes();
        bytes[CLIENT_BYTES].copy_from_slice(&client.0.to_be_bytes());
        let fresh = Self::plain(Uuid::from_bytes(bytes));
        let mark = match holding {
            Holding::Keys(1) if metadata.is_none() => return fresh,
            Holding::Keys(1) => String::new(),
            Holding::Keys(keys) => format!("+{keys}"),
            Holding::Permit { of } => format!("/{of}"),
        };
        let told = metadata.map_or_else(String::new, |told| format!(":{told}"));
        Self(Form::Long(format!("{}{mark}{told}", fresh.as_str()).into_bytes().into()))
    }

    /// Creates the value that keeps the keys of a released lock occupied during its cool-down.
    pub(crate) fn cool_down(random: &Random) -> Self {
        Self(Form::Long(format!("{}{COOL_DOWN}", Self::fresh(random).as_str()).into_bytes().into()))
    }

    pub(crate) fn is_cool_down(&self) -> bool {
        self.secret().is_some() && self.bytes()[DIGITS..] == *COOL_DOWN.as_bytes()
    }

    /// Creates a value from bytes that the client read from a node or received from another client. Values with equal
    /// bytes are equal.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.try_into().map_or_else(|_| Form::Long(bytes.into()), Form::Plain))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Plain(digits) => digits,
            Form::Long(bytes) => bytes,
        }
    }

    /// Returns the value as text, or an empty string if the value is not UTF-8. Only other clients store values that
    /// are not UTF-8.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// Returns the digits of a lock's value, which must not appear in messages. Returns `None` for values of another
    /// format, because replacing an empty or short value would make messages unreadable.
    pub(crate) fn secret(&self) -> Option<&str> {
        let digits = self.as_str().get(..DIGITS)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(digits)
    }

    /// Returns the client whose lease has this value, or `None` for a value of another format.
    pub(crate) fn client(&self) -> Option<ClientId> {
        let bytes = Uuid::try_parse(self.secret()?).ok()?.into_bytes();
        bytes[CLIENT_BYTES].try_into().ok().map(|id| ClientId(u32::from_be_bytes(id)))
    }

    /// Returns true for the value of a lock's key while the lock has readers.
    pub(crate) fn is_readers(&self) -> bool {
        self.bytes() == READERS
    }

    /// Returns the time in milliseconds at the beginning of a [reservation](super::SharedKeys::reservation).
    pub(crate) fn reserved_ms(&self) -> Option<u64> {
        self.as_str().split(' ').next()?.parse().ok()
    }

    /// Returns a short prefix of the value for display. The prefix distinguishes values, but does not suffice to
    /// release the lock.
    pub(crate) fn hint(&self) -> String {
        let most = (self.bytes().len() / 4).min(6);
        String::from_utf8_lossy(&self.bytes()[..most]).into_owned()
    }

    /// Returns the holder's metadata, or `None` if the value contains none.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.parts()?.1
    }

    /// Returns the number of keys of the lease if the lease has more than one. Returns `None` otherwise.
    pub(crate) fn multi_key_count(&self) -> Option<usize> {
        match self.parts()?.0 {
            Holding::Keys(keys) => Some(keys).filter(|keys| *keys > 1),
            Holding::Permit { .. } => None,
        }
    }

    /// Returns the number of permits of the semaphore if the lease holds one of its permits.
    pub(crate) fn permits(&self) -> Option<usize> {
        match self.parts()?.0 {
            Holding::Permit { of } => Some(of),
            Holding::Keys(_) => None,
        }
    }

    fn parts(&self) -> Option<(Holding, Option<&str>)> {
        let (digits, rest) = self.bytes().split_at_checked(DIGITS)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let rest = std::str::from_utf8(rest).ok()?;
        let (mark, told) =
            rest.split_once(':').map_or((rest, None), |(mark, told)| (mark, Some(told)));
        if mark.is_empty() {
            return Some((Holding::Keys(1), told));
        }
        let (number, least) = match mark.strip_prefix('+') {
            Some(keys) => (keys, 2),
            None => (mark.strip_prefix('/')?, 1),
        };
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|number| is_number && *number >= least)?;
        let holding =
            if least == 2 { Holding::Keys(number) } else { Holding::Permit { of: number } };
        Some((holding, told))
    }
}

/// Shows only a prefix, because a client that knows the whole value can release the lock.
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
    fn fresh_values_are_unique_hex_and_hidden_in_debug() {
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
    fn metadata_and_key_count_round_trip() {
        for (keys, mark) in [(1, ""), (2, "+2"), (1_000, "+1000")] {
            for told in
                [None, Some(""), Some("worker-7"), Some("host:42"), Some("größe"), Some("+7")]
            {
                let value =
                    Value::of_lease(Random::Machine.uuid(), ClientId(7), Holding::Keys(keys), told);
                assert_eq!(
                    (value.metadata(), value.multi_key_count()),
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
    fn value_identifies_its_client() {
        for id in [0, 7, u32::MAX] {
            let value = |keys, metadata| {
                Value::of_lease(Random::Machine.uuid(), ClientId(id), Holding::Keys(keys), metadata)
            };
            for value in [value(1, None), value(3, None), value(1, Some("worker-7"))] {
                assert_eq!(value.client(), Some(ClientId(id)));
                assert_eq!(Uuid::try_parse(value.secret().unwrap()).unwrap().get_version_num(), 4);
            }
            assert_ne!(value(1, None).hint(), value(1, None).hint());
        }
        assert_eq!(Value::of(b"holder-7").client(), None);
    }

    #[test]
    fn values_with_equal_bytes_are_equal() {
        let made = Value::fresh(&Random::Machine);
        assert_eq!(Value::of(made.bytes()), made);
        let made = Value::of_lease(
            Random::Machine.uuid(),
            ClientId(7),
            Holding::Keys(1),
            Some("worker-7"),
        );
        assert_eq!(Value::of(made.bytes()), made);
    }

    #[test]
    fn cool_down_values_have_no_metadata() {
        let cooling = Value::cool_down(&Random::Machine);
        assert!(cooling.is_cool_down() && Value::of(cooling.bytes()).is_cool_down());
        assert_eq!((cooling.metadata(), cooling.multi_key_count()), (None, None));
        let holders = [None, Some("cool-down"), Some("+cool-down")];
        for metadata in holders {
            assert!(
                !Value::of_lease(Random::Machine.uuid(), ClientId(7), Holding::Keys(1), metadata)
                    .is_cool_down()
            );
        }
        assert!(!Value::of(b"+cool-down").is_cool_down());
    }

    #[test]
    fn foreign_values_have_no_secret() {
        for foreign in
            ["", "T", "holder-7", "0123456789abcdef", "not-hex-but-longer-than-32-letters"]
        {
            assert_eq!(Value::of(foreign.as_bytes()).secret(), None, "{foreign}");
        }
    }

    #[test]
    fn key_count_must_be_above_one() {
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
            assert_eq!((value.multi_key_count(), value.metadata()), (None, None), "{rest}");
        }
        let in_metadata = Value::of(format!("{digits}:+2").as_bytes());
        assert_eq!((in_metadata.multi_key_count(), in_metadata.metadata()), (None, Some("+2")));
        for no_digits in ["+2", "x+2", "0123+2", &"x".repeat(DIGITS), ""] {
            assert_eq!(Value::of(format!("{no_digits}+2").as_bytes()).multi_key_count(), None);
        }
    }

    #[test]
    fn foreign_values_have_no_metadata() {
        for others in
            [&b""[..], b"1", b"\xff\xfe", &[b'x'; 40], b"some-token-of-another-library:zz"]
        {
            let value = Value::of(others);
            assert_eq!((value.metadata(), value.multi_key_count()), (None, None));
            assert!(value.hint().chars().count() <= others.len() / 4);
        }
    }

    #[test]
    fn permits_are_told_from_keys_and_metadata() {
        for (permits, metadata) in [(1, None), (3, Some("worker-7")), (1_000, Some("/4"))] {
            let (uuid, holding) = (Random::Machine.uuid(), Holding::Permit { of: permits });
            let value = Value::of_lease(uuid, ClientId(7), holding, metadata);
            assert_eq!((value.permits(), value.metadata()), (Some(permits), metadata));
            assert_eq!((value.multi_key_count(), value.client()), (None, Some(ClientId(7))));
            assert!(value.bytes().len() < MAX_VALUE);
        }
        let digits = Value::fresh(&Random::Machine);
        for rest in ["", "/0", "/", "/x", "/-1", "+3", ":/3"] {
            let value = Value::of(format!("{}{rest}", digits.as_str()).as_bytes());
            assert_eq!(value.permits(), None, "{rest}");
        }
    }
}
