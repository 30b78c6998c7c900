//! Fencing tokens.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Fencing token of a lease: a number that increases with every holder of a resource. A resource that remembers the
/// highest token it has received can reject a former holder that has not yet noticed the end of its lease.
///
/// Send the token with every write to the protected resource. The resource must accept tokens that are **not lower than
/// the highest token it has received**, because a holder may write more than once. Tokens of different resources are
/// unrelated.
///
/// Tokens are displayed and parsed as decimal numbers. The nodes return only numbers below 2<sup>53</sup>, which JSON,
/// Lua and `bigint` columns represent exactly.
///
/// Tokens convert from and into `u64`. For databases with signed integers, such as `bigint` of `PostgreSQL`, they also
/// convert from and into `i64`. The token of every lease fits into an `i64`; a token created with [`new`](Self::new)
/// might not fit.
///
/// ```
/// use quorlock::FencingToken;
///
/// let token = FencingToken::new(1_700_000_000_000_000);
/// let column = i64::try_from(token)?; // for a bigint column
/// assert_eq!(FencingToken::try_from(column)?, token);
/// # Ok::<(), quorlock::TokenRangeError>(())
/// ```
///
/// With the feature `serde`, a token is serialized as a number.
///
/// See [`Acquire::fenced`](crate::Acquire::fenced).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct FencingToken(u64);

impl FencingToken {
    /// Creates a token from a number, for example from a database column.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the token as a number.
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

/// Error returned if a number is not a valid fencing token, or if a token does not fit into an `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenRangeError {
    /// The number is negative, but fencing tokens are never negative.
    #[error(
        "invalid fencing token {number}: tokens are never negative; check where it was stored or sent"
    )]
    Negative {
        /// The number that could not be converted into a token.
        number: i64,
    },
    /// The token does not fit into an `i64`. Tokens of leases always fit, because they are below 2<sup>53</sup>.
    #[error("fencing token {number} does not fit into an i64: tokens of leases are below 2^53")]
    AboveMax {
        /// The number of the token.
        number: u64,
    },
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error returned if a string is not a fencing token. A token consists of decimal digits only and fits into a `u64`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid fencing token {text:?}: must be decimal digits")]
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
    fn token_display_parse_and_order() {
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
    fn token_is_serialized_as_number() {
        let token = FencingToken::new(1_700_000_000_000_000);
        let text = serde_json::to_string(&token).expect("serializable");
        assert_eq!(text, "1700000000000000");
        assert_eq!(serde_json::from_str::<FencingToken>(&text).expect("deserializable"), token);
        for bad in ["-1", "1.5", "\"7\"", "null"] {
            assert!(serde_json::from_str::<FencingToken>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_converts_to_and_from_i64() {
        for number in [0, 1, 9_007_199_254_740_991, i64::MAX] {
            let token = FencingToken::try_from(number).expect("not negative");
            assert_eq!(u64::try_from(number), Ok(token.get()));
            assert_eq!(i64::try_from(token), Ok(number));
        }
        for number in [-1, i64::MIN] {
            let error = FencingToken::try_from(number).expect_err("negative");
            assert_eq!(error, TokenRangeError::Negative { number });
            assert!(error.to_string().contains(&format!(" {number}")), "{error}");
        }
        for number in [1 << 63, u64::MAX] {
            let error = i64::try_from(FencingToken::new(number)).expect_err("too high");
            assert_eq!(error, TokenRangeError::AboveMax { number });
            assert!(error.to_string().contains(&format!(" {number}")), "{error}");
        }
    }
}
