//! One defect.

use crate::header::Header;
use crate::hunk::Hunk;
use std::fs;
use std::path::{Path, PathBuf};

/// A change of one file of `src/`, and what it says of itself.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The room that it breaks, and the defect: `protocol/half-the-nodes-are-a-quorum`.
    pub name: String,
    /// What it says of itself.
    pub header: Header,
    /// The file, from the root of the tree.
    pub path: PathBuf,
    hunks: Vec<Hunk>,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// What is wrong with its text.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (header, diff) = text.split_once("\n--- a/").ok_or("no diff")?;
        let (before, rest) = diff.split_once("\n+++ b/").ok_or("no file")?;
        let (after, hunks) = rest.split_once('\n').ok_or("no hunk")?;
        if before != after || !before.starts_with("src/") {
            return Err(format!("not one file of src: {before}, {after}"));
        }
        if hunks.contains("\n--- a/") {
            return Err("more than one file".to_owned());
        }
        let (name, path) = (name.to_owned(), PathBuf::from(before));
        Ok(Self { name, header: Header::parse(header)?, path, hunks: Hunk::parse_all(hunks)? })
    }

    /// What `text` is with the defect.
    ///
    /// # Errors
    /// If it does not apply to this text.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let mut moved = 0;
        for hunk in &self.hunks {
            moved = hunk.apply(&mut lines, moved)?;
        }
        Ok(lines.join("\n") + "\n")
    }
}

/// All patches of the tree at `root`, by name; or what is wrong with each that cannot be read.
///
/// # Errors
/// If the directory cannot be read.
pub fn all(root: &Path) -> std::io::Result<Vec<Result<Patch, String>>> {
    let patches = root.join("tests/mutants/patches");
    let mut found = Vec::new();
    for room in fs::read_dir(&patches)? {
        for file in fs::read_dir(room?.path())? {
            found.push(file?.path());
        }
    }
    found.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&patches).unwrap_or(path).with_extension("");
        let name = name.to_string_lossy();
        let text = fs::read_to_string(path).map_err(|error| error.to_string());
        let patch = text.and_then(|text| Patch::parse(&name, &text));
        patch.map_err(|why| format!("{name}: {why}"))
    };
    Ok(found.iter().map(read).collect())
}
