//! Checks that links in the documents lead to existing files and headings, and that quoted counts and names are
//! correct.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        ["", "docs", "testing", "tests"].into_iter().map(|dir| root.join(dir)).flat_map(|dir| {
            let entries = fs::read_dir(dir).expect("a directory");
            entries.map(|entry| entry.expect("an entry").path())
        });
    let mut documents: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    documents.sort();
    documents
}

fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn unquoted(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let mut targets: Vec<_> = inline.map(|(target, _)| target).collect();
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    targets.extend(definition.map(|(_, target)| target.trim()));
    targets
}

/// Returns the anchor that GitHub and rustdoc generate for a heading.
fn slug(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn headings(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| slug(line.trim_start_matches('#')))
        .collect()
}

fn problem(from: &Path, target: &str) -> Option<String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return None;
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { from.to_owned() } else { from.parent()?.join(file) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Some(format!("{}: {target}: {error}", from.display())),
    };
    let heading = heading.filter(|heading| !headings(&text).contains(*heading))?;
    Some(format!("{}: {target}: no heading {heading}", from.display()))
}

#[test]
fn links_to_files_and_headings_resolve() {
    let (mut links, mut wrong) = (0, Vec::new());
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a readable document");
        for line in prose(&text) {
            let line = unquoted(line);
            let targets = targets(&line);
            links += targets.len();
            wrong.extend(targets.into_iter().filter_map(|target| problem(&path, target)));
        }
    }
    assert!(links > 30, "{links}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn reference_links_are_defined() {
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a readable document");
        let defined: BTreeSet<_> = prose(&text)
            .filter_map(|line| Some(line.strip_prefix('[')?.split_once("]: ")?.0.to_lowercase()))
            .collect();
        for line in prose(&text) {
            let line = unquoted(line);
            let used = line.split("][").skip(1).filter_map(|rest| rest.split_once(']'));
            let missing = used.filter(|(name, _)| !defined.contains(&name.to_lowercase()));
            wrong.extend(missing.map(|(name, _)| format!("{}: {name}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns each number of patches that `text` states.
fn numbers_of_patches(text: &str) -> Vec<String> {
    let nouns = ["mutation patches", "plausible defects", "ways to break"];
    let words: Vec<_> = text.split_whitespace().collect();
    let stated = words.windows(3).map(|words| words.join(" ")).filter(|words| {
        words.starts_with(|first: char| first.is_ascii_digit())
            && nouns.iter().any(|noun| words.contains(noun))
    });
    stated.collect()
}

#[test]
fn documents_state_no_number_of_patches() {
    let text = "There are some 1,340 plausible defects.";
    assert_eq!(numbers_of_patches(text), ["1,340 plausible defects."]);
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a readable document");
        let stated = numbers_of_patches(&text).into_iter();
        wrong.extend(stated.map(|words| format!("{}: {words}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn configuration_lists_every_variable() {
    // Cargo sets variables with this prefix, and none of them is a setting.
    let Err(quorlock::ConfigError::UnknownVariable { known, .. }) =
        quorlock::Config::from_env("CARGO")
    else {
        panic!("cargo sets variables such as CARGO_PKG_NAME");
    };
    let known: BTreeSet<_> =
        known.split(", ").map(|name| name.replacen("CARGO", "QUORLOCK", 1)).collect();
    let text = include_str!("../docs/CONFIGURATION.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | `QUORLOCK_"));
    let mut listed = BTreeSet::new();
    for (key, rest) in cells {
        let name = format!("QUORLOCK_{}", rest.split('`').next().unwrap_or_default());
        assert_eq!(name, format!("QUORLOCK_{}", key.to_uppercase()));
        if cfg!(feature = "tls-rustls") || !key.starts_with("tls_") {
            listed.insert(name);
        }
    }
    assert_eq!(listed, known);
}

#[test]
fn readme_has_at_most_220_lines() {
    let lines = include_str!("../README.md").lines().count();
    assert!(lines <= 220, "{lines}");
}
