//! Printing: results on stdout, messages on stderr. Colour only on a terminal, and not with `NO_COLOR`.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write as _};

/// Headings in the help, in the style of clap's own headings.
pub(crate) const HEADER: Style = Style::new().bold().underline();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Prints a line on stdout and flushes it, so that a reader of a pipe gets it at once.
pub(crate) fn print_line(text: impl Display) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints `value` as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_line(serde_json::to_string(value)?)
}

/// Prints an error, a warning or a progress message on stderr.
pub(crate) fn print_message(message: impl Display) {
    // If stderr is closed, only the exit code reports the error.
    let _ = writeln!(anstream::stderr().lock(), "{BAD}quorlock:{BAD:#} {message}");
}

pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
