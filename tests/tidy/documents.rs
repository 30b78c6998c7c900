//! Checks that the tests which the documents name in their tables exist.

use crate::sources::{Source, all_sources};
use std::path::PathBuf;
use syn::visit::Visit;

/// The names of the tests in a file. Tests that a macro such as `proptest!` defines are not included.
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

    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

fn tests_by_file() -> Vec<(PathBuf, Vec<String>)> {
    let tests = |source: Source| {
        let mut tests = Tests::default();
        tests.visit_file(&source.file);
        (source.path, tests.0)
    };
    all_sources().map(tests).collect()
}

fn has_test(module: &str, name: &str, files: &[(PathBuf, Vec<String>)]) -> bool {
    let is_module = |part: &str| {
        let stem = part.trim_end_matches(".rs");
        stem == module || stem.strip_suffix("_tests") == Some(module)
    };
    files.iter().any(|(path, tests)| {
        path.iter().filter_map(|part| part.to_str()).any(is_module)
            && tests.iter().any(|test| test == name)
    })
}

/// Returns the last cell of each row in the tables whose last column lists tests.
fn test_cells(text: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut has_tests = false;
    let mut is_head = true;
    for line in text.lines() {
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        match (line.starts_with('|'), is_head) {
            (false, _) => is_head = true,
            (true, true) => {
                has_tests = last.contains("test");
                is_head = false;
            }
            (true, false) if has_tests && !last.starts_with("---") => cells.push(last),
            (true, false) => {}
        }
    }
    cells
}

#[test]
fn document_tables_name_existing_tests() {
    let files = tests_by_file();
    let mut wrong = Vec::new();
    for (name, text, min_rows) in [
        ("COMPARE", include_str!("../../docs/COMPARE.md"), 16),
        ("FENCING", include_str!("../../docs/FENCING.md"), 3),
        ("SAFETY", include_str!("../../docs/SAFETY.md"), 16),
    ] {
        let cells = test_cells(text);
        let rows = cells.len();
        assert!(rows >= min_rows, "docs/{name}.md: {rows} rows with tests instead of {min_rows}");
        for cell in cells {
            let quoted = cell.split('`').skip(1).step_by(2);
            let named: Vec<_> = quoted.filter_map(|word| word.split_once("::")).collect();
            if named.is_empty() {
                wrong.push(format!("docs/{name}.md: row without a test: {cell}"));
            }
            let missing = named.iter().filter(|(module, test)| !has_test(module, test, &files));
            let at = |(module, test): &(&str, &str)| {
                format!("docs/{name}.md: no such test: {module}::{test}")
            };
            wrong.extend(missing.map(at));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
