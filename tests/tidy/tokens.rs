//! Counts the library's code in tokens, as `proc_macro2` defines them.

use crate::imports::Modules;
use crate::sources::{production, sources};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The module that is only compiled with the feature `test-util`. The first total in the table does not include it.
const TEST_MODULE: &str = "test_util";

/// Returns the number of tokens in the code, without documentation. Each identifier, literal, punctuation character and
/// delimiter is one token.
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

/// Returns the tokens after a doc attribute, such as `#[doc = "text"]` or `#![doc = "text"]`. Returns `None` if
/// `tokens` do not begin with a doc attribute.
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

/// Returns the number of tokens of each top-level module in the directory `src`. Tests are not included.
fn counts(src: &str) -> BTreeMap<String, usize> {
    let sources = sources(src);
    let files = sources.iter().map(|source| (source.path.clone(), source.text.clone())).collect();
    let modules = Modules::new(src, &files);
    let mut counts = BTreeMap::new();
    for file in modules.files() {
        let source =
            sources.iter().find(|source| source.path == file).expect("a file of the crate");
        let tokens = production(&source.path, &source.text).into_token_stream();
        *counts.entry(source.module()).or_default() += count(tokens);
    }
    counts
}

#[test]
#[ignore = "prints a table: run scripts/tokens.sh"]
fn print_token_counts() {
    let mut library = counts("src");
    let test_module = library.remove(TEST_MODULE).expect("the module exists");
    let product: usize = library.values().sum();
    let test_crate: usize = counts("testing/src").values().sum();
    let mut modules: Vec<_> = library.into_iter().collect();
    modules.sort_by_key(|(_, count)| Reverse(*count));
    let row = |name: &str, count: &dyn std::fmt::Display| println!("| {name:<26} | {count:>7} |");
    row("module", &"tokens");
    println!("|{0:-<28}|{0:->9}|", "");
    for (module, count) in &modules {
        row(module, count);
    }
    row("total", &product);
    row(&format!("{TEST_MODULE} (test-util)"), &test_module);
    row("quorlock-test", &test_crate);
    row("total with quorlock-test", &(product + test_module + test_crate));
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
