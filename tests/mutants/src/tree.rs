//! A copy of the tree, in which patches are tried.

use crate::patch::Patch;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is not copied, wherever it lies.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// A tree and its copy.
pub struct Tree {
    root: PathBuf,
    copy: PathBuf,
}

impl Tree {
    /// Makes `copy` the same as the tree at `root`. Files that are the same already are not touched, so that
    /// what was built of them stays good.
    ///
    /// # Errors
    /// If files cannot be read or written.
    pub fn copied(root: &Path, copy: &Path) -> io::Result<Self> {
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

    /// Where patches are tried.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// Breaks the copy.
    ///
    /// # Errors
    /// If the patch does not apply any more, or the file cannot be read or written.
    pub fn break_by(&self, patch: &Patch) -> Result<(), String> {
        let (_, broken) = patch.play(&self.root)?;
        fs::write(self.copy.join(&patch.path), broken).map_err(|error| error.to_string())
    }

    /// Mends what was broken.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn mend(&self, patch: &Patch) -> io::Result<()> {
        fs::write(self.copy.join(&patch.path), fs::read(self.root.join(&patch.path))?)
    }
}

/// All files below `root`, from there.
fn files(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut dirs = if root.is_dir() { vec![root.to_owned()] } else { Vec::new() };
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
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
