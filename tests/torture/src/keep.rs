//! Keeps the files of a failed run in a directory that later runs do not overwrite.

use crate::apply::ProxiedNode;
use crate::plan::Planned;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the path of a new directory in `out` for the files of a failed run.
pub(crate) fn directory(out: &Path, run: &str) -> PathBuf {
    let each = (1_u32..).map(|number| out.join(format!("failed-{run}-{number}")));
    each.into_iter().find(|path| !path.exists()).unwrap_or_else(|| out.to_owned())
}

/// Copies the files of all servers to `to`, and writes the plan of the faults there.
pub(crate) fn keep(nodes: &[ProxiedNode], plan: &[Planned], to: &Path) -> io::Result<()> {
    for (number, node) in nodes.iter().enumerate() {
        copy(node.server.directory(), &to.join(format!("node-{number}")))?;
    }
    let mut lines = String::new();
    for planned in plan {
        writeln!(lines, "{planned:?}").map_err(io::Error::other)?;
    }
    fs::write(to.join("plan.txt"), lines)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
