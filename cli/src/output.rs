//! What is printed: results on the standard output, complaints on the standard error. Colour only on a
//! terminal, and not with `NO_COLOR`.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write as _};

/// Headings of the help, as clap has its own.
pub(crate) const HEADER: Style = Style::new().bold().underline();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// A line of the standard output, which is there at once, also in a pipe.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// The same as one line of JSON.
pub(crate) fn json(what: &impl Serialize) -> io::Result<()> {
    line(serde_json::to_string(what)?)
}

/// Says what is wrong, or what is waited for.
pub(crate) fn complain(message: impl Display) {
    // Where nobody can be told, the exit code has to do.
    let _ = writeln!(anstream::stderr().lock(), "{BAD}quorlock:{BAD:#} {message}");
}

/// `text` in a style, where colour is shown.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
