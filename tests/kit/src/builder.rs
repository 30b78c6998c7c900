//! Settings of a server process.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Server;

/// PEM files for a server with TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificates of the authorities that the server trusts. The certificate in `cert` itself
    /// is sufficient.
    pub ca: PathBuf,
}

/// Settings of a [`Server`], created by [`Server::builder`]. A clone can start another server with
/// the same settings.
///
/// # Default
///
/// - a free port on 127.0.0.1 and a new directory
/// - no persistence (`--save "" --appendonly no`): a restarted server is empty
/// - no users and no password: every client may run every command
/// - otherwise the defaults of Redis
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ServerBuilder {
    program: Option<PathBuf>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    durable: bool,
    unix_socket: bool,
    databases: Option<u32>,
    password: Option<String>,
    users: Vec<(String, String)>,
    tls: Option<TlsFiles>,
    clock: bool,
}

#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) port: u16,
    pub(crate) tls_port: Option<u16>,
    pub(crate) socket: &'a Path,
    pub(crate) dir: &'a Path,
}

impl ServerBuilder {
    /// Starts a server with these settings. See [`Server::start`].
    #[track_caller]
    #[must_use = "a server that is dropped ends"]
    pub fn start(&self) -> Server {
        Server::with(self.clone())
    }

    /// Sets the program to run. The default is the value of the environment variable
    /// `REDIS_SERVER`, or the `redis-server` on the `PATH`.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Adds an argument to the command line, after the kit's arguments:
    /// `.arg("--maxmemory").arg("1mb")`.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets an environment variable of the server's process.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Writes every command to disk before the reply (`--appendonly yes --appendfsync always`), so
    /// that the server keeps its data after [`Server::kill`]. Disables background rewrites.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Makes the server also listen on a Unix socket. See [`Server::url_unix`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Sets the number of databases. Redis's default is 16.
    pub fn databases(mut self, count: u32) -> Self {
        self.databases = Some(count);
        self
    }

    /// Requires this password from clients that send no user name (`--requirepass`).
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user with all permissions. Can be called several times. The server still accepts
    /// clients without a user name, unless [`password`](Self::password) is set.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.push((name.into(), password.into()));
        self
    }

    /// Makes the server also listen for TLS on a second port, without client certificates. See
    /// [`Server::url_tls`]. Requires a `redis-server` that was built with TLS.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Returns true if the program was built with TLS. To find out, starts the program with an
    /// invalid certificate. A program without TLS reports an unknown option or missing support, and
    /// a program with TLS reports the certificate.
    #[must_use]
    pub fn supports_tls(&self) -> bool {
        let mut command = Command::new(self.program_name());
        let output =
            command.args(["--port", "0", "--tls-port", "1", "--tls-cert-file", "/dev/null"]);
        let output = output.output().expect("cannot run the server's program");
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        !output.contains("Failed finding TLS support") && !output.contains("Bad directive")
    }

    /// Gives the server its own wall clock, which can drift and jump. See [`Server::clock`].
    /// Requires 64-bit Linux, a C compiler and a dynamically linked `redis-server`; otherwise,
    /// starting the server panics. Uses the environment variable `LD_PRELOAD`.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.clock
    }

    /// Returns the program to run: from [`program`](Self::program), else from the environment
    /// variable `REDIS_SERVER`, else `redis-server`. A relative path with a directory is made
    /// absolute, because the server runs in its own directory.
    pub(crate) fn program_name(&self) -> OsString {
        let chosen = self.program.as_ref().map(|path| path.as_os_str().to_owned());
        let name = chosen.or_else(|| env::var_os("REDIS_SERVER")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "redis-server".into());
        let has_directory = Path::new(&name).components().count() > 1;
        let absolute = has_directory.then(|| std::path::absolute(&name).ok()).flatten();
        absolute.map_or(name, PathBuf::into_os_string)
    }

    pub(crate) fn has_unix_socket(&self) -> bool {
        self.unix_socket
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn default_password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the name and password of the user that was added last. Without added users, returns
    /// an empty name and the default user's password. Returns `None` if no password was set.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        let user = self.users.last().map(|(name, password)| (name.as_str(), password.as_str()));
        user.or_else(|| self.default_password().map(|password| ("", password)))
    }

    pub(crate) fn environment(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    pub(crate) fn command_line(&self, place: &Place<'_>) -> Vec<OsString> {
        let mut line = CommandLine(Vec::new());
        line.option("--bind", ["127.0.0.1"]);
        line.option("--port", [place.port.to_string()]);
        // The socket is always enabled. The kit connects through it, because no other server can
        // listen on it.
        line.option("--unixsocket", [place.socket]);
        line.option("--dir", [place.dir]);
        line.option("--daemonize", ["no"]);
        line.option("--protected-mode", ["no"]);
        line.option("--save", [""]);
        if self.durable {
            line.option("--appendonly", ["yes"]);
            line.option("--appendfsync", ["always"]);
            line.option("--auto-aof-rewrite-percentage", ["0"]);
        } else {
            line.option("--appendonly", ["no"]);
        }
        if let Some(count) = self.databases {
            line.option("--databases", [count.to_string()]);
        }
        if let Some(password) = &self.password {
            line.option("--requirepass", [password]);
        }
        for (name, password) in &self.users {
            let password = format!(">{password}");
            line.option("--user", [name, "on", &password, "allkeys", "allchannels", "allcommands"]);
        }
        if let (Some(files), Some(port)) = (&self.tls, place.tls_port) {
            line.option("--tls-port", [port.to_string()]);
            line.option("--tls-cert-file", [&files.cert]);
            line.option("--tls-key-file", [&files.key]);
            line.option("--tls-ca-cert-file", [&files.ca]);
            line.option("--tls-auth-clients", ["no"]);
        }
        line.0.extend_from_slice(&self.args);
        line.0
    }
}

struct CommandLine(Vec<OsString>);

impl CommandLine {
    fn option<const N: usize>(&mut self, name: &str, values: [impl Into<OsString>; N]) {
        self.0.push(name.into());
        self.0.extend(values.map(Into::into));
    }
}
