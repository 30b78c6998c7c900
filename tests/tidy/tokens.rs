//! The amount of code, in tokens of `proc_macro2`.

use crate::imports::Modules;
use crate::sources::{production, sources};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Modules that only tests use. They have a row each, and the first total does not include them.
const TEST_DOUBLES: [&str; 2] = ["server_model", "test_util"];

/// The number of tokens without documentation. Each identifier, literal, punctuation character and delimiter is one.
fn count(tokens: TokenStream) -> usize {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let (mut rest, mut total) = (&tokens[..], 0);
    while let [first, after @ ..] = rest {
        if let Some(after) = after_doc_attribute(rest) {
            rest = after;
            continue;
        }
        total += match first {
            TokenTree::Group(group) => 2 + count(group.stream()),
            TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => 1,
        };
        rest = after;
    }
    total
}

/// If `tokens` begin with a doc attribute, such as `#[doc = "text"]` or `#![doc = "text"]`, the tokens after it.
fn after_doc_attribute(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    let is = |token: &TokenTree, expected| matches!(token, TokenTree::Punct(mark) if mark.as_char() == expected);
    let after = match tokens {
        [hash, inner, after @ ..] if is(hash, '#') && is(inner, '!') => after,
        [hash, after @ ..] if is(hash, '#') => after,
        _ => return None,
    };
    let [TokenTree::Group(group), after @ ..] = after else { return None };
    let name = group.stream().into_iter().next();
    matches!(name, Some(TokenTree::Ident(name)) if name == "doc").then_some(after)
}

/// The number of tokens of each top-level module in `src`, without tests.
fn counts() -> BTreeMap<String, usize> {
    let sources = sources("src");
    let files = sources.iter().map(|source| (source.path.clone(), source.text.clone())).collect();
    let modules = Modules::new(&files);
    let mut counts = BTreeMap::new();
    for file in modules.files() {
        let source = sources.iter().find(|source| source.path == file).expect("a file of src");
        let tokens = production(&source.path, &source.text).into_token_stream();
        *counts.entry(source.module()).or_default() += count(tokens);
    }
    counts
}

#[test]
#[ignore = "prints a table: run scripts/tokens.sh"]
fn print_token_counts() {
    let is_double = |(module, _): &(String, usize)| TEST_DOUBLES.contains(&&**module);
    let mut counts: Vec<_> = counts().into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let (doubles, modules): (Vec<_>, Vec<_>) = counts.into_iter().partition(is_double);
    let total = |counts: &[(String, usize)]| counts.iter().map(|(_, count)| count).sum::<usize>();
    let (product, all) = (total(&modules), total(&modules) + total(&doubles));
    let row = |name: &str, count: &dyn std::fmt::Display| println!("| {name:<26} | {count:>7} |");
    row("module", &"tokens");
    println!("|{0:-<28}|{0:->9}|", "");
    for (module, count) in &modules {
        row(module, count);
    }
    row("total", &product);
    for (module, count) in &doubles {
        row(&format!("{module} (test double)"), count);
    }
    row("total with test doubles", &all);
}

#[test]
fn documentation_and_tests_are_not_counted() {
    let bare = "fn f(a: &u8) -> u8 { *a }";
    let text =
        "//! Page.\n/// Doc.\n#[doc(hidden)]\nfn f(a: &u8) -> u8 {\n    // Comment.\n    *a\n}\n
        #[cfg(test)]\nmod tests { fn g() {} }\n";
    for text in [bare, text] {
        let file = production("text.rs".as_ref(), text);
        assert_eq!(count(file.into_token_stream()), 15, "{text}");
    }
}
