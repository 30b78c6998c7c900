//! Exit codes, the failures that carry them, and the examples and exit codes in the help.

use crate::output;
use crate::settings::{self, AvailableOptions};
use clap::builder::StyledStr;
use quorlock::{AcquireError, ClientError, ConfigError, ReleaseError};
use std::fmt::{Display, Write as _};
use std::io;
use std::process::ExitCode;

/// An exit code of `quorlock`. `run` and `lead` also exit with the code of the command that they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    /// Success. For `status`: the lock is free.
    pub(crate) const OK: Self = Self(0);
    /// Another client holds the lock, `check` or `torture` has findings, or `release` found no such lock.
    pub(crate) const NEGATIVE_RESULT: Self = Self(1);
    /// An invalid option, variable, settings file or name.
    pub(crate) const USAGE: Self = Self(2);
    /// Too few nodes reply, or too many are excluded. The value is `EX_UNAVAILABLE` of `sysexits.h`.
    pub(crate) const NO_QUORUM: Self = Self(69);
    /// The lock was lost, or `--max-hold` was reached. timeout(1) uses the same code.
    pub(crate) const LOST: Self = Self(124);
    pub(crate) const FAILED: Self = Self(125);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// The reader of stdout closed the pipe. The code is the same as for a process that SIGPIPE killed.
    pub(crate) const BROKEN_PIPE: Self = Self::of_signal(13);

    /// Returns the code that shells report for a process killed by `signal`.
    pub(crate) const fn of_signal(signal: u8) -> Self {
        Self(signal.saturating_add(128))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

/// An error that ends the command. An empty message is not printed.
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

    /// Prefixes the message with the escaped `names` of the resources, unless the failure is a usage error.
    pub(crate) fn about(mut self, names: impl Display) -> Self {
        if self.code != Code::USAGE {
            self.message = format!("{names}: {}", self.message);
        }
        self
    }

    pub(crate) fn print(&self) -> ExitCode {
        if !self.message.is_empty() {
            output::print_message(&self.message);
        }
        self.code.into()
    }

    /// Creates the failure for an invalid setting. If a setting is among `options`, the message names its option.
    pub(crate) fn setting(error: &ConfigError, options: AvailableOptions) -> Self {
        Self::usage(settings::message(error, options))
    }

    /// Creates the failure for a failed acquire. If a setting is among `options`, the message names its option.
    pub(crate) fn acquire(error: &AcquireError, options: AvailableOptions) -> Self {
        let code = match error {
            AcquireError::Invalid(error) => return Self::setting(error, options),
            AcquireError::Contended { .. } | AcquireError::NotHeld { .. } => Code::NEGATIVE_RESULT,
            outage if outage.is_unavailable() => Code::NO_QUORUM,
            _ => Code::FAILED,
        };
        Self::new(code, acquire_message(error, options))
    }
}

/// Adds advice for users of the command to the library's message.
fn acquire_message(error: &AcquireError, options: AvailableOptions) -> String {
    let ttl = settings::named("ttl", options);
    match error {
        AcquireError::Expired { report } => format!(
            "a majority granted the lock only after its validity had expired; increase {ttl}, or check the nodes and \
             the network: {report}"
        ),
        AcquireError::NotPolled { report } => format!(
            "the lock was released, because this process was suspended or too busy for 2 s, or until the validity had \
             expired; retry, or increase {ttl}: {report}"
        ),
        AcquireError::Timeout { report } => {
            let report = report.as_ref().map_or_else(String::new, |report| format!(": {report}"));
            let wait = settings::named("wait", options);
            format!("the wait ended before an attempt completed; increase {wait}{report}")
        }
        other => other.to_string(),
    }
}

/// The conversion is correct only if the request had no settings except names of resources.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Invalid(error) => Self::setting(&error, AvailableOptions::Nodes),
            other => Self::new(Code::FAILED, other.to_string()),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        let code = match &error {
            ReleaseError::Invalid(error) => return Self::setting(error, AvailableOptions::Nodes),
            ReleaseError::NoQuorum { .. } => Code::NO_QUORUM,
            _ => Code::FAILED,
        };
        Self::new(code, error.to_string())
    }
}

/// The conversion is meant for errors in printing results, such as a closed pipe.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Code::BROKEN_PIPE, "");
        }
        Self::new(Code::FAILED, format!("cannot write the output: {error}"))
    }
}

pub(crate) type Row = (&'static str, &'static str);

pub(crate) const COMMON_CODES: [Row; 2] = [
    ("2", "usage error: invalid option, variable, settings file or name"),
    ("125", "quorlock itself failed"),
];

pub(crate) fn overview() -> StyledStr {
    help(
        &[
            ("quorlock run backup -- pg_dump shop", "Run pg_dump on one host at a time"),
            ("quorlock status backup", "Show the holder of the lock"),
            ("quorlock check", "Check the configuration of the nodes"),
            ("quorlock torture --for 30s", "Test locking on your nodes under load"),
        ],
        &[
            ("0", "success; status: free; check, torture: no findings"),
            ("1", "held by another client; check, torture: findings; release: no such lock"),
            ("69", "no quorum: too few nodes reply, or too many are excluded (restart, flush)"),
            (
                "124",
                "run, hold: the lock was lost, or --max-hold was reached; run has terminated CMD",
            ),
            ("126, 127", "run, lead: CMD cannot be executed (126) or was not found (127)"),
            (
                "128+N",
                "signal N killed CMD, or ended the wait for the lock; torture: ended by signal N",
            ),
            ("otherwise", "run, lead: exit code of CMD"),
        ],
    )
}

/// Builds the text below the options in the help: the examples, then `codes` and the common exit codes, sorted.
pub(crate) fn help(examples: &[Row], codes: &[Row]) -> StyledStr {
    let mut text = StyledStr::new();
    // Writing to a StyledStr cannot fail.
    let _ = write_examples(&mut text, examples);
    let mut codes: Vec<Row> = codes.iter().chain(&COMMON_CODES).copied().collect();
    codes.sort_by_key(|(code, _)| number(code));
    let _ = text.write_str("\n").and_then(|()| write_codes(&mut text, &codes));
    text
}

/// Returns the number at the start of an exit code in the help. Codes without a number are sorted last.
fn number(code: &str) -> u8 {
    let end = code.find(|it: char| !it.is_ascii_digit()).unwrap_or(code.len());
    code[..end].parse().unwrap_or(u8::MAX)
}

/// Writes each example on two lines: the explanation, then the command. One line would exceed the width of a terminal.
fn write_examples(text: &mut StyledStr, examples: &[Row]) -> std::fmt::Result {
    let head = output::HEADER;
    write!(text, "{head}Examples:{head:#}")?;
    for (place, (command, explanation)) in examples.iter().enumerate() {
        let gap = if place == 0 { "" } else { "\n" };
        write!(text, "{gap}\n  # {explanation}\n  {command}")?;
    }
    text.write_str("\n")
}

fn write_codes(text: &mut StyledStr, codes: &[Row]) -> std::fmt::Result {
    let head = output::HEADER;
    let width = codes.iter().map(|(code, _)| code.len()).max().unwrap_or_default();
    write!(text, "{head}Exit codes:{head:#}")?;
    codes.iter().try_for_each(|(code, meaning)| write!(text, "\n  {code:width$}  {meaning}"))?;
    text.write_str("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_names_the_wait_option_of_the_verb() {
        let timeout = AcquireError::Timeout { report: None };
        for (options, name) in [
            (AvailableOptions::Lock, "--wait (QUORLOCK_WAIT)"),
            (AvailableOptions::Nodes, "QUORLOCK_WAIT"),
        ] {
            let failure = Failure::acquire(&timeout, options);
            assert_eq!(failure.code, Code::NO_QUORUM);
            let message = format!("the wait ended before an attempt completed; increase {name}");
            assert_eq!(failure.message, message);
        }
    }
}
