//! Counts allocations and system calls with a small C library that is preloaded into a process.
//!
//! A counting allocator in Rust would slow down every measurement, because all threads would contend for the counter.
//! The kernel's numbers (`/proc/self/io`) do not include sockets, which carry nearly all of the I/O.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::ops::{Add, Sub};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio, id};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

const SOURCE: &str = include_str!("counter.c");

/// The preloaded library sets this environment variable to the path of the file with its counts.
const COUNTS_VARIABLE: &str = "TESTS_COUNTS";

/// The file with the counts of this process. `None` if the library is not preloaded.
static COUNTS_FILE: LazyLock<Option<File>> =
    LazyLock::new(|| File::open(env::var_os(COUNTS_VARIABLE)?).ok());

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The number of allocations, including reallocations.
    pub(crate) allocations: u64,
    /// The number of requested bytes. For a reallocation, the full new size is counted, not only the increase.
    pub(crate) bytes: u64,
    /// The number of calls of C library functions that enter the kernel: reads, writes, waits, wake-ups and randomness.
    pub(crate) calls: u64,
}

impl Counts {
    pub(crate) fn now() -> Option<Self> {
        let mut bytes = [0; 24];
        COUNTS_FILE.as_ref()?.read_exact_at(&mut bytes, 0).ok()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |place: usize| u64::from_ne_bytes(numbers[place]);
        Some(Self { allocations: number(0), bytes: number(1), calls: number(2) })
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            allocations: self.allocations.saturating_sub(before.allocations),
            bytes: self.bytes.saturating_sub(before.bytes),
            calls: self.calls.saturating_sub(before.calls),
        }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            allocations: self.allocations + other.allocations,
            bytes: self.bytes + other.bytes,
            calls: self.calls + other.calls,
        }
    }
}

/// Compiles the library into this program's directory, and returns the library's path.
pub(crate) fn library() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")) {
        return Err("only 64-bit Linux with the GNU C library is supported".to_owned());
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    // The file is replaced atomically, because another run may be using it.
    let built = program.with_file_name(format!("counter.{}.so", id()));
    let named = env::var_os("CC").filter(|name| !name.is_empty());
    let compiler = named.unwrap_or_else(|| OsString::from("cc"));
    compile(&compiler, &built).map_err(|error| format!("{}: {error}", compiler.display()))?;
    let library = program.with_file_name("counter.so");
    fs::rename(&built, &library).map_err(|error| format!("{}: {error}", library.display()))?;
    Ok(library)
}

fn compile(compiler: &OsString, built: &PathBuf) -> Result<(), String> {
    let mut child = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O2", "-x", "c", "-o"])
        .arg(built)
        .args(["-", "-ldl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Writing fails only if the compiler fails, and the compiler reports the reason.
    let _ = stdin.write_all(SOURCE.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(all(test, target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod tests {
    use std::env;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::{Counts, library};

    #[test]
    fn preloaded_library_counts() {
        let library = library().expect("a C compiler is installed");
        let program = env::current_exe().expect("the executable has a path");
        let test = ["--ignored", "--exact", "counts::tests::in_the_child_process", "--nocapture"];
        let other = Command::new(program).args(test).env("LD_PRELOAD", library).output();
        let other = other.expect("the program starts");
        let output = String::from_utf8_lossy(&other.stdout);
        assert!(other.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    #[ignore = "runs in a process that the test above starts"]
    fn in_the_child_process() {
        let (mut here, mut there) = UnixStream::pair().expect("two sockets");
        let before = Counts::now().expect("the library is preloaded");
        for _ in 0..1000 {
            here.write_all(&[7]).expect("the socket is open");
            there.read_exact(&mut [0]).expect("a byte was written");
            drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
        }
        let counts = Counts::now().expect("the library is preloaded") - before;
        // The ranges allow for a few calls of the test program's other threads.
        assert!((2000..2100).contains(&counts.calls), "{counts:?}");
        assert!((1000..1100).contains(&counts.allocations), "{counts:?}");
        assert!((100_000..110_000).contains(&counts.bytes), "{counts:?}");
    }

    #[test]
    fn counts_are_unknown_without_the_library() {
        assert_eq!(Counts::now(), None);
    }
}
