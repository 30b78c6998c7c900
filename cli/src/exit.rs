//! How the command ends: its exit codes, and the tables of them that the help shows.

use crate::{output, settings};
use clap::builder::StyledStr;
use quorlock::{AcquireError, ClientError, ConfigError, ReleaseError};
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

/// With what the command ends. A child's own code is passed on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    /// All went well; `status`: nobody holds it.
    pub(crate) const OK: Self = Self(0);
    /// Somebody else holds it; `check`: something was found; `release`: there was nothing to release.
    pub(crate) const NO: Self = Self(1);
    /// What was asked for cannot work: what the options, the variables or the file say.
    pub(crate) const USAGE: Self = Self(2);
    /// Too few nodes answer (`EX_UNAVAILABLE` of `sysexits.h`).
    pub(crate) const NO_QUORUM: Self = Self(69);
    /// The lock was lost, and what ran under it was ended: as timeout(1) says it.
    pub(crate) const LOST: Self = Self(124);
    /// The command itself failed.
    pub(crate) const FAILED: Self = Self(125);
    /// What was to be run cannot be executed.
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    /// What was to be run was not found.
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// Nobody reads what is printed, as if SIGPIPE had ended it.
    pub(crate) const BROKEN_PIPE: Self = Self::of_signal(13);

    /// What was run died of this signal.
    pub(crate) const fn of_signal(signal: u8) -> Self {
        Self(signal.saturating_add(128))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

/// Why a verb came to nothing: its exit code, and a sentence for people. An empty one is not told.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    /// Tells it on the standard error.
    pub(crate) fn tell(&self) -> ExitCode {
        if !self.message.is_empty() {
            output::complain(&self.message);
        }
        self.code.into()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(settings::message(&error))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Invalid(error) => error.into(),
            other => Self::new(Code::FAILED, other.to_string()),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            AcquireError::Invalid(error) => return error.clone().into(),
            AcquireError::Contended { .. } | AcquireError::NotHeld { .. } => Code::NO,
            outage if outage.is_unavailable() => Code::NO_QUORUM,
            _ => Code::FAILED,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        let code = match &error {
            ReleaseError::Invalid(error) => return error.clone().into(),
            ReleaseError::NoQuorum { .. } => Code::NO_QUORUM,
            _ => Code::FAILED,
        };
        Self::new(code, error.to_string())
    }
}

/// What was to be printed could not be.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Code::BROKEN_PIPE, "");
        }
        Self::new(Code::FAILED, format!("cannot print: {error}"))
    }
}

/// A line of a table: the code as it is shown, and what it means.
pub(crate) type Row = (&'static str, &'static str);

/// What every verb can end with.
pub(crate) const EVERY: [Row; 2] = [
    ("2", "usage: an option, a variable, the file or a name cannot work"),
    ("125", "quorlock itself failed"),
];

/// The table of all verbs.
pub(crate) fn all() -> StyledStr {
    help(
        &[
            ("quorlock run backup -- pg_dump shop", "one at a time, on whichever host"),
            ("quorlock status backup", "who holds it?"),
            ("quorlock check", "are the nodes fit for locks?"),
            ("quorlock torture --for 30s", "do they keep them?"),
        ],
        &[
            ("0", "done; status: free; check, torture: nothing found"),
            ("1", "held by another; check, torture: findings; release: nothing to release"),
            ("69", "no quorum: too few nodes answer, or count after a restart"),
            ("124", "run, hold: the lock was lost, and what ran under it was ended"),
            ("126, 127", "run, lead: CMD cannot be executed; was not found"),
            ("128+N", "run: CMD died of signal N; torture: ended by signal N"),
            ("CMD's own", "run: it ran under the lock to its end"),
        ],
    )
}

/// What stands below the options in a verb's help: examples, and the exit codes, with those of every verb.
pub(crate) fn help(examples: &[Row], codes: &[Row]) -> StyledStr {
    let mut text = StyledStr::new();
    // Writing to text cannot fail.
    let _ = section(&mut text, "Examples:", examples);
    let mut codes: Vec<Row> = codes.iter().chain(&EVERY).copied().collect();
    codes.sort_by_key(|(code, _)| number(code));
    let _ = text.write_str("\n").and_then(|()| section(&mut text, "Exit codes:", &codes));
    text
}

/// The number that a code begins with; what begins with none comes first.
fn number(code: &str) -> Option<u8> {
    let end = code.find(|it: char| !it.is_ascii_digit()).unwrap_or(code.len());
    code[..end].parse().ok()
}

fn section(text: &mut StyledStr, title: &str, rows: &[Row]) -> std::fmt::Result {
    let head = output::HEADER;
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or_default();
    write!(text, "{head}{title}{head:#}")?;
    rows.iter().try_for_each(|(left, right)| write!(text, "\n  {left:width$}  {right}"))?;
    text.write_str("\n")
}
