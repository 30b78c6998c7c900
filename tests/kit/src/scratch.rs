//! A directory for one server.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::reaper;

/// The longest path of a temporary directory that leaves room for a socket's path (104 bytes on
/// macOS).
const LONGEST_BASE: usize = 60;

/// A fresh directory, removed on drop, or by the reaper if this process ends without dropping it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    dir: Option<TempDir>,
}

impl Scratch {
    /// Makes a directory, which only this user may enter, in the system's directory for temporary
    /// files; or in `/tmp` where that one has a path too long for a unix socket in it.
    pub(crate) fn new() -> Self {
        let base = env::temp_dir()
            .canonicalize()
            .ok()
            .filter(|base| base.as_os_str().len() <= LONGEST_BASE)
            .filter(|base| !base.as_os_str().as_bytes().contains(&b'\n'))
            .unwrap_or_else(|| PathBuf::from("/tmp"));
        let made = tempfile::Builder::new()
            // The reaper removes directories of this form only.
            .prefix("quorlock-kit-")
            .rand_bytes(6)
            .tempdir_in(&base);
        let dir = match made {
            Ok(dir) => dir,
            Err(error) => panic!("cannot make a directory in {}: {error}", base.display()),
        };
        let path = dir.path().to_path_buf();
        reaper::watch_dir(&path);
        Self { path, dir: Some(dir) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = self.dir.take().is_none_or(|dir| dir.close().is_ok());
        if removed {
            reaper::forget_dir(&self.path);
        }
    }
}
