//! Allocations and calls of the system, counted by a small library in C that is preloaded into a process.
//!
//! An allocator of Rust that counts would be in every slice: two threads that count together pay more for it
//! than a cycle has to spare. And the kernel's own numbers (`/proc/self/io`) leave out what is sent and
//! received on sockets, which is nearly all.

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

/// The library.
const SOURCE: &str = include_str!("counter.c");

/// The environment variable in which it says where the counts are.
const WHERE: &str = "TESTS_COUNTS";

/// The counts of this process; `None` if nobody counts.
static COUNTED: LazyLock<Option<File>> = LazyLock::new(|| File::open(env::var_os(WHERE)?).ok());

/// What a process has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Allocations, also those that give what is allocated another size.
    pub(crate) allocations: u64,
    /// The bytes asked for by these, of another size all of it.
    pub(crate) bytes: u64,
    /// Calls of the C library that enter the kernel: reads, writes, waits, wakes, randomness.
    pub(crate) calls: u64,
}

impl Counts {
    /// Those of this process, if the library is preloaded.
    pub(crate) fn now() -> Option<Self> {
        let mut bytes = [0; 24];
        COUNTED.as_ref()?.read_exact_at(&mut bytes, 0).ok()?;
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

/// Compiles the library; returns its file, which stands beside this program.
pub(crate) fn library() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")) {
        return Err("only 64-bit Linux with the GNU C library is supported".to_owned());
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    // Another run may use the file at this moment: it is replaced as a whole.
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
    // Fails only when the compiler gives up; its own message says more.
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
    fn a_preloaded_library_counts() {
        let library = library().expect("there is a C compiler");
        let program = env::current_exe().expect("it has a path");
        let test = ["--ignored", "--exact", "counts::tests::in_the_other_process", "--nocapture"];
        let other = Command::new(program).args(test).env("LD_PRELOAD", library).output();
        let other = other.expect("it can be started");
        let said = String::from_utf8_lossy(&other.stdout);
        assert!(other.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "a_preloaded_library_counts runs it, with the library"]
    fn in_the_other_process() {
        let (mut here, mut there) = UnixStream::pair().expect("two sockets");
        let before = Counts::now().expect("the library is preloaded");
        for _ in 0..1000 {
            here.write_all(&[7]).expect("there is room");
            there.read_exact(&mut [0]).expect("it was written");
            drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
        }
        let counts = Counts::now().expect("the library is preloaded") - before;
        // The threads of the test program do little beside.
        assert!((2000..2100).contains(&counts.calls), "{counts:?}");
        assert!((1000..1100).contains(&counts.allocations), "{counts:?}");
        assert!((100_000..110_000).contains(&counts.bytes), "{counts:?}");
    }

    #[test]
    fn nobody_counts_where_nothing_is_preloaded() {
        assert_eq!(Counts::now(), None);
    }
}
