//! The library that is preloaded, compiled when the first server wants it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::scratch::Scratch;

const SOURCE: &str = include_str!("shim.c");

/// Once for each test process, which takes less than 0.1 s, and kept in memory: there is nothing on
/// the disk to go stale, to be shared with other users, or to be left behind.
static LIBRARY: LazyLock<Result<Vec<u8>, String>> = LazyLock::new(compile);

/// The bytes of the library.
#[track_caller]
pub(super) fn library() -> &'static [u8] {
    match &*LIBRARY {
        Ok(library) => library,
        Err(why) => panic!("ServerBuilder::clock: {why}"),
    }
}

fn compile() -> Result<Vec<u8>, String> {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Err("only 64-bit Linux is supported".to_owned());
    }
    let named = env::var_os("CC").filter(|name| !name.is_empty());
    let compilers =
        named.map_or_else(|| ["cc", "gcc", "clang"].map(OsString::from).into(), |cc| vec![cc]);
    for compiler in &compilers {
        if let Some(result) = compile_with(compiler) {
            return result;
        }
    }
    Err(format!(
        "no C compiler: none of {compilers:?} can be run. Install one (Debian, Ubuntu: apt-get \
         install gcc libc6-dev), or name yours in the environment variable CC"
    ))
}

/// `None` if there is no such compiler.
fn compile_with(compiler: &OsStr) -> Option<Result<Vec<u8>, String>> {
    let scratch = Scratch::new();
    let built = scratch.path().join("built.so");
    let child = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-x", "c", "-o"])
        .arg(&built)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("{} cannot be run: {error}", compiler.display()))),
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Fails only when the compiler gives up; its own message says more.
    let _ = stdin.write_all(SOURCE.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("a child can be waited for");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Some(Err(format!("{} failed:\n{said}", compiler.display())));
    }
    Some(fs::read(&built).map_err(|error| format!("cannot read {}: {error}", built.display())))
}
