//! Finds the named items of a Rust file: functions, types, constants and modules.

use crate::token::Token;
use std::ops::Range;

/// A named item, including its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The path of the item, such as `Waiting::handle_refusal`. An `impl` block has the name of its type.
    pub(crate) path: String,
    pub(crate) token_range: Range<usize>,
}

const KINDS: [&str; 9] =
    ["fn", "mod", "trait", "struct", "enum", "union", "static", "type", "macro_rules"];

/// Returns all items of a file except items inside functions.
pub(crate) fn items(tokens: &[Token<'_>]) -> Vec<Item> {
    let mut found = Vec::new();
    scan(tokens, 0..tokens.len(), "", &mut found);
    found
}

fn scan(tokens: &[Token<'_>], token_range: Range<usize>, parent: &str, found: &mut Vec<Item>) {
    let mut begin = token_range.start;
    while begin < token_range.end {
        let (kind, name) = head(&tokens[begin..token_range.end]);
        let is_value = matches!(kind, "const" | "static" | "type" | "use");
        let (mut at, mut body) = (begin, None);
        let end = loop {
            let Some(token) = tokens[..token_range.end].get(at) else { break token_range.end };
            let after = if token.opens() { group_end(tokens, at) } else { at + 1 };
            if token.text == "{" && !is_value {
                body = Some(at + 1..after - 1);
            }
            if token.text == ";" || body.is_some() {
                break after;
            }
            at = after;
        };
        if let Some(name) = name {
            let path = if parent.is_empty() { name.into() } else { format!("{parent}::{name}") };
            if let (Some(body), "impl" | "mod" | "trait") = (body, kind) {
                scan(tokens, body, &path, found);
            }
            found.push(Item { path, token_range: begin..end });
        }
        begin = end;
    }
}

/// Returns the kind and the name of the item that begins with `tokens`. The name is `None` for an item without a name.
fn head<'a>(tokens: &[Token<'a>]) -> (&'a str, Option<&'a str>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let text_at = |at: usize| tokens.get(at).map(|token| token.text);
        match token.text {
            "const" if !matches!(text_at(at + 1), Some("fn" | "unsafe" | "async" | "extern")) => {
                return (token.text, text_at(at + 1));
            }
            "impl" => return (token.text, impl_type(&tokens[at + 1..])),
            "static" if text_at(at + 1) == Some("mut") => return (token.text, text_at(at + 2)),
            "macro_rules" => return (token.text, text_at(at + 2)),
            kind if KINDS.contains(&kind) => return (kind, text_at(at + 1)),
            "use" | "{" | ";" => return (token.text, None),
            _ => at = if token.opens() { group_end(tokens, at) } else { at + 1 },
        }
    }
    ("", None)
}

fn impl_type<'a>(header: &[Token<'a>]) -> Option<&'a str> {
    let (mut depth, mut name) = (0_usize, None);
    for token in header {
        match token.text {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            "where" | "{" => break,
            word if depth == 0 && word.starts_with(char::is_alphabetic) => name = Some(word),
            _ => {}
        }
    }
    name
}

/// Returns the index after the closing delimiter of the group that opens at `at`.
fn group_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        depth += usize::from(token.opens());
        depth -= usize::from(token.closes());
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{Language, tokens};

    const FILE: &str = "
        use a::{b, c};
        #[derive(Clone)]
        pub(crate) struct Two<T>(T, [u8; 2]);
        const ONE: Two<u8> = { Two(1, [0; 2]) };
        impl<T: Fn(u8) -> u8> fmt::Display for Two<T> where T: Copy {
            const LIMIT: u8 = 1;
            #[inline]
            pub const fn get<'a>(&'a self) -> Option<&'a T> { if x { y } else { z } }
        }
        impl Two<Vec<u8>> { async fn get(self) {} }
        thread_local! { static X: u8 = 1; }
        mod tests { fn works() { fn inner() {} } }
    ";

    #[test]
    fn items_are_named_by_module_type_and_function() {
        let tokens = tokens(FILE, Language::Rust);
        let paths: Vec<_> = items(&tokens).into_iter().map(|item| item.path).collect();
        let expected = [
            "Two",
            "ONE",
            "Two::LIMIT",
            "Two::get",
            "Two",
            "Two::get",
            "Two",
            "tests::works",
            "tests",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn item_starts_with_its_attributes_and_ends_with_its_body() {
        let tokens = tokens(FILE, Language::Rust);
        let text = |item: &Item| {
            let texts = tokens[item.token_range.clone()].iter().map(|token| token.text);
            texts.collect::<Vec<_>>().join(" ")
        };
        let items = items(&tokens);
        assert_eq!(text(&items[1]), "const ONE : Two < u8 > = { Two ( 1 , [ 0 ; 2 ] ) } ;");
        assert!(text(&items[3]).starts_with("# [ inline ] pub const fn get"));
        assert!(text(&items[3]).ends_with("else { z } }"));
    }
}
