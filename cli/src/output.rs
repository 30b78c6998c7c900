//! Prints results on stdout and messages on stderr. Uses colours only on a terminal, and never if `NO_COLOR` is set.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write as _};

/// The style of headings in the help, the same as clap's own.
pub(crate) const HEADER: Style = Style::new().bold().underline();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Prints a line and flushes stdout, so that a program that reads from a pipe receives the line immediately.
pub(crate) fn print_line(text: impl Display) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_line(serde_json::to_string(value)?)
}

pub(crate) fn print_message(message: impl Display) {
    // If stderr is closed, only the exit code reports the error.
    let _ = writeln!(anstream::stderr().lock(), "{BAD}quorlock:{BAD:#} {message}");
}

pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
