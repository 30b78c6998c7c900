//! Splits Rust and Lua code into tokens, without comments and white space.

use std::path::Path;

/// Operators of more than one character, longest first. `>>` is not among them, because two `>` tokens close nested
/// generics.
const OPERATORS: [&str; 22] = [
    "..=", "...", "<<=", "::", "->", "=>", "==", "!=", "~=", "<=", ">=", "&&", "||", "+=", "-=",
    "*=", "/=", "%=", "^=", "&=", "|=", "..",
];

/// The language of a text, which determines the syntax of comments and strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust, in `.rs` files.
    Rust,
    /// Lua, in `.lua` files.
    Lua,
}

impl Language {
    /// Returns the language of the file at `path`.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|ending| ending == "lua") { Self::Lua } else { Self::Rust }
    }
}

/// A lexical token of Rust or Lua code, with its position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The text of the token.
    pub text: &'a str,
    /// The byte offset of the token in the text.
    pub start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn opens(&self) -> bool {
        matches!(self.text, "(" | "[" | "{")
    }

    pub(crate) fn closes(&self) -> bool {
        matches!(self.text, ")" | "]" | "}")
    }
}

/// Returns the tokens of `text`, in order.
pub fn tokens(text: &str, language: Language) -> Vec<Token<'_>> {
    let (mut found, mut start) = (Vec::new(), 0);
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let (length, is_token) = if first.is_whitespace() {
            (first.len_utf8(), false)
        } else if let Some(length) = comment(rest, language) {
            (length, false)
        } else {
            (string(rest, language).unwrap_or_else(|| plain(rest, first)), true)
        };
        if is_token {
            found.push(Token { text: &rest[..length], start });
        }
        start += length;
    }
    found
}

/// Returns the length in bytes of the comment at the start of `rest`, if any.
fn comment(rest: &str, language: Language) -> Option<usize> {
    let line = if language == Language::Rust { "//" } else { "--" };
    if rest.starts_with(line) {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if language == Language::Lua || !rest.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

/// Returns the length in bytes of the string or character literal at the start of `rest`, if any.
fn string(rest: &str, language: Language) -> Option<usize> {
    if language == Language::Lua {
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
        return Some(quoted(rest, 1, quote));
    }
    let unprefixed = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - unprefixed.len();
    if prefix <= 2 && rest[..prefix].ends_with('r') {
        let hashes = unprefixed.len() - unprefixed.trim_start_matches('#').len();
        if unprefixed[hashes..].starts_with('"') {
            let (begin, end) = (prefix + hashes + 1, format!("\"{}", "#".repeat(hashes)));
            return Some(rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len()));
        }
    }
    if prefix <= 1 && unprefixed.starts_with('"') {
        return Some(quoted(rest, prefix + 1, '"'));
    }
    if prefix <= 1 && unprefixed.starts_with('\'') {
        let mut inside = unprefixed.chars().skip(1);
        let is_character = inside.next() == Some('\\') || inside.next() == Some('\'');
        return is_character.then(|| quoted(rest, prefix + 1, '\''));
    }
    None
}

/// Returns the offset in bytes after a quoted literal whose content begins at `begin`. A backslash escapes `quote`.
fn quoted(rest: &str, begin: usize, quote: char) -> usize {
    let mut inside = rest[begin..].char_indices();
    while let Some((at, character)) = inside.next() {
        if character == '\\' {
            inside.next();
        } else if character == quote {
            return begin + at + quote.len_utf8();
        }
    }
    rest.len()
}

/// Returns the length in bytes of the word, lifetime, number or operator at the start of `rest`.
fn plain(rest: &str, first: char) -> usize {
    let in_word = |character: char| character.is_alphanumeric() || character == '_';
    if in_word(first) || first == '\'' {
        let word = rest[first.len_utf8()..].find(|character| !in_word(character));
        return word.map_or(rest.len(), |at| first.len_utf8() + at);
    }
    let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
    operator.map_or(first.len_utf8(), |operator| operator.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, language: Language) -> Vec<&str> {
        tokens(text, language).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn rust_strings_characters_and_lifetimes_are_one_token_each() {
        let text = r##"f(b"a\"b", r#"c"d"#, 'x', '\'', '"', b'"', 'life)"##;
        let expected = r##"f ( b"a\"b" , r#"c"d"# , 'x' , '\'' , '"' , b'"' , 'life )"##;
        assert_eq!(texts(text, Language::Rust), expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn rust_comments_are_left_out_and_operators_kept_whole() {
        let text = "a /* b /* c */ d */ >= 1_0u8 // e\n..=x::<Vec<u8>>()";
        let expected = "a >= 1_0u8 ..= x :: < Vec < u8 > > ( )";
        assert_eq!(texts(text, Language::Rust), expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn lua_comments_are_left_out_and_strings_are_one_token_each() {
        let expected = ["a", "~=", "'it\\'s -- b'", "..", "\"c\"", "%", "1"];
        assert_eq!(texts("a ~= 'it\\'s -- b' -- c\n.. \"c\" % 1", Language::Lua), expected);
    }
}
