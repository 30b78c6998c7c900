//! Resource names, which can contain any bytes.

use crate::exit::Failure;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// Returns the bytes of a resource name.
///
/// # Errors
/// Fails if the name is empty, usually because a script uses an unset variable.
pub(crate) fn bytes(name: &OsStr) -> Result<&[u8], Failure> {
    if name.is_empty() {
        let message = "the resource name is empty: check that its shell variable is set";
        return Err(Failure::usage(message));
    }
    raw(name)
}

pub(crate) fn all_bytes(names: &[OsString]) -> Result<Vec<&[u8]>, Failure> {
    names.iter().map(|name| bytes(name)).collect()
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "on other systems a name can be invalid")]
fn raw(name: &OsStr) -> Result<&[u8], Failure> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(name))
}

#[cfg(not(unix))]
fn raw(name: &OsStr) -> Result<&[u8], Failure> {
    let text = name.to_str().map(str::as_bytes);
    text.ok_or_else(|| Failure::usage("the resource name is not valid UTF-8"))
}

/// Formats a name for messages and JSON. Escapes backslashes, control characters and bytes that are not UTF-8.
pub(crate) fn display_name(name: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => shown.push_str("\\\\"),
                control if control.is_control() => shown.extend(control.escape_default()),
                plain => shown.push(plain),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

pub(crate) fn display_names(names: &[&[u8]]) -> String {
    names.iter().map(|name| display_name(name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_name_is_unique_and_has_one_line() {
        for (name, text) in [
            (&b"orders/42"[..], "orders/42"),
            ("größe".as_bytes(), "größe"),
            (b"a\nb\x1b[0m", "a\\nb\\u{1b}[0m"),
            (b"\xff", "\\xff"),
            (b"\\xff", "\\\\xff"),
        ] {
            assert_eq!(display_name(name), text);
        }
    }

    #[test]
    fn empty_name_is_a_usage_error() {
        let failure = bytes(OsStr::new("")).expect_err("an error");
        assert_eq!(failure.code, crate::exit::Code::USAGE);
        assert_eq!(bytes(OsStr::new("a")).expect("a valid name"), b"a");
    }
}
