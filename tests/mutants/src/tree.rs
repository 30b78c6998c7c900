//! A copy of the source tree. Patches are applied to the copy.

use crate::patch::Patch;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that are not copied, wherever they are in the tree.
const EXCLUDED: [&str; 2] = ["target", ".git"];

/// A source tree and its copy.
pub struct Tree {
    root: PathBuf,
    copy: PathBuf,
}

impl Tree {
    /// Makes `copy` equal to the tree at `root`. Unchanged files are not written again, so cargo does not rebuild them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written.
    pub fn sync(root: &Path, copy: &Path) -> io::Result<Self> {
        let (wanted, there) = (files(root)?, files(copy)?);
        for gone in there.difference(&wanted) {
            fs::remove_file(copy.join(gone))?;
        }
        for path in &wanted {
            let (from, to) = (root.join(path), copy.join(path));
            if there.contains(path) && fs::read(&from)? == fs::read(&to)? {
                continue;
            }
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(&from, &to)?;
        }
        Ok(Self { root: root.to_owned(), copy: copy.to_owned() })
    }

    /// Returns the path of the copy.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// Writes the patched file to the copy.
    ///
    /// # Errors
    /// Returns an error if the patch does not match the tree, or if the file cannot be read or written.
    pub fn apply_to_copy(&self, patch: &Patch) -> Result<(), String> {
        let (_, broken) = patch.broken_file(&self.root)?;
        fs::write(self.copy.join(&patch.path), broken).map_err(|error| error.to_string())
    }

    /// Restores the file in the copy that `patch` changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn restore(&self, patch: &Patch) -> io::Result<()> {
        fs::write(self.copy.join(&patch.path), fs::read(self.root.join(&patch.path))?)
    }
}

fn files(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
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
