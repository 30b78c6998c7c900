//! The parsed Rust files of this package.

use proc_macro2::TokenStream;
use quote::ToTokens;
use std::fs;
use std::path::{Path, PathBuf};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;

pub(crate) struct Source {
    /// The path relative to the root of the package.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) file: syn::File,
}

impl Source {
    fn new(path: PathBuf, text: String) -> Self {
        let file = parse(&path, &text);
        Self { path, text, file }
    }

    pub(crate) fn module(&self) -> String {
        let mut parts = self.path.iter().skip_while(|part| *part != "src").skip(1);
        let first = parts.next().and_then(|part| part.to_str()).expect("a name");
        first.trim_end_matches(".rs").to_owned()
    }

    pub(crate) fn is_test_file(&self) -> bool {
        self.path.to_string_lossy().ends_with("_tests.rs")
    }

    pub(crate) fn production(&self) -> syn::File {
        production(&self.path, &self.text)
    }
}

fn parse(path: &Path, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn sources(dir: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut dirs = vec![root.join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                dirs.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                let path = path.strip_prefix(root).expect("a path below the root").to_owned();
                found.push(Source::new(path, text));
            }
        }
    }
    assert!(!found.is_empty() || dir != "src", "src has no Rust files");
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

pub(crate) fn all_sources() -> impl Iterator<Item = Source> {
    ["src", "cli", "testing", "tests", "benches", "examples"].into_iter().flat_map(sources)
}

pub(crate) fn production(path: &Path, text: &str) -> syn::File {
    let mut file = parse(path, text);
    remove_tests(&mut file.items);
    file
}

fn remove_tests(items: &mut Vec<syn::Item>) {
    items.retain(|item| !is_test_only(item));
    for item in items {
        match item {
            syn::Item::Mod(syn::ItemMod { content: Some((_, items)), .. }) => remove_tests(items),
            syn::Item::Impl(block) => block.items.retain(|item| !is_test_only(item)),
            _ => {}
        }
    }
}

/// Returns true if `item` is only compiled for tests or documentation: `#[cfg(test)]`, `#[cfg(all(test, unix))]` or
/// `#[cfg(doc)]`.
fn is_test_only(item: &impl ToTokens) -> bool {
    let attributes = |input: ParseStream<'_>| {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    let attributes = attributes.parse2(item.to_token_stream()).expect("an item");
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args().is_ok_and(|predicate: syn::Meta| requires_test(&predicate))
    })
}

fn requires_test(predicate: &syn::Meta) -> bool {
    let syn::Meta::List(list) = predicate else {
        return predicate.path().is_ident("test") || predicate.path().is_ident("doc");
    };
    let parts = Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
    let parts = list.parse_args_with(parts).expect("a list of predicates");
    if list.path.is_ident("all") {
        parts.iter().any(requires_test)
    } else {
        list.path.is_ident("any") && parts.iter().all(requires_test)
    }
}
