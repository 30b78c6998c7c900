//! A `PostgreSQL` server for one test, if its programs are installed.

use crate::SOON;
use kit::{Child, Pipes};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use tempfile::TempDir;

const SCHEMA: &str = include_str!("../../../examples/fencing/schema.sql");
const STATEMENTS: [(&str, &str); 3] = [
    ("write(bigint, bigint, text)", include_str!("../../../examples/fencing/write.sql")),
    ("put(bigint, bigint, text)", include_str!("../../../examples/fencing/insert.sql")),
    ("read(bigint, text)", include_str!("../../../examples/fencing/read.sql")),
];

/// A server that listens only on a Unix socket in its own directory.
pub(super) struct Postgres {
    programs: PathBuf,
    /// The user ID that the server runs as, if the test runs as root.
    user: Option<u32>,
    dir: TempDir,
    _server: (Child, Pipes),
}

pub(super) struct PgSession {
    _child: Child,
    pipes: Pipes,
}

impl PgSession {
    pub(super) fn execute(&mut self, sql: &str) {
        writeln!(self.pipes.stdin, "{sql}").expect("psql runs");
    }
}

/// Prints why a test is skipped. Panics if the environment variable `TESTS_POSTGRES` is `required`.
fn skip(reason: &str) {
    let is_required = env::var_os("TESTS_POSTGRES").is_some_and(|is| is == "required");
    assert!(
        !is_required,
        "TESTS_POSTGRES=required, but {reason}: correct this, or unset the variable"
    );
    let test = thread::current().name().unwrap_or("guarded").to_owned();
    // Written directly to stderr, because the test harness hides the captured output of passing tests.
    let _ = io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
}

impl Postgres {
    /// Starts a server with the example's table and one row, `old`. Returns `None` and prints the reason if the
    /// programs are missing. Panics instead if the environment variable `TESTS_POSTGRES` is `required`.
    pub(super) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            skip("no initdb, postgres and psql to test with");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let user = is_root().then(nobody);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700))
            .expect("the test owns the directory");
        chown(dir.path(), user, None).expect("root can change the owner");
        let data = dir.path().join("data");
        let mut initdb = command(&programs.join("initdb"), user, dir.path());
        initdb.args(["--auth", "trust", "--username", "postgres", "--no-sync", "--pgdata"]);
        let made = match initdb.arg(&data).output() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && user.is_some() => {
                skip(
                    "only root can enter the directory for temporary files, but PostgreSQL does not run as root",
                );
                return None;
            }
            made => made.expect("initdb is installed"),
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = command(&programs.join("postgres"), user, dir.path());
        server.arg("-D").arg(&data).arg("-k").arg(dir.path());
        server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=panic"]);
        let server = Child::spawn(&mut server);
        let postgres = Self { programs, user, dir, _server: server };
        kit::eventually(SOON, "PostgreSQL answers", || postgres.ask("SELECT 1").is_ok());
        postgres.ask(SCHEMA).expect("the schema is valid");
        postgres
            .ask("INSERT INTO accounts (id, balance) VALUES ('old', 0)")
            .expect("the table exists");
        Some(postgres)
    }

    /// Runs `statement` in a new session in which the example's statements are prepared. Returns the rows and the
    /// command tag as `psql` prints them.
    pub(super) fn run(&self, statement: &str) -> String {
        self.ask(statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// Returns the directory of the Unix socket that the server listens on.
    pub(super) fn directory(&self) -> String {
        self.dir.path().display().to_string()
    }

    fn ask(&self, statement: &str) -> Result<String, String> {
        let mut psql = self.psql();
        let is_prepared = statement.starts_with("EXECUTE");
        for (name, sql) in STATEMENTS.iter().filter(|_| is_prepared) {
            psql.arg("-c").arg(prepare(name, sql));
        }
        let output = psql.arg("-c").arg(statement).output().expect("psql is installed");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(lines.lines().filter(|line| *line != "PREPARE").collect::<Vec<_>>().join("\n"))
    }

    pub(super) fn session(&self) -> PgSession {
        let (child, pipes) = Child::spawn(&mut self.psql());
        let mut session = PgSession { _child: child, pipes };
        for (name, sql) in STATEMENTS {
            session.execute(&(prepare(name, sql) + ";"));
        }
        session
    }

    fn psql(&self) -> Command {
        let mut psql = command(&self.programs.join("psql"), self.user, self.dir.path());
        psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres"]);
        psql.arg("-h").arg(self.directory()).stdin(Stdio::null());
        psql
    }
}

/// Stops the server with `pg_ctl`, because a killed server would leave shared memory behind.
impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = command(&self.programs.join("pg_ctl"), self.user, self.dir.path());
        stop.args(["stop", "--mode", "immediate", "--pgdata"]).arg(self.dir.path().join("data"));
        let _ = stop.output();
    }
}

fn prepare(name: &str, sql: &str) -> String {
    format!("PREPARE {name} AS\n{}", sql.trim_end())
}

fn command(program: &Path, user: Option<u32>, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
    for name in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGOPTIONS", "PGDATA"] {
        command.env_remove(name);
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn is_root() -> bool {
    let own = fs::metadata("/proc/self").ok().map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    own == Some(0)
}

fn nobody() -> u32 {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let nobody = users.lines().find_map(|line| line.strip_prefix("nobody:"));
    nobody.and_then(|line| line.split(':').nth(1)?.parse().ok()).unwrap_or(65_534)
}

/// Returns the first directory that contains all programs, from `PATH` or from Debian's `postgresql` packages.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter_map(|dir| {
        let program = fs::canonicalize(dir.join("postgres")).ok()?;
        program.parent().map(Path::to_owned)
    });
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin"));
    let has_all = |dir: &PathBuf| {
        ["initdb", "pg_ctl", "postgres", "psql"].iter().all(|name| is_program(dir, name.as_ref()))
    };
    on_path.chain(debian).find(has_all)
}

fn is_program(dir: &Path, name: &OsStr) -> bool {
    let found = fs::metadata(dir.join(name));
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
