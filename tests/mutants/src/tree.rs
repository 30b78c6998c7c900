//! The copy of the source tree that contains the patches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that are not copied, wherever they are in the tree.
const EXCLUDED: [&str; 2] = ["target", ".git"];

/// Makes `copy` equal to the tree at `root`, except that the files `changed` have other texts. Unchanged files are not
/// written again, so cargo does not rebuild them.
///
/// # Errors
/// Returns an error if a file cannot be read or written.
pub fn copy_tree(root: &Path, copy: &Path, changed: &BTreeMap<PathBuf, String>) -> io::Result<()> {
    let (mut wanted, there) = (files(root)?, files(copy)?);
    wanted.extend(changed.keys().cloned());
    for gone in there.difference(&wanted) {
        fs::remove_file(copy.join(gone))?;
    }
    for path in &wanted {
        let to = copy.join(path);
        let text = match changed.get(path) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(root.join(path))?,
        };
        if there.contains(path) && text == fs::read(&to)? {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&to, text)?;
    }
    Ok(())
}

/// Returns the paths of all files below `root`, relative to `root`.
pub(crate) fn files(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut dirs = if root.is_dir() { vec![root.to_owned()] } else { Vec::new() };
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if EXCLUDED.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() {
                found.insert(path.strip_prefix(root).unwrap_or(&path).to_owned());
            }
        }
    }
    Ok(found)
}
