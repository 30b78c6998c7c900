//! The house rules that a compiler does not keep: see docs/DESIGN.md, section 2.

use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const MOST_LINES_OF_A_FILE: usize = 400;
const MOST_LINES_OF_A_FUNCTION: usize = 70;
const MOST_FLAT_FILES: usize = 8;
const EMPTY_NAMES: [&str; 5] = ["util", "common", "types", "helpers", "core"];

/// Words that have no place in the pure core: clocks, randomness, I/O, waiting, logging.
const IMPURE: [&str; 21] = [
    "Instant",
    "SystemTime",
    "clock",
    "rand",
    "uuid",
    "Uuid",
    "io",
    "fs",
    "net",
    "env",
    "thread",
    "process",
    "async",
    "await",
    "tokio",
    "futures",
    "redis",
    "println",
    "eprintln",
    "tracing",
    "Mutex",
];

/// The rooms of the crate, from the ground up: each may import from those before it, and from no other.
const FLOORS: [&str; 17] = [
    "server_model",
    "sync",
    "protocol",
    "random",
    "time",
    "wire",
    "observe",
    "transport",
    "node",
    "round",
    "error",
    "check",
    "acquire",
    "lease",
    "client",
    "blocking",
    "test_util",
];

/// What stands beside the rooms: the door, and the longer texts.
const DOORS: [&str; 2] = ["lib", "_docs"];

struct Source {
    path: PathBuf,
    text: String,
    file: syn::File,
}

/// All Rust files below `dir` of this package.
fn sources(dir: &str) -> Vec<Source> {
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
                let file = syn::parse_file(&text).expect("a file that compiles");
                let path = path.strip_prefix(root).expect("below the root").to_owned();
                found.push(Source { path, text, file });
            }
        }
    }
    assert!(!found.is_empty() || dir != "src", "there must be sources");
    found
}

fn everywhere() -> impl Iterator<Item = Source> {
    ["src", "cli", "tests", "benches", "examples"].into_iter().flat_map(sources)
}

/// Finds the functions of a file that are too long.
#[derive(Default)]
struct LongFunctions(Vec<String>);

impl LongFunctions {
    fn measure(&mut self, name: &syn::Ident, whole: proc_macro2::Span) {
        let lines = whole.end().line - whole.start().line + 1;
        if lines > MOST_LINES_OF_A_FUNCTION {
            self.0.push(format!("{name}: {lines} lines"));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
}

fn is_test(item: &syn::Item) -> bool {
    let syn::Item::Mod(module) = item else {
        return false;
    };
    module.attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr.parse_args::<syn::Ident>().is_ok_and(|what| what == "test")
    })
}

/// True for a file that holds tests only.
fn is_test_file(source: &Source) -> bool {
    source.path.to_string_lossy().ends_with("_tests.rs")
}

/// Every identifier of `tokens`, with its line.
fn words(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => words(group.stream(), found),
            TokenTree::Ident(word) => {
                found.push((word.to_string(), word.span().start().line));
            }
            _ => {}
        }
    }
}

/// The words of a file outside of its tests.
fn production_words(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for item in source.file.items.iter().filter(|item| !is_test(item)) {
        words(quote::ToTokens::to_token_stream(item), &mut found);
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let mut long = Vec::new();
    for source in everywhere() {
        let lines = source.text.lines().count();
        if lines > MOST_LINES_OF_A_FILE {
            long.push(format!("{}: {lines} lines", source.path.display()));
        }
        let mut functions = LongFunctions::default();
        functions.visit_file(&source.file);
        let at = |name| format!("{}: {name}", source.path.display());
        long.extend(functions.0.into_iter().map(at));
    }
    assert!(long.is_empty(), "too long: {long:#?}");
}

#[test]
fn the_protocol_is_pure() {
    let mut impure = Vec::new();
    let sources = sources("src/protocol");
    assert!(sources.len() >= 6, "the protocol must be found");
    for source in sources.iter().filter(|source| !source.path.ends_with("enumeration.rs")) {
        for (word, line) in production_words(source) {
            if IMPURE.contains(&word.as_str()) {
                impure.push(format!("{}:{line}: {word}", source.path.display()));
            }
        }
    }
    assert!(impure.is_empty(), "clock, randomness, I/O or waiting: {impure:#?}");
}

/// A published package is without the kit that starts servers, and its unit tests compile all the same.
#[test]
fn no_unit_test_starts_a_server() {
    let uses_kit = |source: &Source| {
        let mut found = Vec::new();
        words(quote::ToTokens::to_token_stream(&source.file), &mut found);
        found.iter().any(|(word, _)| word == "kit")
    };
    let wrong: Vec<_> = sources("src").into_iter().filter(uses_kit).map(|it| it.path).collect();
    assert!(wrong.is_empty(), "these use tests/kit: {wrong:#?}");
}

/// The room that a file of `src` belongs to.
fn room(source: &Source) -> String {
    let path = source.path.strip_prefix("src").expect("below src");
    let first = path.iter().next().and_then(|part| part.to_str()).expect("a name");
    first.trim_end_matches(".rs").to_owned()
}

/// The modules of the crate's root that `tokens` name, with the line: `crate::node`, `crate::{node, wire}`.
fn imports(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    let mut path = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) if path == ["crate", ":", ":"] => {
                found.push((word.to_string(), word.span().start().line));
                path.clear();
            }
            TokenTree::Ident(word) => path = vec![word.to_string()],
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
fn arrows_run_down() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for source in sources("src").iter().filter(|source| !is_test_file(source)) {
        let room = room(source);
        if DOORS.contains(&&*room) {
            continue;
        }
        let Some(floor) = FLOORS.iter().position(|name| *name == room) else {
            wrong.push(format!("{}: give it a floor", source.path.display()));
            continue;
        };
        let mut found = Vec::new();
        for item in source.file.items.iter().filter(|item| !is_test(item)) {
            imports(quote::ToTokens::to_token_stream(item), &mut found);
        }
        count += found.len();
        let is_above = |name: &str| !FLOORS[..=floor].contains(&name);
        // What is public can be had from the door by who stands above all rooms.
        let is_top = matches!(&*room, "blocking" | "test_util");
        let is_public = |name: &str| name.starts_with(char::is_uppercase);
        let up = found.iter().filter(|(name, _)| is_above(name) && !(is_top && is_public(name)));
        let at = |(name, line): &(String, usize)| {
            format!("{}:{line}: crate::{name}", source.path.display())
        };
        wrong.extend(up.map(at));
    }
    assert!(count > 100, "imports must be found: {count}");
    assert!(wrong.is_empty(), "imports of what stands above: {wrong:#?}");
}

#[test]
fn every_module_has_a_description() {
    for room in FLOORS.iter().filter(|room| **room != "test_util") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(room).join("mod.rs");
        let text = fs::read_to_string(&path).expect("a room has a door");
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(lines >= 3, "{room}: add a summary and a paragraph about the contents");
    }
    let flat = sources("src").iter().filter(|it| it.path.components().count() == 2).count();
    assert!(flat <= MOST_FLAT_FILES, "{flat} files lie flat in src");
}

#[test]
fn the_crate_root_is_a_door() {
    let sources = sources("src");
    let root = sources.iter().find(|source| source.path.ends_with("src/lib.rs"));
    for item in &root.expect("there is a lib.rs").file.items {
        let is_door = match item {
            syn::Item::Use(_) => true,
            syn::Item::Mod(module) => module.content.is_none(),
            _ => false,
        };
        assert!(is_door, "line {}: only modules and re-exports", item.span().start().line);
    }
}

#[test]
fn names_say_something() {
    for source in everywhere() {
        for part in source.path.iter().filter_map(|part| part.to_str()) {
            let name = part.trim_end_matches(".rs");
            let is_bench = source.path.starts_with("benches");
            let is_empty = EMPTY_NAMES.contains(&name) && !(is_bench && name == "core");
            assert!(!is_empty, "{}: name it after what it is", source.path.display());
        }
    }
}

/// The names of the tests in a file.
#[derive(Default)]
struct Tests(Vec<String>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_test = |attr: &syn::Attribute| {
            attr.path().segments.last().is_some_and(|last| last.ident == "test")
        };
        if item.attrs.iter().any(is_test) {
            self.0.push(item.sig.ident.to_string());
        }
    }

    // Tests in macros of their own, such as proptest's, are not looked for.
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

/// True if the test `name` stands in `module`: the name of a file or a directory.
fn is_there(module: &str, name: &str, sources: &[Source]) -> bool {
    let is_module = |part: &str| {
        let stem = part.trim_end_matches(".rs");
        stem == module || stem.strip_suffix("_tests") == Some(module)
    };
    sources.iter().any(|source| {
        let mut tests = Tests::default();
        tests.visit_file(&source.file);
        source.path.iter().filter_map(|part| part.to_str()).any(is_module)
            && tests.0.iter().any(|test| test == name)
    })
}

/// The last cells of the tables whose last column is that of the tests.
fn cells_with_tests(text: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut is_table_with_tests = false;
    let mut is_head = true;
    for line in text.lines() {
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        match (line.starts_with('|'), is_head) {
            (false, _) => is_head = true,
            (true, true) => {
                is_table_with_tests = last.contains("test");
                is_head = false;
            }
            (true, false) if is_table_with_tests && !last.starts_with("---") => cells.push(last),
            (true, false) => {}
        }
    }
    cells
}

#[test]
fn every_line_of_the_comparison_names_tests_that_exist() {
    let sources: Vec<_> = everywhere().collect();
    let mut wrong = Vec::new();
    for (text, least) in [
        (include_str!("../docs/COMPARE.md"), 16),
        (include_str!("../docs/FENCING.md"), 3),
        (include_str!("../docs/SAFETY.md"), 16),
    ] {
        let cells = cells_with_tests(text);
        assert!(cells.len() >= least, "the tables must be found");
        for cell in cells {
            let quoted = cell.split('`').skip(1).step_by(2);
            let named: Vec<_> = quoted.filter_map(|word| word.split_once("::")).collect();
            if named.is_empty() {
                wrong.push(format!("no test: {cell}"));
            }
            let missing = named.iter().filter(|(module, name)| !is_there(module, name, &sources));
            wrong.extend(missing.map(|(module, name)| format!("no such test: {module}::{name}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
