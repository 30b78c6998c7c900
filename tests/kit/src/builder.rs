//! How a server is set up.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Server;

/// The files a server needs to speak TLS, in PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificates of the authorities that the server trusts (`cert` itself will do).
    pub ca: PathBuf,
}

/// Sets up a [`Server`]; made by [`Server::builder`]. Can be cloned, and used for several servers.
///
/// # Default
///
/// - a free port on 127.0.0.1, a fresh directory
/// - nothing is saved: `--save "" --appendonly no`; a restarted server is empty
/// - no users, no password: every client may do everything
/// - Redis's own defaults for the rest
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

/// Where a server listens and keeps its files.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) port: u16,
    pub(crate) tls_port: Option<u16>,
    pub(crate) socket: &'a Path,
    pub(crate) dir: &'a Path,
}

impl ServerBuilder {
    /// Starts a server; see [`Server::start`].
    #[track_caller]
    #[must_use = "a server that is dropped ends"]
    pub fn start(&self) -> Server {
        Server::with(self.clone())
    }

    /// The program to run, in place of what `REDIS_SERVER` names or the `redis-server` on the `PATH`.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Adds an argument of the command line, after those of the kit:
    /// `.arg("--maxmemory").arg("1mb")`.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets an environment variable of the server's process, for example to preload a library.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Writes every command to disk before it is answered (`--appendonly yes --appendfsync
    /// always`): the server comes back from [`Server::kill`] with its data. Nothing is rewritten in
    /// the background.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Listens on a unix socket as well; see [`Server::url_unix`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// The number of databases; Redis's default is 16.
    pub fn databases(mut self, count: u32) -> Self {
        self.databases = Some(count);
        self
    }

    /// Requires this password of clients that name no user (`--requirepass`).
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user who may run every command on every key and channel. May be called again for
    /// further users. Clients that name no user are still let in, unless
    /// [`password`](Self::password) is set too.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.push((name.into(), password.into()));
        self
    }

    /// Listens for TLS on a second port as well, and asks clients for no certificate; see
    /// [`Server::url_tls`]. Needs a `redis-server` that was built with TLS.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Whether the program was built with TLS: one that was not does not know the port for it, or says
    /// so when it is to use it. One that was complains of the missing certificate.
    #[must_use]
    pub fn knows_tls(&self) -> bool {
        let mut command = Command::new(self.program_name());
        let output =
            command.args(["--port", "0", "--tls-port", "1", "--tls-cert-file", "/dev/null"]);
        let output = output.output().expect("cannot run the server's program");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        !said.contains("Failed finding TLS support") && !said.contains("Bad directive")
    }

    /// Gives the server a wall clock of its own, which can be made to drift and to jump; see
    /// [`Server::clock`]. Needs Linux on a 64-bit processor, a C compiler, and a `redis-server` that
    /// is linked dynamically; starting panics where one is missing. Takes the environment variable
    /// `LD_PRELOAD`.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.clock
    }

    /// What [`program`](Self::program) says, or the environment variable `REDIS_SERVER`, or
    /// `redis-server`. A relative path with a directory in it is made absolute, as the server runs in
    /// a directory of its own.
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

    /// The password of the default user.
    pub(crate) fn default_password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The name ("" for the default user) and password of the user added last, else of the default
    /// user.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        let user = self.users.last().map(|(name, password)| (name.as_str(), password.as_str()));
        user.or_else(|| self.default_password().map(|password| ("", password)))
    }

    pub(crate) fn environment(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    /// The command line of a server at `place`.
    pub(crate) fn command_line(&self, place: &Place<'_>) -> Vec<OsString> {
        let mut line = CommandLine(Vec::new());
        line.option("--bind", ["127.0.0.1"]);
        line.option("--port", [place.port.to_string()]);
        // Always, because the kit itself looks inside through it: nobody else's server can answer
        // there.
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
