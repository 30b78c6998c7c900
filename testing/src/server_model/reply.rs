//! Replies and pushes, encoded in RESP2 or RESP3.

use std::borrow::Cow;
use std::fmt::Display;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(Cow<'static, str>),
    /// An error, without the leading `-`.
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// A map in RESP3, and an array of alternating names and values in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// A whole number as a double in RESP3, and as a bulk string in RESP2.
    Score(i64),
    /// An array of pairs in RESP3, and an array of alternating names and values in RESP2.
    Pairs(Vec<(Reply, Reply)>),
    /// A verbatim string in RESP3, and a bulk string in RESP2.
    Text(String),
}

impl Reply {
    pub(crate) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(crate) fn write(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Int(number) => line(out, ':', number),
            Self::Bulk(bytes) => bulk(out, '$', &[bytes]),
            Self::Null => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Array(parts) => {
                line(out, '*', parts.len());
                for part in parts {
                    part.write(resp3, out);
                }
            }
            Self::Score(score) if resp3 => line(out, ',', score),
            Self::Score(score) => bulk(out, '$', &[score.to_string().as_bytes()]),
            Self::Map(pairs) | Self::Pairs(pairs) => {
                let is_nested = resp3 && matches!(self, Self::Pairs(_));
                match self {
                    Self::Map(_) if resp3 => line(out, '%', pairs.len()),
                    _ if resp3 => line(out, '*', pairs.len()),
                    _ => line(out, '*', 2 * pairs.len()),
                }
                for (name, value) in pairs {
                    if is_nested {
                        line(out, '*', 2);
                    }
                    name.write(resp3, out);
                    value.write(resp3, out);
                }
            }
            Self::Text(text) if resp3 => bulk(out, '=', &[b"txt:", text.as_bytes()]),
            Self::Text(text) => bulk(out, '$', &[text.as_bytes()]),
        }
    }
}

/// Encodes the push that invalidates `key`, or all keys if `key` is `None`.
pub(crate) fn invalidation(key: Option<&[u8]>) -> Vec<u8> {
    let mut out = b">2\r\n".to_vec();
    Reply::text("invalidate").write(true, &mut out);
    let keys = key.map_or(Reply::Null, |key| Reply::Array(vec![Reply::text(key)]));
    keys.write(true, &mut out);
    out
}

fn line(out: &mut Vec<u8>, mark: char, content: impl Display) {
    out.extend(format!("{mark}{content}\r\n").into_bytes());
}

fn bulk(out: &mut Vec<u8>, mark: char, parts: &[&[u8]]) {
    line(out, mark, parts.iter().map(|part| part.len()).sum::<usize>());
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}
