//! Temporary directories of servers and other processes.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::reaper;

/// Maximum length of the temporary directory's path in bytes. The limit ensures that the path of a
/// socket in the directory fits (104 bytes on macOS).
const LONGEST_BASE: usize = 60;

/// A temporary directory that is removed on drop, or by the reaper if this process cannot drop it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    dir: Option<TempDir>,
}

impl Scratch {
    /// Creates a directory that only this user can access. The directory is in the system's
    /// directory for temporary files, or in `/tmp` if that path is too long for a Unix socket.
    pub(crate) fn new() -> Self {
        let base = env::temp_dir()
            .canonicalize()
            .ok()
            .filter(|base| base.as_os_str().len() <= LONGEST_BASE)
            .filter(|base| !base.as_os_str().as_bytes().contains(&b'\n'))
            .unwrap_or_else(|| PathBuf::from("/tmp"));
        let made = tempfile::Builder::new()
            // The reaper removes only directories with names of this form.
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
