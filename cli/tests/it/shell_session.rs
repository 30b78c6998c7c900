//! Runs commands and compares their transcript with a snapshot.

use kit::{Child, Cluster, Pipes, Server};
use regex::Regex;
use snapbox::{Assert, Data};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Text that differs between runs: a placeholder and a pattern. In each match, the text between the two groups of the
/// pattern is replaced with the placeholder. The patterns are applied in order.
const VARIABLE: [(&str, &str); 7] = [
    // If a vote is missing, the report depends on which nodes reply first.
    ("[REPORT]", r"(: )[0-2]/3 granted [^\n]*()"),
    ("[TIME]", r"()[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z()"),
    ("[SERVER]", r"()(?:Redis|Valkey) [0-9]+\.[0-9]+\.[0-9]+()"),
    ("[UP]", r"(, up )(?:[0-9]+[dhms] ?)+(,)"),
    ("[CLOCK]", r"(, clock )[^,\n]+()"),
    ("[SPAN]", r"( )[0-9]+(?:\.[0-9]+)?(?:us|ms|s)()"),
    ("[SECONDS]", r#"(_seconds":)-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?()"#),
];

/// The time limit of a command, far longer than any command takes.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Ended {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ended {
    /// Runs a command until it ends. Panics after `LIMIT`.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let (child, Pipes { stdout, stderr, .. }) = Child::spawn(command);
        let [out, err] = [collect(stdout), collect(stderr)];
        let code = child.wait(LIMIT).unwrap_or_else(|| {
            panic!("{:?} runs for more than {LIMIT:?}", command.get_args().collect::<Vec<_>>())
        });
        let text = |read: thread::JoinHandle<String>| read.join().expect("UTF-8");
        Self { out: text(out), err: text(err), code }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    })
}

/// A simulated shell session: its environment variables, its transcript, and placeholders for text that differs between
/// runs.
#[derive(Default)]
pub(crate) struct ShellSession {
    variables: Vec<(String, String)>,
    names: Vec<(&'static str, String)>,
    /// Whether the transcript contains output of real nodes. If so, the patterns in `VARIABLE` apply.
    is_live: bool,
    transcript: String,
}

impl ShellSession {
    #[track_caller]
    pub(crate) fn start(nodes: usize) -> (Cluster, Self) {
        let nodes = Cluster::start(nodes);
        let session = Self::on(&nodes);
        (nodes, session)
    }

    /// Creates a session with `nodes` in `QUORLOCK_NODES`. The transcript names the nodes `[A]`, `[B]` and so on.
    pub(crate) fn on(nodes: &[Server]) -> Self {
        let urls: Vec<String> = nodes.iter().map(Server::url).collect();
        let mut session = Self { is_live: true, ..Self::default() };
        session = session.with("QUORLOCK_NODES", &urls.join(" "));
        for (node, name) in nodes.iter().zip(["[A]", "[B]", "[C]", "[D]", "[E]"]) {
            session.name(name, &node.addr().to_string());
        }
        // The strict guard would exclude the servers, because they started recently.
        session = session.with("QUORLOCK_RESTART_GUARD", "observed");
        // On a busy machine, nodes reply late.
        session.with("QUORLOCK_NODE_TIMEOUT", "2s").with("QUORLOCK_CONNECT_TIMEOUT", "10s")
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn name(&mut self, name: &'static str, text: &str) {
        self.names.push((name, text.to_owned()));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
        command.env_clear().envs(self.variables.iter().cloned()).args(arguments);
        command
    }

    /// Runs the command without adding it to the transcript.
    #[track_caller]
    pub(crate) fn execute(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(arguments))
    }

    /// Returns the exit code of `status -q`: 0 if the lock is free, 1 if it is held.
    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> i32 {
        self.execute(&["status", "-q", name]).code
    }

    /// Runs the command and adds the command line, output and exit code to the transcript.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> Ended {
        let ended = self.execute(arguments);
        self.write("", arguments, &ended);
        ended
    }

    pub(crate) fn run_with(&mut self, name: &str, value: &str, arguments: &[&str]) {
        let ended = Ended::of(self.command(arguments).env(name, value));
        self.write(&format!("{name}={value} "), arguments, &ended);
    }

    fn write(&mut self, before: &str, arguments: &[&str], ended: &Ended) {
        let quoted = |word: &&str| {
            let is_plain = !word.is_empty() && !word.contains([' ', '"', '\n']);
            if is_plain { (*word).to_owned() } else { format!("'{word}'") }
        };
        let words: Vec<String> = arguments.iter().map(quoted).collect();
        let Ended { out, err, code } = ended;
        let line = format!("$ {before}quorlock {}\n{out}{err}? {code}\n\n", words.join(" "));
        self.transcript.push_str(&line);
    }

    #[track_caller]
    pub(crate) fn compare_with(self, snapshot: &str) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
        let expected = Data::read_from(&dir.join(snapshot), None);
        let mut transcript = self.transcript;
        for (name, text) in self.names {
            transcript = transcript.replace(&text, name);
        }
        for (name, pattern) in VARIABLE.iter().filter(|_| self.is_live) {
            let pattern = Regex::new(pattern).expect("a valid pattern");
            transcript =
                pattern.replace_all(&transcript, format!("${{1}}{name}${{2}}")).into_owned();
        }
        Assert::new().action_env("SNAPSHOTS").eq(transcript, expected);
    }
}
