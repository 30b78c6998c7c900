//! Checks the top-level modules of the crate: their layers, their descriptions, and the crate root.

use crate::sources::sources;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::fs;
use std::path::Path;
use syn::spanned::Spanned;

const MAX_FILES_AT_ROOT: usize = 8;
const MIN_DESCRIPTION_LINES: usize = 3;

/// The top-level modules, lowest layer first. A module may only import from modules that precede it in this list.
const LAYERS: [&str; 16] = [
    "sync",
    "protocol",
    "random",
    "time",
    "wire",
    "observe",
    "transport",
    "coordinator",
    "node",
    "error",
    "check",
    "engine",
    "lease",
    "client",
    "blocking",
    "test_util",
];

const TEST_LAYERS: [&str; 3] = ["server_model", "stream", "nodes"];

/// The files in `src` that belong to no layer: the crate root and the guides.
const OUTSIDE_LAYERS: [&str; 2] = ["lib", "_docs"];

/// The only modules that may import public items from the crate root, because they are above all other modules.
const TOP_LAYERS: [&str; 2] = ["blocking", "test_util"];

/// Finds imports from the crate root, such as `crate::node` and `crate::{node, wire}`. Appends the imported names, with
/// their lines, to `found`.
fn imports(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    let mut path = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) if path == ["crate", ":", ":"] => {
                found.push((name.to_string(), name.span().start().line));
                path.clear();
            }
            TokenTree::Ident(name) => path = vec![name.to_string()],
            TokenTree::Punct(mark) => path.push(mark.as_char().to_string()),
            TokenTree::Group(group) if path == ["crate", ":", ":"] => {
                let line = group.span_open().start().line;
                let names = group.stream().to_string();
                let firsts = names.split(',').map(|name| name.split("::").next().unwrap_or(name));
                found.extend(firsts.map(|name| (name.trim().to_owned(), line)));
                path.clear();
            }
            TokenTree::Group(group) => {
                imports(group.stream(), found);
                path.clear();
            }
            TokenTree::Literal(_) => path.clear(),
        }
    }
}

#[test]
fn modules_import_only_from_lower_layers() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let library = sources("src").into_iter().map(|source| (source, &LAYERS[..]));
    let test_crate = sources("testing/src").into_iter().map(|source| (source, &TEST_LAYERS[..]));
    for (source, layers) in library.chain(test_crate).filter(|(source, _)| !source.is_test_file()) {
        let module = source.module();
        if OUTSIDE_LAYERS.contains(&&*module) {
            continue;
        }
        let Some(layer) = layers.iter().position(|name| *name == module) else {
            wrong.push(format!("{}: add {module} to its layers", source.path.display()));
            continue;
        };
        let mut found = Vec::new();
        imports(source.production().to_token_stream(), &mut found);
        count += found.len();
        let is_higher = |name: &str| !layers[..=layer].contains(&name);
        let is_top = TOP_LAYERS.contains(&&*module);
        let is_public = |name: &str| name.starts_with(char::is_uppercase);
        let higher =
            found.iter().filter(|(name, _)| is_higher(name) && !(is_top && is_public(name)));
        let at = |(name, line): &(String, usize)| {
            format!("{}:{line}: crate::{name}", source.path.display())
        };
        wrong.extend(higher.map(at));
    }
    assert!(count > 100, "too few imports found: {count}");
    assert!(wrong.is_empty(), "imports from a higher layer: {wrong:#?}");
}

#[test]
fn modules_have_descriptions() {
    for module in LAYERS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module).join("mod.rs");
        let text = fs::read_to_string(&path).expect("a mod.rs");
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(
            lines >= MIN_DESCRIPTION_LINES,
            "{module}/mod.rs: add a summary and a paragraph about the contents"
        );
    }
    let files = sources("src").iter().filter(|it| it.path.components().count() == 2).count();
    assert!(files <= MAX_FILES_AT_ROOT, "src has {files} files outside of directories");
}

#[test]
fn crate_root_has_only_modules_and_reexports() {
    let sources = sources("src");
    let root = sources.iter().find(|source| source.path.ends_with("src/lib.rs"));
    for item in &root.expect("a lib.rs").file.items {
        let is_allowed = match item {
            syn::Item::Use(_) => true,
            syn::Item::Mod(module) => module.content.is_none(),
            _ => false,
        };
        let line = item.span().start().line;
        assert!(is_allowed, "src/lib.rs:{line}: move the item into a module");
    }
}
