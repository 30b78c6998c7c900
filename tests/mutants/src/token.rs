//! Splits Rust and Lua code into tokens, without comments and white space.

use proc_macro2::{Span, TokenStream, TokenTree};
use std::ops::Range;
use std::path::Path;

/// The language of a text.
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

/// Returns the places of the tokens of `text`, in order.
///
/// # Errors
/// Returns an error if `text` is Rust code with unbalanced brackets or an incomplete literal.
pub fn tokens(text: &str, language: Language) -> Result<Vec<Range<usize>>, String> {
    if language == Language::Lua {
        return Ok(lua(text));
    }
    let stream = text.parse::<TokenStream>();
    let stream = stream.map_err(|_| format!("`{}` is incomplete Rust code", text.trim()))?;
    let mut found = Vec::new();
    flatten(stream, &mut found);
    Ok(found)
}

fn flatten(stream: TokenStream, found: &mut Vec<Range<usize>>) {
    for tree in stream {
        if let TokenTree::Group(group) = tree {
            found.push(group.span_open().byte_range());
            flatten(group.stream(), found);
            found.push(group.span_close().byte_range());
        } else {
            found.push(Span::byte_range(&tree.span()));
        }
    }
}

/// Returns each word and each other character as one token. So a string is several tokens, and must not contain `--`.
fn lua(text: &str) -> Vec<Range<usize>> {
    let in_word = |character: char| character.is_alphanumeric() || character == '_';
    let (mut found, mut start) = (Vec::new(), 0);
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let length = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if in_word(first) {
            rest.find(|character| !in_word(character)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() && !rest.starts_with("--") {
            found.push(start..start + length);
        }
        start += length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, language: Language) -> Vec<&str> {
        let tokens = tokens(text, language).expect("complete code");
        tokens.into_iter().map(|token| &text[token]).collect()
    }

    #[test]
    fn comments_are_left_out() {
        let rust = r#"a /* b /* c */ d */ >= "e // ü" // f
            ..x::<Vec<u8>>()"#;
        let expected = r#"a > = "e // ü" . . x : : < Vec < u8 > > ( )"#;
        let tokens = texts(rust, Language::Rust);
        assert_eq!(tokens.join(" "), expected);
        assert!(tokens.contains(&r#""e // ü""#));
        assert_eq!(texts("a_1 ~= 'b' -- c\n.. 2", Language::Lua).join(" "), "a_1 ~ = ' b ' . . 2");
    }

    #[test]
    fn incomplete_rust_code_is_refused() {
        let error = tokens("if a {\n", Language::Rust);
        assert_eq!(error, Err("`if a {` is incomplete Rust code".to_owned()));
    }
}
