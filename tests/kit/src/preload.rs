//! Libraries that are compiled on demand and preloaded into a process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::scratch::Scratch;

pub(crate) fn compile(source: &str) -> Result<Vec<u8>, String> {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Err("only 64-bit Linux is supported".to_owned());
    }
    let named = env::var_os("CC").filter(|name| !name.is_empty());
    let compilers =
        named.map_or_else(|| ["cc", "gcc", "clang"].map(OsString::from).into(), |cc| vec![cc]);
    for compiler in &compilers {
        if let Some(result) = compile_with(compiler, source) {
            return result;
        }
    }
    Err(format!(
        "no C compiler: tried {compilers:?}. Install one (Debian, Ubuntu: apt-get \
         install gcc libc6-dev), or set the environment variable CC"
    ))
}

/// Compiles with one compiler. Returns `None` if this compiler does not exist.
fn compile_with(compiler: &OsStr, source: &str) -> Option<Result<Vec<u8>, String>> {
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
    // An error means that the compiler has exited. The compiler's own message explains the reason.
    let _ = stdin.write_all(source.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("a child can be waited for");
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Some(Err(format!("{} failed:\n{message}", compiler.display())));
    }
    Some(fs::read(&built).map_err(|error| format!("cannot read {}: {error}", built.display())))
}
