//! Set-up commands in parts, which may be optional.

use super::requests::Requests;
use redis::{RedisError, Value};
use std::fmt;
use std::slice::Chunks;

/// A kind of command that a server may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optional {
    SetName,
    SetInfo,
    ClientId,
    Info,
    Config,
    ScriptLoad,
    Tracking,
}

/// Set of [`Optional`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Optionals(u8);

/// Consecutive commands of one optional kind, or required ones.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) optional: Option<Optional>,
    pub(crate) requests: Requests,
}

/// All commands of a greeting or a set-up, in order.
#[derive(Debug, Default)]
pub(crate) struct SetUpParts(Vec<Part>);

/// Error code of [`omitted_reply`]. No server sends it.
pub(super) const OMITTED: &str = "OMITTED";

/// Replaces the reply to a command that was not sent.
pub(crate) fn omitted_reply() -> Result<Value, RedisError> {
    redis::parse_redis_value(format!("-{OMITTED} no reply to an earlier attempt\r\n").as_bytes())
}

impl Optionals {
    pub(crate) fn contains(self, optional: Optional) -> bool {
        self.0 & bit(optional) != 0
    }

    pub(crate) fn with(self, optional: Optional) -> Self {
        Self(self.0 | bit(optional))
    }
}

fn bit(optional: Optional) -> u8 {
    1 << optional as u8
}

impl SetUpParts {
    /// Starts a part that the server must accept.
    pub(super) fn required(&mut self) -> &mut Requests {
        self.part(None)
    }

    /// Starts a part that the server may refuse.
    pub(super) fn optional(&mut self, optional: Optional) -> &mut Requests {
        self.part(Some(optional))
    }

    fn part(&mut self, optional: Option<Optional>) -> &mut Requests {
        let index = self.0.len();
        self.0.push(Part { optional, requests: Requests::default() });
        &mut self.0[index].requests
    }

    /// Number of commands.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|part| part.requests.len()).sum()
    }

    /// The parts, grouped by exchange: one part each, or all in one.
    pub(crate) fn exchanges(&self, one_by_one: bool) -> Chunks<'_, Part> {
        self.0.chunks(if one_by_one { 1 } else { self.0.len().max(1) })
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> Requests {
        let mut all = Requests::default();
        self.0.iter().for_each(|part| all.append(&part.requests));
        all
    }
}

impl fmt::Display for Optional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetName => "CLIENT SETNAME",
            Self::SetInfo => "CLIENT SETINFO",
            Self::ClientId => "CLIENT ID",
            Self::Info => "INFO",
            Self::Config => "CONFIG GET",
            Self::ScriptLoad => "SCRIPT LOAD",
            Self::Tracking => "CLIENT TRACKING",
        })
    }
}
