//! What is typed, and what comes of it, as a transcript that is compared with a snapshot.

use kit::{Child, Pipes, Server};
use regex::Regex;
use snapbox::{Assert, Data};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// What differs from run to run, as patterns: what they enclose is replaced. The first that fits counts.
const VARIABLE: [(&str, &str); 7] = [
    // Without all three: it depends on who answered first.
    ("[REPORT]", r"(: )[0-2]/3 granted [^\n]*()"),
    ("[TIME]", r"()[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z()"),
    ("[SERVER]", r"()(?:Redis|Valkey) [0-9]+\.[0-9]+\.[0-9]+()"),
    ("[UP]", r"(, up )(?:[0-9]+[dhms] ?)+(,)"),
    ("[CLOCK]", r"(, clock )[^,\n]+()"),
    ("[SPAN]", r"( )[0-9]+(?:\.[0-9]+)?(?:us|ms|s)()"),
    ("[SECONDS]", r#"(_seconds":)-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?()"#),
];

/// Far more than any of it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command has printed, and its exit code.
pub(crate) struct Ended {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ended {
    /// Runs a command to its end. One that hangs is ended.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let (child, Pipes { stdout, stderr, .. }) = Child::spawn(command);
        let [out, err] = [collect(stdout), collect(stderr)];
        let code = child.wait(LIMIT).expect("it ends");
        let text = |read: thread::JoinHandle<String>| read.join().expect("what it printed is text");
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

/// A shell, so to say, with an environment of its own, and names for what differs from run to run.
#[derive(Default)]
pub(crate) struct Scene {
    variables: Vec<(String, String)>,
    names: Vec<(&'static str, String)>,
    /// True if what nodes say is in it.
    is_live: bool,
    transcript: String,
}

impl Scene {
    /// The nodes are those of the environment, and have names.
    pub(crate) fn on(nodes: &[Server]) -> Self {
        let urls: Vec<String> = nodes.iter().map(Server::url).collect();
        let mut scene = Self { is_live: true, ..Self::default() };
        scene = scene.with("QUORLOCK_NODES", &urls.join(" "));
        for (node, name) in nodes.iter().zip(["[A]", "[B]", "[C]", "[D]", "[E]"]) {
            scene.name(name, &node.addr().to_string());
        }
        // Servers of tests are young.
        scene = scene.with("QUORLOCK_RESTART_GUARD", "observed");
        // Machines that are busy answer late.
        scene.with("QUORLOCK_NODE_TIMEOUT", "2s").with("QUORLOCK_CONNECT_TIMEOUT", "10s")
    }

    /// The same with a variable of the environment.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without a variable of the environment.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    /// Lets `name` stand for `text` in the transcript.
    pub(crate) fn name(&mut self, name: &'static str, text: &str) {
        self.names.push((name, text.to_owned()));
    }

    /// The command, as it is run here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
        command.env_clear().envs(self.variables.iter().cloned()).args(arguments);
        command
    }

    /// Runs it, writes down what it printed, and how it ended.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> Ended {
        let ended = Ended::of(&mut self.command(arguments));
        self.write("", arguments, &ended);
        ended
    }

    /// The same with one more variable of the environment.
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

    /// Compares all that was written down with a snapshot.
    #[track_caller]
    pub(crate) fn compare_with(self, snapshot: &str) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
        let expected = Data::read_from(&dir.join(snapshot), None);
        let mut told = self.transcript;
        for (name, text) in self.names {
            told = told.replace(&text, name);
        }
        for (name, pattern) in VARIABLE.iter().filter(|_| self.is_live) {
            let pattern = Regex::new(pattern).expect("a good pattern");
            told = pattern.replace_all(&told, format!("${{1}}{name}${{2}}")).into_owned();
        }
        Assert::new().action_env("SNAPSHOTS").eq(told, expected);
    }
}
