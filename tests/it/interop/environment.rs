//! The Python virtual environment that contains the other libraries. The first test that needs the environment creates
//! it.

use crate::ms;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, thread};

/// The directory of the environment, which later test runs reuse.
const PLACE: &str = env!("CARGO_TARGET_TMPDIR");
const REQUIREMENTS: &str = include_str!("requirements.txt");
const REQUIREMENTS_PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interop/requirements.txt");
/// The file that marks a complete environment. It contains the requirements from which the environment was created.
const MARK: &str = "made-of.txt";
/// The time limit of one step of the installation. A step may download packages.
const STEP_LIMIT: Duration = Duration::from_mins(5);
/// How long to wait for another test process that is creating the environment.
const LOCK_LIMIT: Duration = Duration::from_mins(15);

/// Returns the path of the environment's interpreter. Returns `None` and prints the reason if the interpreter is not
/// available. Panics instead if the environment variable `TESTS_INTEROP` is `required`.
pub(super) fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let reason = match PYTHON.get_or_init(find_or_create) {
        Ok(python) => return Some(python),
        Err(reason) => reason,
    };
    assert!(
        env::var_os("TESTS_INTEROP").is_none_or(|value| value != "required"),
        "TESTS_INTEROP=required, but there is no Python to test with: {reason}\n\
         Install Python 3.10 or later with its venv module (scripts/setup.sh, or apt-get install \
         python3 python3-venv), see that pip can install packages, and try again; or unset \
         TESTS_INTEROP to skip these tests."
    );
    let thread = thread::current();
    let test = thread.name().unwrap_or("interop");
    let line = format!("skipped: {test}: no Python to test with: {reason}\n");
    // Written directly to stderr, because the test harness hides the captured output of passing tests.
    let _ = io::stderr().write_all(line.as_bytes());
    None
}

fn find_or_create() -> Result<PathBuf, String> {
    let place = Path::new(PLACE);
    let shown = |error: io::Error| format!("{PLACE}: {error}");
    fs::create_dir_all(place).map_err(shown)?;
    let _lock = lock(&place.join("interop-python.lock"))?;
    let home = place.join("interop-python");
    if !works(&home) {
        // Created under another name and renamed when complete, so that no test uses a partial environment.
        let fresh = place.join("interop-python.new");
        remove(&fresh).map_err(shown)?;
        create(&fresh).inspect_err(|_| drop(remove(&fresh)))?;
        remove(&home).map_err(shown)?;
        fs::rename(&fresh, &home).map_err(shown)?;
    }
    Ok(interpreter(&home))
}

/// Locks the file against other processes. The lock is released when the returned file is dropped or this process ends.
fn lock(path: &Path) -> Result<File, String> {
    let shown = |why: &str| format!("cannot lock {}: {why}", path.display());
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(|error| shown(&error.to_string()))?;
    let started = Instant::now();
    while started.elapsed() < LOCK_LIMIT {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(ms(20)),
            Err(TryLockError::Error(error)) => return Err(shown(&error.to_string())),
        }
    }
    Err(shown("timed out while another process holds the lock"))
}

fn works(home: &Path) -> bool {
    let made_of = fs::read_to_string(home.join(MARK));
    made_of.is_ok_and(|made_of| made_of == REQUIREMENTS)
        && run(Command::new(interpreter(home)).args(["-I", "-c", "import pottery, redis"])).is_ok()
}

fn create(home: &Path) -> Result<(), String> {
    run(Command::new("python3").args(["-I", "-m", "venv"]).arg(home))?;
    // A compiler may be missing, so no C code is compiled. Bytecode is not needed for unused modules.
    run(Command::new(interpreter(home))
        .args(["-I", "-m", "pip", "install", "--quiet", "--no-input", "--no-compile"])
        .args(["--disable-pip-version-check", "--only-binary", ":all:"])
        .args(["--requirement", REQUIREMENTS_PATH]))?;
    fs::write(home.join(MARK), REQUIREMENTS).map_err(|error| format!("{MARK}: {error}"))?;
    if works(home) { Ok(()) } else { Err("the packages are installed, but not found".to_owned()) }
}

fn interpreter(home: &Path) -> PathBuf {
    home.join("bin").join("python")
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = format!("{command:?}");
    let output = Path::new(PLACE).join("interop-python.log");
    // The output is a file, because a surviving grandchild would keep a pipe open.
    let log = File::create(&output).and_then(|log| Ok((log.try_clone()?, log)));
    let (log, same_log) = log.map_err(|error| format!("{}: {error}", output.display()))?;
    let child = command.stdin(Stdio::null()).stdout(log).stderr(same_log).spawn();
    let mut child = child.map_err(|error| format!("{name}: {error}"))?;
    let started = Instant::now();
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if started.elapsed() < STEP_LIMIT => thread::sleep(ms(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("timed out after {STEP_LIMIT:?}");
            }
        }
    };
    let text = fs::read(&output).unwrap_or_default();
    Err(format!("{name}: {end}: {}", String::from_utf8_lossy(text.trim_ascii())))
}
