//! Fencing tokens as users see them.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A number that grows with every holder of a resource: a resource that remembers the highest token
/// it has seen can refuse a holder whose lease has ended without its noticing.
///
/// Hand it to what the lock protects with every write, and accept there what is **not lower than the
/// highest seen**: a holder may write more than once. It prints in decimal digits and is read from
/// them; it is always below 2<sup>53</sup>, so that JSON and Lua can carry it. Tokens of different
/// resources say nothing about each other.
///
/// See [`Acquire::fenced`](crate::Acquire::fenced).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        }
        assert!(FencingToken::new(9) < FencingToken::new(10));
        for text in ["", "+1", "-1", " 1", "1e3", "0x1", "18446744073709551616"] {
            let error = text.parse::<FencingToken>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
