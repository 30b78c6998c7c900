//! Extracts the Rust code blocks of README.md and docs/ into files that the tests include. A file is named after the
//! document and the block's first function, as in `README.import.rs`. If the block has no function, its position is
//! used instead, as in `README.6.rs`.
//!
//! Blocks that run as doctests are skipped, and so is docs/RECIPES.md, whose programs are run by `tests/examples.rs`.
//! The addresses of test servers replace the node addresses in the blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

const REPLACEMENTS: [(&str, &str); 4] = [
    (r#"["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]"#, "crate::urls()"),
    (
        r#"["redis://127.0.0.1:7001", "redis://127.0.0.1:7002", "redis://127.0.0.1:7003"]"#,
        "crate::urls()",
    ),
    // A busy machine may need longer than the default node timeout of 50 ms.
    ("Redlock::builder()", "Redlock::builder().node_timeout(crate::PATIENCE)"),
    // Use a free port instead of 9000.
    (".install()?", ".with_http_listener(crate::listener()).install()?"),
];

/// Attributes of a code block that rustdoc treats as Rust.
const RUST: [&str; 5] = ["rust", "no_run", "ignore", "should_panic", "compile_fail"];

/// Attributes of a code block that rustdoc does not run.
const NOT_RUN: [&str; 3] = ["no_run", "ignore", "compile_fail"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules = read(&root.join("src/_docs.rs"));
    let mut blocks = BTreeMap::new();
    for document in documents(&root) {
        let name = document.file_name().and_then(|name| name.to_str()).expect("a name");
        let is_in_rustdoc = modules.contains(&format!("/{name}\")]"));
        let stem = name.trim_end_matches(".md");
        for (position, block) in
            rust_blocks(&read(&document), is_in_rustdoc).into_iter().enumerate()
        {
            let what = function(&block).unwrap_or_else(|| (position + 1).to_string());
            let before = blocks.insert(format!("{stem}.{what}"), block);
            assert!(before.is_none(), "{name} has two blocks with the function {what}");
        }
    }
    // Delete the files of blocks that no longer exist.
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo")).join("blocks");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("a directory");
    for (name, block) in &blocks {
        fs::write(out.join(format!("{name}.rs")), includable_code(block)).expect("a file");
    }
    let names = blocks.into_keys().collect::<Vec<_>>().join("\n");
    fs::write(out.join("names"), names).expect("a file");
}

/// Reads a file, and makes cargo rerun this script when the file changes.
fn read(path: &Path) -> String {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).expect("a readable text file")
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let docs = root.join("docs");
    println!("cargo::rerun-if-changed={}", docs.display());
    let entries = fs::read_dir(docs).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_text = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let has_own_test = |path: &PathBuf| path.ends_with("RECIPES.md");
    paths
        .filter(|path| is_text(path) && !has_own_test(path))
        .chain([root.join("README.md")])
        .collect()
}

/// Returns the Rust code blocks of `text` that do not run as doctests.
fn rust_blocks(text: &str, is_in_rustdoc: bool) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(words) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> =
            lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
        let has = |known: &[&str]| words.split(',').any(|word| known.contains(&word.trim()));
        let is_run = is_in_rustdoc && !has(&NOT_RUN);
        if (words.is_empty() || has(&RUST)) && !is_run {
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

fn function(block: &str) -> Option<String> {
    let mut lines = block.lines().map(|line| line.trim_start_matches("async "));
    let name = lines.find_map(|line| line.strip_prefix("fn ")?.split(['(', '<']).next())?;
    (name != "main").then(|| name.to_owned())
}

/// Returns the code that a test includes. Statements without a function are wrapped in a block expression.
fn includable_code(block: &str) -> String {
    let is_function = |line: &str| line.starts_with("fn ") || line.starts_with("async fn ");
    let has_items = block.lines().any(is_function);
    let block = if has_items { block.to_owned() } else { format!("{{\n{block}\n}}") };
    let block = REPLACEMENTS.iter().fold(block, |block, (shown, ours)| block.replace(shown, ours));
    let mut code = block.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names_node = |line: &str| line.contains("://10.") || line.contains("://127.");
    assert!(!code.any(names_node), "addresses without a server in a test: {block}");
    block
}
