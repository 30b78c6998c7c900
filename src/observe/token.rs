//! Fencing tokens as users see them.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A number that grows with every holder of a resource: a resource that remembers the highest token
/// it has seen can refuse a holder whose lease has ended without its noticing.
///
/// Hand it to what the lock protects with every write, and accept there what is **not lower than the
/// highest seen**: a holder may write more than once. It prints in decimal digits and is read from
/// them. The nodes give numbers below 2<sup>53</sup> only, so that JSON, Lua and a `bigint` can carry
/// them. Tokens of different resources say nothing about each other.
///
/// It converts from and into `u64`. For databases whose widest integer has a sign, such as a `bigint`
/// of `PostgreSQL`, it converts into `i64` and back, if the number fits: that of every lease does, but not
/// each that [`new`](Self::new) takes.
///
/// ```
/// use quorlock::FencingToken;
///
/// let token = FencingToken::new(1_700_000_000_000_000);
/// let column = i64::try_from(token)?; // into a bigint
/// assert_eq!(FencingToken::try_from(column)?, token); // and back
/// # Ok::<(), quorlock::TokenRangeError>(())
/// ```
///
/// With the feature `serde` it is serialized as its number.
///
/// See [`Acquire::fenced`](crate::Acquire::fenced).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token of this number, as it was stored or sent.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<u64> for FencingToken {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = TokenRangeError;

    fn try_from(number: i64) -> Result<Self, TokenRangeError> {
        u64::try_from(number).map(Self).map_err(|_| TokenRangeError::Negative { number })
    }
}

impl TryFrom<FencingToken> for i64 {
    type Error = TokenRangeError;

    fn try_from(token: FencingToken) -> Result<Self, TokenRangeError> {
        Self::try_from(token.0).map_err(|_| TokenRangeError::AboveMax { number: token.0 })
    }
}

/// A number that cannot be converted into or from a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenRangeError {
    /// A negative number, where a token was to be read.
    #[error("{number} is no fencing token: one is 0 or more; look where it was stored or sent")]
    Negative {
        /// The number.
        number: i64,
    },
    /// A token that an `i64` cannot hold.
    #[error("{number} is no fencing token of a lease: those are below 2^53, and fit into an i64")]
    AboveMax {
        /// The token's number.
        number: u64,
    },
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no fencing token: one is written in decimal digits")]
pub struct ParseTokenError {
    text: String,
}

impl FromStr for FencingToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let number = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|digits| digits.parse().ok());
        number.map(Self).ok_or_else(|| ParseTokenError { text: text.chars().take(40).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_and_parses_and_is_ordered() {
        for number in [0, 1, 9_007_199_254_740_991, u64::MAX] {
            let token = FencingToken::new(number);
            assert_eq!(token.to_string().parse(), Ok(token));
            assert_eq!((token.get(), u64::from(token)), (number, number));
            assert_eq!(FencingToken::from(number), token);
        }
        assert!(FencingToken::new(9) < FencingToken::new(10));
        for text in ["", "+1", "-1", " 1", "1e3", "0x1", "18446744073709551616"] {
            let error = text.parse::<FencingToken>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn it_is_serialized_as_its_number() {
        let token = FencingToken::new(1_700_000_000_000_000);
        let text = serde_json::to_string(&token).expect("it can be written");
        assert_eq!(text, "1700000000000000");
        assert_eq!(serde_json::from_str::<FencingToken>(&text).expect("it was written"), token);
        for bad in ["-1", "1.5", "\"7\"", "null"] {
            assert!(serde_json::from_str::<FencingToken>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn it_goes_into_a_signed_number_and_back_and_what_does_not_fit_is_refused() {
        for number in [0, 1, 9_007_199_254_740_991, i64::MAX] {
            let token = FencingToken::try_from(number).expect("it is not negative");
            assert_eq!(u64::try_from(number), Ok(token.get()));
            assert_eq!(i64::try_from(token), Ok(number));
        }
        for number in [-1, i64::MIN] {
            let error = FencingToken::try_from(number).expect_err("negative");
            assert_eq!(error, TokenRangeError::Negative { number });
            assert!(error.to_string().starts_with(&number.to_string()), "{error}");
        }
        for number in [1 << 63, u64::MAX] {
            let error = i64::try_from(FencingToken::new(number)).expect_err("too high");
            assert_eq!(error, TokenRangeError::AboveMax { number });
            assert!(error.to_string().starts_with(&number.to_string()), "{error}");
        }
    }
}
