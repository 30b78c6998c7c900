//! Names of resources, which are bytes.

use crate::exit::Failure;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// The bytes of a name that was given: on Unix as they are.
///
/// # Errors
/// An empty name is refused: a variable that is not set makes one in scripts.
pub(crate) fn bytes(name: &OsStr) -> Result<&[u8], Failure> {
    if name.is_empty() {
        let told = "the name of a resource is empty: is a variable not set that should have it?";
        return Err(Failure::usage(told));
    }
    raw(name)
}

/// The bytes of each of them.
pub(crate) fn all_bytes(names: &[OsString]) -> Result<Vec<&[u8]>, Failure> {
    names.iter().map(|name| bytes(name)).collect()
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere not every name has bytes")]
fn raw(name: &OsStr) -> Result<&[u8], Failure> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(name))
}

#[cfg(not(unix))]
fn raw(name: &OsStr) -> Result<&[u8], Failure> {
    let text = name.to_str().map(str::as_bytes);
    text.ok_or_else(|| Failure::usage("the name of a resource is no UTF-8"))
}

/// A name for people and for JSON: what is no UTF-8 is escaped, and so are control characters.
pub(crate) fn shown(name: &[u8]) -> String {
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
            // Writing to text cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_on_one_line_and_no_two_alike() {
        for (name, text) in [
            (&b"orders/42"[..], "orders/42"),
            ("größe".as_bytes(), "größe"),
            (b"a\nb\x1b[0m", "a\\nb\\u{1b}[0m"),
            (b"\xff", "\\xff"),
            (b"\\xff", "\\\\xff"),
        ] {
            assert_eq!(shown(name), text);
        }
    }

    #[test]
    fn an_empty_name_is_a_usage_error() {
        let failure = bytes(OsStr::new("")).expect_err("it is refused");
        assert_eq!(failure.code, crate::exit::Code::USAGE);
        assert_eq!(bytes(OsStr::new("a")).expect("it is taken"), b"a");
    }
}
