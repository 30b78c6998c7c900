//! Links of the texts lead somewhere: to a file of the repository, and to a heading that is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The texts that people begin with.
fn texts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        [root.to_owned(), root.join("docs"), root.join("tests")].into_iter().flat_map(|dir| {
            let entries = fs::read_dir(dir).expect("a directory");
            entries.map(|entry| entry.expect("an entry").path())
        });
    let mut texts: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    texts.sort();
    texts
}

/// The lines that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without what is quoted in it as code.
fn unquoted(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Where links lead, as they are written: `[…](there)` and `[…]: there`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let mut targets: Vec<_> = inline.map(|(target, _)| target).collect();
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    targets.extend(definition.map(|(_, target)| target.trim()));
    targets
}

/// What GitHub and rustdoc call a heading.
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

/// What is wrong with `target`, a link in the text at `from`.
fn fault(from: &Path, target: &str) -> Option<String> {
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
    Some(format!("{}: {target}: there is no heading {heading}", from.display()))
}

#[test]
fn every_link_to_a_file_and_a_heading_leads_there() {
    let (mut links, mut wrong) = (0, Vec::new());
    for path in texts() {
        let text = fs::read_to_string(&path).expect("a text");
        for line in prose(&text) {
            let line = unquoted(line);
            let targets = targets(&line);
            links += targets.len();
            wrong.extend(targets.into_iter().filter_map(|target| fault(&path, target)));
        }
    }
    assert!(links > 30, "{links}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_link_that_is_used_is_defined() {
    let mut wrong = Vec::new();
    for path in texts() {
        let text = fs::read_to_string(&path).expect("a text");
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
